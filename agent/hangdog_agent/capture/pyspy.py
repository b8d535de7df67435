"""Starts py-spy, the only module that does, and says why when it gives no stacks.

py-spy ends with status 1 whatever happened, so its reasons are told apart by the words of its pinned version.
"""

import contextlib
import importlib.metadata
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.confinement import confined_children, credentials
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.subprocesses import ProcessOutcome, run
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.stacks.pyspy import threads_from_json
from hangdog_models.stack import Missing, Reason, Thread

#: A panic of py-spy would otherwise print pages, and nothing else of the environment concerns it.
_ENVIRON = {"RUST_BACKTRACE": "0", "LC_ALL": "C"}
#: Longest words kept of a failure; py-spy's causes need some 300 characters.
_MOST_WORDS = 500
#: MFD_EXEC of <linux/memfd.h>, which Python does not name.
_MFD_EXEC = 0x0010
#: It maps the libraries it reads symbols of, one after the other: those of PyTorch with CUDA are 2 GB at most. Of its own it
#: took 335 MiB at most.
_LIMITS = ChildLimits(address_bytes=16 << 30)
#: `--version` answers in 5 ms.
_VERSION_S = 5.0

GRANT = "run the agent as root, or as the trainer's user with CAP_SYS_PTRACE (`hangdog doctor` names the setting)"

#: What py-spy's errors say, most telling first, and the reason each stands for.
_TEXTS = (
    (("Failed to get process executable name", "Permission denied (os error 13)"), Reason.NOT_PERMITTED),
    (("Permission Denied: Try running again with elevated permissions",), Reason.NOT_PERMITTED),
    (("Failed to get process executable name. Check that the process is running.",), Reason.EXITED),
    (("Failed to suspend process", "SIGSTOP"), Reason.STOPPED),
    (("Failed to suspend process", "EPERM"), Reason.TRACED),
    (("Failed to find python version from target process",), Reason.NOT_PYTHON),
    (("No such process (os error 3)",), Reason.EXITED),
    (("Failed to copy Py", "Bad address (os error 14)"), Reason.MOVED),
)
#: Whoever changes its frames while they are read is read again at once, so often: of 30 reads in a loop that replayed a CUDA graph
#: 4 failed so. One read takes 10 ms.
_AGAIN = 2


@dataclass(frozen=True, slots=True)
class PySpy:
    """A py-spy that can be run: how to call it, which program that is (else the call's first word), what it must inherit."""

    command: tuple[str, ...]
    executable: str | None = None
    fds: tuple[int, ...] = ()
    version: str = ""

    def dump(
        self,
        pid: int,
        deadline_s: float,
        settings: CaptureSettings,
        blocking: bool = False,
        stop: threading.Event | None = None,
        native: bool = False,
    ) -> tuple[Thread, ...] | Missing:
        """The stacks of one process, or why there are none. Blocking stops the process while it is read.

        `native` shows the frames of C and C++ too; py-spy can only do so blocking, and reads symbols meanwhile.
        Answers within `deadline_s` seconds; py-spy is then gone, and with it every hold it had on the process.
        """
        until = time.monotonic() + deadline_s
        for _ in range(_AGAIN):
            read = self._dump(pid, deadline_s, settings, blocking, stop, native)
            deadline_s = until - time.monotonic()
            if not isinstance(read, Missing) or read.reason is not Reason.MOVED or deadline_s <= 0:
                return read
        return self._dump(pid, deadline_s, settings, blocking, stop, native)

    def _dump(
        self,
        pid: int,
        deadline_s: float,
        settings: CaptureSettings,
        blocking: bool,
        stop: threading.Event | None,
        native: bool,
    ) -> tuple[Thread, ...] | Missing:
        how = ("--native",) if native else () if blocking else ("--nonblocking",)
        arguments = (*self.command, "dump", "--json", *how, "--pid", str(pid))
        if not settings.stacks:
            return Missing(Reason.NO_EVIDENCE, "stacks are turned off on this machine (stacks=0)")
        try:
            # it opens the programs and libraries that the process says it runs: with that user's rights on files
            who = credentials.of_its_own(pid)
        except CredentialsRefused as error:
            return Missing(Reason.NOT_PERMITTED, f"py-spy: {error}")
        except ProcessLookupError:
            return Missing(Reason.EXITED, "py-spy: No such process")
        outcome = run(
            arguments,
            deadline_s,
            settings.stdout_bytes,
            self.fds,
            _ENVIRON,
            stop,
            self.executable,
            confined_children.tool(who, _LIMITS),
        )
        if outcome.status != 0:
            return explain(outcome, held=blocking or native)
        try:
            threads = threads_from_json(outcome.stdout.decode("utf-8", "replace"))
        except UnreadableEvidence as error:
            return Missing(Reason.TOOL_FAILED, _words(str(error)))
        return threads or Missing(Reason.TOOL_FAILED, "py-spy: no Python threads")


def load(distribution: str = "py-spy") -> PySpy | Missing:
    """Finds py-spy's binary in the package installed beside us (never on PATH), and tries it once.

    The binary is copied to memory: in a real hang the file system it lies on may be what hangs.
    """
    try:
        files = importlib.metadata.distribution(distribution).files or ()
    except importlib.metadata.PackageNotFoundError:
        return Missing(
            Reason.TOOL_MISSING, f"no package {distribution} is installed beside the agent: pip install py-spy==0.4.3"
        )
    path = next((Path(str(file.locate())) for file in files if file.name == "py-spy"), None)
    if path is None or not path.is_file():
        return Missing(
            Reason.TOOL_MISSING,
            f"the package {distribution} holds no binary: pip install --force-reinstall py-spy==0.4.3",
        )
    outcome = ProcessOutcome(None)
    for tool in (_in_memory(path), PySpy((os.fspath(path),))):
        if tool is None:
            continue
        outcome = run(
            (*tool.command, "--version"), _VERSION_S, _MOST_WORDS, tool.fds, _ENVIRON,
            executable=tool.executable, child=Child(_LIMITS),
        )  # fmt: skip
        if outcome.status == 0:
            version = outcome.stdout.decode("utf-8", "replace").removeprefix("py-spy").strip()
            return replace(tool, version=version)
        for fd in tool.fds:  # a kernel that forbids programs in memory (vm.memfd_noexec): use the file itself
            os.close(fd)
    return Missing(Reason.TOOL_MISSING, _words(f"py-spy cannot be run: {outcome.why or outcome.stderr}"))


def explain(outcome: ProcessOutcome, held: bool = False) -> Missing:
    """The reason a run of py-spy gave no stacks, in its own words on one line. Whoever is `held` does not move."""
    if outcome.refused:
        return Missing(Reason.NOT_PERMITTED, f"py-spy: {outcome.why}")
    if outcome.timed_out:
        return Missing(Reason.TIMED_OUT, f"py-spy: {outcome.why}")
    if outcome.status is None:
        return Missing(Reason.TOOL_FAILED, f"py-spy: {outcome.why}")
    stated = outcome.stderr
    reason = next((reason for texts, reason in _TEXTS if all(text in stated for text in texts)), Reason.TOOL_FAILED)
    if reason is Reason.NOT_PERMITTED:
        return Missing(reason, f"py-spy: permission denied; {GRANT}")
    if reason is Reason.MOVED:
        if not held:
            return Missing(reason, "py-spy: frames of its threads went away while they were read: they get on")
        reason = Reason.TOOL_FAILED
    return Missing(reason, _words(f"py-spy: {stated.strip() or f'exit status {outcome.status}, no output'}"))


def _in_memory(path: Path) -> PySpy | None:
    with contextlib.suppress(OSError, AttributeError):
        fd = _memory_file()
        with path.open("rb") as source:
            while os.sendfile(fd, source.fileno(), None, 1 << 24):
                pass
        # opened again for reading alone: what is open for writing cannot be run
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(fd)
        return PySpy(("py-spy",), f"/proc/self/fd/{again}", (again,))
    return None


def _memory_file() -> int:
    try:  # asked for by name it may be run under vm.memfd_noexec=1, too
        return os.memfd_create("py-spy", os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:  # Linux before 6.3 does not know the flag
        return os.memfd_create("py-spy", os.MFD_CLOEXEC)


def _words(text: str) -> str:
    line = " ".join(text.split()).replace("py-spy: Error: ", "py-spy: ", 1)
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"
