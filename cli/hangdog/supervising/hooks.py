"""Has a user's own command or webhook carry out a step, and says what came of it."""

import json
import os
import shlex
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangdog_models.errors import WrongUse
from hangdog_models.recovery.recovery_history import TESTS, RecoveryStep

#: Bytes of what a hook printed that are looked at: the last ones.
PRINTED = 64 << 10
#: A webhook only takes the step in; what it starts may take longer. Seconds.
WEBHOOK_S = 30.0


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """Whether a hook carried its step out, its last words, and the machines that a test of it convicted."""

    ok: bool
    message: str = ""
    convicted: tuple[str, ...] = ()


def check(hook: str, tests: bool) -> None:
    """Raises WrongUse for what can be no hook."""
    if _is_url(hook):
        if tests:
            raise WrongUse(
                f"{hook}: a webhook cannot report what a test found",
                "give a command that prints the faulty machines",
                code="conflicting-options",
            )
        return
    if not command_words(hook):
        raise WrongUse("a hook is empty", "give a command or a URL", code="bad-command")


def command_words(command: str) -> list[str]:
    """The words of a command, as a shell would split it; raises WrongUse."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise WrongUse(
            f"{command!r} is not a command: {error}", "quote it as in a shell", code="bad-command"
        ) from error


def carry_out(
    hook: str, step: RecoveryStep, name: str, machines: Collection[str], log: Path, patience_s: float
) -> HookAnswer:
    """Runs the hook of a step. `name` is the same however often somebody asks, so that nobody need act twice."""
    if _is_url(hook):
        return _posted(hook, step, name)
    environ = os.environ | {
        "HANGDOG_STEP": str(step.act),
        "HANGDOG_STEP_ID": name,
        "HANGDOG_STEP_MACHINES": ",".join(step.machines),
        "HANGDOG_STEP_CHANGES": ",".join(step.changes),
        "HANGDOG_STEP_BECAUSE": "\n".join(step.reasons),
    }
    try:
        with log.open("ab") as file:
            began = file.tell()
            process = subprocess.Popen(
                shlex.split(hook),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
    except OSError as error:
        return HookAnswer(False, f"{hook}: {error.strerror}")
    try:
        status: int | None = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    printed = _printed(log, began)
    last = printed[-1] if printed else "it said nothing"
    if status is None:
        return HookAnswer(False, f"{hook} did not end within {patience_s:g} s: {last}")
    if status:
        return HookAnswer(False, f"{hook} ended with status {status}: {last}")
    named = tuple(dict.fromkeys(line for line in printed if line in machines)) if step.act in TESTS else ()
    return HookAnswer(True, last, named)


def _printed(log: Path, began: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(began, log.stat().st_size - PRINTED))
        lines = file.read(PRINTED).decode("utf-8", "replace").splitlines()
    return [line.strip()[:1000] for line in lines if line.strip()]


def _is_url(hook: str) -> bool:
    return hook.startswith(("http://", "https://"))


def _posted(url: str, step: RecoveryStep, name: str) -> HookAnswer:
    """Only 2xx is delivery; no redirect is followed, and nothing that is answered is believed."""
    document: dict[str, Any] = {
        "schema": "hangdog.step/1",
        "id": name,
        "act": str(step.act),
        "machines": list(step.machines),
        "changes": list(step.changes),
        "because": list(step.reasons),
    }
    headers = {"Content-Type": "application/json", "Idempotency-Key": name}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")
    try:
        with urllib.request.build_opener(_Straight).open(request, timeout=WEBHOOK_S) as answer:
            return HookAnswer(200 <= answer.status < 300, f"{url} answered {answer.status}")
    except urllib.error.HTTPError as error:
        return HookAnswer(False, f"{url} answered {error.code}")
    except (OSError, ValueError) as error:
        return HookAnswer(False, f"{url}: {error}")


class _Straight(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None
