"""Reads what launchers say of the process whose end they saw first: mpirun and prterun, torchrun without its list, DeepSpeed.

mpirun names a rank of MPI_COMM_WORLD, which is the job's where each of its processes is a trainer. torchrun names a local rank of
the machine that it runs on, and DeepSpeed none: it quotes the command line of its last process, whichever ended.
"""

import re
from dataclasses import dataclass, field, replace

from hangdog_models.exits import SIGNALS
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank

#: Parts of lines that open such a report, or of lines in it that stand alone.
HINTS = (
    "noticed that process rank", "has exited due to process rank", "Process name: [", "MPI_ABORT was invoked",
    "failed (exitcode: ", "exits with return code = -", "its daemon located on node:",
)  # fmt: skip
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]{0,252})"
_SIGNALLED = re.compile(
    rf"noticed that process rank (?P<rank>\d{{1,7}}) with PID (?P<pid>\d{{1,10}}) on node {_HOST} exited on signal (?P<signal>\d{{1,3}})\b"
)
_LEFT = re.compile(r"has exited due to process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,10}) on")
_LEFT_ON = re.compile(rf"(?:.{{0,400}} on )?\s{{0,8}}node {_HOST} exiting\b")
#: `[[34520,1],3]` of Open MPI, `[prterun-host-71@1,3]` of PRRTE: the job of the launcher, and the rank in it.
_NAMED = re.compile(
    r"\s{0,16}Process name: \[(?:\[\d{1,10},\d{1,10}\]|[\w.-]{1,255}@\d{1,10}),(?P<rank>\d{1,7})\]\s{0,8}$"
)
_CODE = re.compile(r"\s{0,16}Exit code:\s{1,16}(?P<code>\d{1,3})\s{0,8}$")
_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,7}) in communicator MPI_COMM_WORLD\b")
_TORCHRUN = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d{1,10})\) of binary: "
)
_DEEPSPEED = re.compile(
    r"\blaunch\.py:\d{1,5}:\w{1,40}\] .{1,6000} exits with return code = (?P<code>-\d{1,3})\s{0,8}$"
)
#: Open MPI up to 4: the name stands two lines below. Newer ones name it in the same line, as the table of lines knows.
_DAEMON = re.compile(r"lost communication with its daemon located on node:")
_HOSTNAME = re.compile(rf"\s{{0,16}}hostname:\s{{1,16}}{_HOST}\s{{0,8}}$")
_LOST = (
    "mpirun lost its daemon on this machine: it was killed, or the machine or its network went away; look there first"
)
_UNKNOWN = ("first observed failure", Impact.VICTIM, "whoever ends first is mostly a victim")
_ABORTED = ("aborted", Impact.VICTIM, "it gave itself up; why stands before that in its log")
#: In the place of an exit code: it left before it was done with MPI, or was ended by MPI_ABORT, and mpirun does not know which.
_WORDLESS = 0
#: A shell adds this to the number of the signal that ended a program.
_OF_A_SIGNAL = 128
#: Lines within which a report of two lines goes on, and reports that are kept: a job may be started several times.
_PATIENCE, _MOST = 3, 8


@dataclass(slots=True)
class LauncherEndings:
    """The reports in one log. `lines` of one that has begun may still come, whose rank and process are `begun`.

    `lost`: it is of a daemon, which has no rank.
    """

    found: dict[tuple[str, Rank | None, str], Finding] = field(default_factory=dict)
    of_torchrun: list[Finding] = field(default_factory=list)
    lines: int = 0
    begun: tuple[str, str] = ("", "")
    lost: bool = False

    def take(self, line: str) -> bool:
        """Notes a line; true if it belongs to a report."""
        if self.lines and self._goes_on(line):
            return True
        if not any(hint in line for hint in HINTS):
            return False
        if found := _SIGNALLED.search(line):
            self._keep(found["rank"], found["pid"], found["host"], -int(found["signal"]))
        elif found := _LEFT.search(line):
            self.lines, self.begun, self.lost = _PATIENCE, (found["rank"], found["pid"]), False
            self._goes_on(line)
        elif found := _NAMED.match(line):
            self.lines, self.begun, self.lost = _PATIENCE, (found["rank"], ""), False
        elif _DAEMON.search(line):
            self.lines, self.lost = _PATIENCE, True
        elif found := _ABORT.search(line):
            self._keep(found["rank"], "", "", None)
        elif found := _TORCHRUN.search(line):
            who = f"the process with local rank {int(found['local'])} (process {found['pid']})"
            if len(self.of_torchrun) < _MOST:
                self.of_torchrun.append(_finding(who, None, "", int(found["code"])))
        elif found := _DEEPSPEED.search(line):
            one = _finding("one of its processes, which it does not tell,", None, "", int(found["code"]))
            self.found.setdefault((one.code, None, ""), one)
        else:
            return False
        return True

    def _goes_on(self, line: str) -> bool:
        self.lines -= 1
        if self.lost:
            if found := _HOSTNAME.match(line):
                self.lines = 0
                one = Finding("", "launcher lost a daemon", Impact.VICTIM, _LOST, found["host"])
                if len(self.found) < _MOST:
                    self.found.setdefault((one.code, None, one.machine), one)
            return found is not None
        if found := _LEFT_ON.match(line) if self.begun[1] else _CODE.match(line):
            named = found.groupdict()
            self._keep(*self.begun, named.get("host", ""), int(named["code"]) if "code" in named else _WORDLESS)
            self.lines = 0
        return found is not None

    def _keep(self, number: str, pid: str, host: str, code: int | None) -> None:
        rank = Rank(int(number)) if int(number) <= MAX_RANK else None
        where = " on ".join(part for part in (f"process {pid}" if pid.strip("0") else "", host) if part)
        who = f"rank {int(number)}" + (f" ({where})" if where else "")
        one = _finding(who, rank, host, code)
        if len(self.found) < _MOST:
            self.found.setdefault((one.code, rank, host), one)

    def findings(self, source: str, listed: bool) -> list[Finding]:
        """Who ended first. `listed`: torchrun's own list says it in full, with the global rank."""
        return [
            replace(one, source=source) for one in (*self.found.values(), *(() if listed else self.of_torchrun[:1]))
        ]


def _finding(who: str, rank: Rank | None, host: str, code: int | None) -> Finding:
    """How a process ended: by its exit code, which is negative for a signal; None: it called MPI_ABORT."""
    number = _OF_A_SIGNAL - code if code is not None and code > _OF_A_SIGNAL else code
    name, impact, why = SIGNALS.get(str(number), _ABORTED if number in (None, -6) else _UNKNOWN)
    how = "" if not code else f", by signal {-code}" if code < 0 else f", with exit code {code}"
    return Finding("", name, impact, f"the launcher saw {who} end first{how}: {why}", host, rank)
