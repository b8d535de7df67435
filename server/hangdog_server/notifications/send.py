"""Has one message sent by a process of its own, which is ended when it takes too long; nothing of it shows the address."""

import asyncio
import json
import logging
import os
import re
import sys
from dataclasses import dataclass
from urllib.parse import unquote

from hangdog_models.errors import WrongUse
from hangdog_models.reading.printable import printable
from hangdog_server.actions.backends.backend import BackendFailed
from hangdog_server.actions.backends.subprocess_runner import run
from hangdog_server.notifications.message import Message
from hangdog_server.notifications.notify_config import NotifyConfig, Receiver

#: Seconds for one message, from the start of its process to the receiver's answer: a mail server may greylist for some.
WITHIN_S = 30.0
#: Characters of what is said of a failure.
_WORDS = 300
#: Parts of an address that are as long as this are taken for secrets, wherever they turn up.
_SECRET = 6

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Posted:
    """What came of a message: `failed` says why it did not go, `service` is the kind of its receiver where that is known.

    `late`: its process was ended, so that nothing is known.
    """

    service: str = ""
    failed: str = ""
    late: bool = False


async def post(to: Receiver, message: Message, within_s: float = WITHIN_S) -> Posted:
    """Sends a message, once; raises nothing."""
    return await _run(to, {"title": message.title, "body": message.body}, within_s)


async def check(reported: NotifyConfig) -> None:
    """Raises WrongUse where an address is none that anything can be sent to; nothing is. A machine too busy to tell is no reason."""
    looked = await asyncio.gather(*(_run(to, {}, WITHIN_S) for to in reported.receivers))
    for to, came in zip(reported.receivers, looked, strict=True):
        if came.late:
            log.warning("cannot check the address of to.%s: %s", to.name, came.failed)
        elif came.failed:
            words = f"to.{to.name}: its url_file holds no address to send to: {came.failed}"
            raise WrongUse(words, "docs/notifications.md", code="wrong-setting")


async def _run(to: Receiver, more: dict[str, str], within_s: float) -> Posted:
    command = sys.executable, "-m", "hangdog_server.notifications.apprise_process"
    given = json.dumps({"url": to.url, **more}).encode()
    try:
        status, out, complaints = await run(command, os.environ, within_s, given)
    except BackendFailed:
        return Posted(failed=f"it took longer than {within_s:g} s, or no process could be started", late=True)
    try:
        reported = json.loads(out)
        return Posted(_hidden(to, str(reported["service"])), _hidden(to, str(reported["failed"])))
    except (ValueError, KeyError, TypeError):
        last = complaints.strip().rpartition("\n")[2]
        return Posted(failed=_hidden(to, f"the process that sends it ended with {status}: {last}"))


def _hidden(to: Receiver, words: str) -> str:
    """Words without any longer part of the address."""
    _, _, rest = to.url.partition("://")
    parts = {part for part in (*_split(rest), *_split(unquote(rest))) if len(part) >= _SECRET}
    for part in sorted(parts, key=len, reverse=True):
        words = re.sub(re.escape(part), "...", words, flags=re.IGNORECASE)  # hosts are told in small letters
    return printable(words, _WORDS)


def _split(url: str) -> list[str]:
    for sign in "/@:?&=#":
        url = url.replace(sign, " ")
    return url.split()
