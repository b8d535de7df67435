"""The NCCL profiler plug-in under a real NCCL: what its ring says while a job runs and while one rank of it is stopped.

In a dry run a program in C stands in for NCCL and for both trainers.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu.environment import ROOT
from gpu.kit import Measured, NotHere, Part, Stand
from hangdog_agent.capture import collective_progress
from hangdog_models.progress.collective_progress import CollectiveProgress, Operation, Phase

TRAINERS = Path(__file__).parents[1] / "trainers"
SOURCE = ROOT / "agent" / "profiler" / "profiler.c"
#: Where `make profiler` puts it, and where other parts look for it.
BUILT = SOURCE.with_name("libhangdog_profiler.so")
#: No longer than this until both ranks run, and for the rounds that are timed at the end: each makes communicators. Seconds.
BEGIN_S, ROUNDS_S = 25.0, 12.0
#: Rings are read for so long while the job runs, then while a rank is stopped. Seconds.
RUNNING_S, STOPPED_S, HUNG_S, AFTER_S = 2.0, 3.0, 3.0, 1.0
END_S = 6.0
#: Between two readings of a job that runs. Seconds.
LOOK_S = 0.02


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("profiler/ring", 25.0 if stand.dry else 45.0, measure)


def measure(stand: Stand) -> Measured:
    folder = stand.folder("profiler").resolve()
    plugin = compiled(SOURCE, folder / "libhangdog_profiler.so", "-shared", "-fPIC", "-fvisibility=hidden")
    if not stand.dry and not BUILT.exists():
        with contextlib.suppress(OSError):
            shutil.copy(plugin, BUILT)
    job = Job(stand, folder, plugin)
    try:
        job.begin()
        if job.wait("ready", BEGIN_S):
            job.watch()
    finally:
        job.end()
    return Measured(job.figures(), job.wrong)


def compiled(source: Path, made: Path, *options: str) -> Path:
    """What a C compiler makes of one of our sources."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotHere("no C compiler: gcc is needed to build the plug-in")
    ran = subprocess.run(
        [compiler, "-O2", *options, "-o", made, source, "-ldl", "-lpthread"],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if ran.returncode:
        raise NotHere(f"{compiler} does not build {source.name}: {ran.stderr[-300:]}")
    return made


@dataclass
class Rank:
    """A trainer that writes lines of JSON."""

    process: subprocess.Popen[bytes]
    out: Path
    errors: Path

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.out.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [each for each in found if isinstance(each, dict)]

    def line(self, name: str) -> dict[str, Any] | None:
        return next((each for each in self.lines() if name in each), None)


@dataclass
class Job:
    """Two ranks on one GPU, which NCCL takes for two machines; all that was seen of them."""

    stand: Stand
    folder: Path
    plugin: Path
    ranks: list[Rank] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def rings(self) -> Path:
        return self.folder / "rings"

    def sign(self, name: str) -> None:
        """Tells the ranks to do something."""
        (self.folder / f"pair.{name}").touch()

    def begin(self) -> None:
        (self.folder / "stores").mkdir()
        if self.stand.dry:
            program = compiled(TRAINERS / "nccl_stand_in.c", self.folder / "nccl_stand_in")
            self._cost(program)
        for rank in (0, 1):
            if self.stand.dry:
                command: list[str | Path] = [program, self.plugin, "5", "pair", self.folder / "pair", str(rank)]
            else:
                trainer = TRAINERS / "ring_trainer.py"
                command = [self.stand.python, trainer, self.folder / "stores", self.folder / "pair"]
            out, errors = self.folder / f"out-{rank}", self.folder / f"errors-{rank}"
            with out.open("wb") as said, errors.open("wb") as complained:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=said, stderr=complained,
                    env=self._environ(rank), start_new_session=True,
                )  # fmt: skip
            self.ranks.append(Rank(process, out, errors))

    def _environ(self, rank: int) -> dict[str, str]:
        return os.environ | {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "NCCL_HOSTID": f"machine-{rank}",
            "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1", "NCCL_MAX_NCHANNELS": "2", "NCCL_PROFILER_PLUGIN": str(self.plugin),
            "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,PROFILE", "NCCL_DEBUG_FILE": str(self.folder / f"nccl-{rank}"),
            "HANGDOG_PROFILER_DIR": str(self.rings),
        }  # fmt: skip

    def _cost(self, program: Path) -> None:
        """What one event costs, with nothing else to do: only the stand-in can tell."""
        for which in ("1", "0"):
            environ = os.environ | {"HANGDOG_PROFILER": which, "HANGDOG_PROFILER_DIR": str(self.rings)}
            ran = subprocess.run(
                [program, self.plugin, "5", "cost", "20000"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, env=environ, check=False,
            )  # fmt: skip
            self.seen[f"stand-in, {'on' if which == '1' else 'off'}"] = ran.stdout.partition("\n")[0]

    def wait(self, name: str, seconds: float) -> bool:
        """Whether both ranks said it in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(rank.line(name) for rank in self.ranks):
                return True
            if dead := [number for number, rank in enumerate(self.ranks) if rank.process.poll() is not None]:
                self.wrong.append(f"rank {dead[0]} ended with {self.ranks[dead[0]].process.returncode} before '{name}'")
                return False
            time.sleep(0.05)
        self.wrong.append(f"no '{name}' of both ranks within {seconds:.0f} s")
        return False

    def read(self, rank: int) -> tuple[CollectiveProgress, ...]:
        pid = self.ranks[rank].process.pid
        return collective_progress.read(pid, time.monotonic_ns(), str(self.rings))

    def watch(self) -> None:
        for look in (self._running, self._stopped, self._hung, self._counted, self._timed):
            try:
                look()
            except Exception as error:  # noqa: BLE001 - what one finds is told whatever another meets
                self.wrong.append(f"{look.__name__.strip('_')}: {type(error).__name__}: {error}"[:300])

    def _running(self) -> None:
        phases: dict[str, int] = {}
        took, until = [], time.monotonic() + RUNNING_S
        while time.monotonic() < until:
            for rank in (0, 1):
                began = time.monotonic()
                found = self.read(rank)
                took.append(time.monotonic() - began)
                for operation in _in_flight(found):
                    for word in (operation.phase, *(f"awaits {each.awaits}" for each in operation.transfers)):
                        phases[word] = phases.get(word, 0) + 1
            time.sleep(LOOK_S)
        self.seen["readings while it runs"] = len(took)
        self.seen["ms a reading"] = round(statistics.median(took) * 1e3, 2)
        self.seen["phases seen"] = [f"{word} {count}" for word, count in sorted(phases.items())]

    def _stopped(self) -> None:
        before = _counts(self.read(1))
        os.kill(self.ranks[1].process.pid, signal.SIGSTOP)
        try:
            time.sleep(STOPPED_S)
            waiting, stopped = self.read(0), self.read(1)
        finally:
            os.kill(self.ranks[1].process.pid, signal.SIGCONT)
        self.seen["rank 0 while rank 1 is stopped"] = _shown(waiting)
        self.seen["rank 1 while it is stopped"] = _shown(stopped)
        stuck = [each for each in _in_flight(waiting) if each.age_s > STOPPED_S / 2]
        self.seen["stuck on rank 0"] = [
            f"{each.call.function} {each.phase} for {each.age_s:.2f} s, unmoved for {each.idle_s:.2f} s"
            for each in stuck
        ]
        behind = _behind(waiting, stopped)
        awaited = sorted(
            {one.peer for each in stuck for one in each.transfers if not one.sends and one.posted > one.ready}
        )
        self.seen["behind by counts"] = behind
        self.seen["rank 0 awaits data of"] = awaited
        if not stuck:
            self.wrong.append("rank 1 was stopped and nothing is in flight on rank 0")
        elif not ("rank 1" in behind or awaited == [1]):
            self.wrong.append(f"rank 1 was stopped; behind: {behind or 'nobody'}; rank 0 awaits data of {awaited}")
        time.sleep(AFTER_S)
        if _counts(self.read(1)) <= before:
            self.wrong.append("rank 1 does not go on after SIGCONT")

    def _hung(self) -> None:
        """The device of rank 1 hangs: its host has launched a collective that its GPU does not begin."""
        self.sign("hang")
        try:
            time.sleep(HUNG_S)
            waiting, hung = self.read(0), self.read(1)
        finally:
            self.sign("release")
        for rank, found in enumerate((waiting, hung)):
            self.seen[f"rank {rank} while the device of rank 1 hangs"] = [
                f"{each.call.function} {each.phase} for {each.age_s:.2f} s, {each.kernels_running} kernels,"
                f" {', '.join(f'awaits {one.awaits}' for one in each.transfers) or 'no transfers'}"
                for each in _in_flight(found)
            ]
        if failed := self.ranks[1].line("no_hang"):
            self.seen["no hang"] = failed["no_hang"]
        elif not [each for each in _in_flight(hung) if each.phase is Phase.LAUNCHED and each.age_s > HUNG_S / 3]:
            self.wrong.append("the device of rank 1 hung, and nothing is launched and not begun on it")
        time.sleep(AFTER_S)

    def _counted(self) -> None:
        self.sign("stop")
        if not self.wait("done", END_S):
            return
        for number, rank in enumerate(self.ranks):
            done = rank.line("done") or {}
            # a transfer's last event comes a moment after the kernel's end
            until = time.monotonic() + 1.0
            while any(not each.ended and each.in_flight for each in self.read(number)) and time.monotonic() < until:
                time.sleep(0.05)
            found = [each for each in self.read(number) if not each.ended]
            made = (
                done.get("all_reduce", 0) + done.get("all_gather", 0),
                done.get("send", 0) + done.get("recv", 0),
            )
            counted = sum(each.collectives for each in found), sum(each.point_to_points for each in found)
            finished = sum(each.finished for each in found)
            self.seen[f"rank {number}: collectives and p2p made"] = list(made)
            self.seen[f"rank {number}: counted, finished, left out"] = [
                *counted, finished, sum(each.left_out for each in found)
            ]  # fmt: skip
            self.seen[f"rank {number} at the end"] = _shown(found)
            if counted != made:
                self.wrong.append(f"rank {number} made {made} collectives and p2p, its ring counts {counted}")
            if done.get("right") is not True:
                self.wrong.append(f"rank {number} computed something wrong")

    def _timed(self) -> None:
        """Rounds with and without it, last: to begin each NCCL unloads the plug-in and loads it again."""
        if self.stand.dry:
            return
        for rank in self.ranks:
            if rank.process.stdin is not None:
                rank.process.stdin.write(b"\n")
                rank.process.stdin.flush()
        self.wait("timed", ROUNDS_S)

    def end(self) -> None:
        """Lets both ranks go, and kills what does not."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                os.kill(rank.process.pid, signal.SIGCONT)
            if rank.process.stdin is not None:
                with contextlib.suppress(OSError):
                    rank.process.stdin.close()
        until = time.monotonic() + END_S
        for number, rank in enumerate(self.ranks):
            try:
                status: int | str = rank.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = "killed: it did not end"
            with contextlib.suppress(OSError):
                os.killpg(rank.process.pid, signal.SIGKILL)
            rank.process.wait(10)
            self.seen[f"rank {number} ended with"] = status
            if status:
                self.wrong.append(f"rank {number} did not end well: {status}")

    def figures(self) -> dict[str, Any]:
        first = self.ranks[0].line("nccl") if self.ranks else None
        nccl = "the stand-in" if self.stand.dry else (first or {}).get("nccl")
        rounds = [each for each in self.ranks[0].lines() if "round" in each] if self.ranks else []
        figures: dict[str, Any] = {"NCCL": nccl, "plug-in as": self._loaded()}
        for which in ("off", "on"):
            taken = [one for each in rounds if each["round"] == which for one in each["us"]]
            if taken:
                figures[f"us an all_reduce, {which}"] = round(statistics.median(taken), 1)
                figures[f"its rounds, {which}"] = [each["median_us"] for each in rounds if each["round"] == which]
                figures[f"s to begin, {which}"] = [each["begin_s"] for each in rounds if each["round"] == which]
        figures |= self.seen
        if self.wrong:
            figures |= {f"rank {number} complains": _tail(rank.errors) for number, rank in enumerate(self.ranks)}
            figures |= {f"NCCL of rank {number}": _tail(self.folder / f"nccl-{number}") for number in (0, 1)}
        return figures

    def _loaded(self) -> list[str]:
        """What NCCL says of the plug-in."""
        if self.stand.dry:
            return ["v5"]
        found = []
        for number in (0, 1):
            with contextlib.suppress(OSError):
                text = (self.folder / f"nccl-{number}").read_text(errors="replace")
                found += re.findall(
                    r"PROFILER/Plugin: Loaded.*|.*[Pp]rofiler event mask.*|Profiler init failed.*", text
                )
        if not found:
            self.wrong.append("NCCL does not say that it loaded the plug-in")
        return list(dict.fromkeys(line.strip()[-120:] for line in found))[:6]


def _in_flight(found: Sequence[CollectiveProgress]) -> list[Operation]:
    return [operation for each in found for operation in each.in_flight]


def _counts(found: Sequence[CollectiveProgress]) -> int:
    return sum(each.collectives + each.point_to_points for each in found)


def _shown(found: Sequence[CollectiveProgress]) -> str:
    return " / ".join(line.strip() for each in found if not each.ended for line in collective_progress.lines(each))[
        :1500
    ]


def _behind(waiting: Sequence[CollectiveProgress], stopped: Sequence[CollectiveProgress]) -> str:
    """Which rank has come less far in a communicator of both."""
    found = []
    others = {each.communicator: each for each in stopped if not each.ended}
    for each in waiting:
        other = others.get(each.communicator)
        if other is None or each.ended:
            continue
        for what, mine, its in (
            ("enqueued", _counts([each]), _counts([other])),
            ("started", each.started, other.started),
        ):
            if mine != its:
                found.append(f"rank {int(mine > its)} has {abs(mine - its)} fewer {what} in {each.communicator:x}")
                break
    return "; ".join(found)


def _tail(path: Path) -> str:
    """The end of a file, and before it the lines that warn."""
    try:
        lines = path.read_text(errors="replace").splitlines()
        warns = [line[-200:] for line in lines if re.search(r"\b(WARN|ERROR|Error)\b", line)][:5]
        return "\n".join([*warns, "…", "\n".join(lines)[-700:]])
    except OSError as error:
        return str(error)
