"""Faults and healthy phases of real trainers beside a real server and real agents: how soon suspected, how soon judged, and how right."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from frameworks.cases import Case
from frameworks.environment import WORLD, Framework
from frameworks.expectation import expected_live, missed
from frameworks.guard import ClusterGuard
from frameworks.job import Job
from frameworks.record import brought_about, ends
from frameworks.served import server
from hangdog.demo.prctl import adopt_orphans
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_models.errors import OurFault
from hangdog_models.incident import Incident
from hangdog_models.stack import Reason
from hangdog_models.verdict import from_json

#: Training under watch before anything happens, so that the ranks' rhythm is known. Seconds.
TRAINED_S = 25.0
#: A fault is waited for so long, which is more than a young job is borne, and a healthy phase lasts so long. Seconds.
FAULT_S, PHASE_S = 420.0, 90.0
#: It trains for so long after a healthy phase, still watched. Seconds.
AFTER_S = 45.0
TICK_S = 0.1
#: Which machine a rank runs on, as its environment says.
MACHINE = "FRAMEWORKS_MACHINE"
#: Who starts ranks so that their environment tells them; the ranks of all others are announced for them.
TELLING = ("torchrun",)


@dataclass(frozen=True, slots=True)
class Row:
    """One case: seconds from the last progress to the suspicion, from there to the verdict, and what is wrong with that."""

    framework: str
    case: Case
    incidents: int
    why: str = ""
    suspected_s: float | None = None
    judged_s: float | None = None
    verdict: str = ""
    suspects: tuple[int, ...] = ()
    evicted: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


class Announced(Proc):
    """A process table in which each rank's environment names its machine and its job, and its rank where nothing else does.

    `pids` by rank is read anew each time: a job may start again.
    """

    def __init__(self, framework: Framework, pids: Mapping[int, int], ranks_a_machine: int = 1) -> None:
        super().__init__()
        self._pids, self._a_machine = pids, ranks_a_machine
        self._told = framework.starter in TELLING

    def raw(self, pid: int, name: str) -> bytes | Reason:
        read = super().raw(pid, name)
        if name != "environ" or not isinstance(read, bytes):
            return read
        rank = next((rank for rank, one in self._pids.items() if one == pid), None)
        if rank is None:
            return read
        own = b"" if self._told else b"RANK=%d\0WORLD_SIZE=%d\0" % (rank, WORLD)
        machine = rank // self._a_machine
        return own + b"HANGDOG_JOB=frameworks\0%s=node-%d\0" % (MACHINE.encode(), machine) + read


class Progress:
    """When the last rank finished a step, followed until its block is left."""

    def __init__(self, job: Job) -> None:
        self._job, self._over, self._thread = job, threading.Event(), threading.Thread(target=self._follow)
        self._latest, self._times = max(job.steps()), [time.monotonic()]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(TICK_S):
            latest = max(self._job.steps())
            if latest > self._latest:
                self._latest = latest
                self._times.append(time.monotonic())

    def last(self, before: float) -> float:
        """When the last rank finished a step before a moment."""
        return max((at for at in self._times if at <= before), default=self._times[0])


def run_live(frameworks: Sequence[Framework], cases: Sequence[Case], folder: Path) -> int:
    """Plays each case in a job of its own; prints a row each; answers how many were wrong."""
    adopt_orphans()
    rows = []
    print("| framework | case | incidents | suspected after s | judged s later | verdict | suspects | evicts | wrong |")
    print("|---|---|---:|---:|---:|---|---|---|---|", flush=True)
    with server() as address:
        for framework in frameworks:
            for case in (case for case in cases if case.name not in framework.without):
                place = folder / f"{framework.name}-{case.name}"
                try:
                    row = _play(framework, case, place, address)
                except OurFault as error:
                    row = Row(framework.name, case, 0, wrong=(f"not played: {error}",))
                rows.append(row)
                print(_line(row), flush=True)
    return sum(bool(row.wrong) for row in rows)


def _play(framework: Framework, case: Case, place: Path, address: str) -> Row:
    ranks = case.ranks(framework.name)
    settings = AgentSettings()
    with Job(framework, place, address) as job:
        watches = watches_of(Announced(framework, job.pids), WORLD, settings)
        with Progress(job) as progress, ClusterGuard(watches, place, settings) as guard, ExitStack() as stack:
            time.sleep(TRAINED_S)
            before = len(guard.incidents())
            stack.enter_context(brought_about(job, case, ranks))
            until = time.monotonic() + (FAULT_S if case.fault else PHASE_S)
            first: Incident | None = None
            while time.monotonic() < until and not (case.fault and first is not None):
                time.sleep(TICK_S)
                first = next((one for one in guard.incidents()[before:] if one.kind), None)
            goes_on = not case.fault and ends(framework, case) and case.name != "compile"
            if goes_on and case.act:  # while whatever it reads and writes is still there
                job.release(ranks)
            stack.close()
            if goes_on:
                job.wait_on(case.name)
                time.sleep(AFTER_S)
            found = guard.incidents()
            first = first or next((one for one in found[before:] if one.kind), None)
            return _row(framework, case, found, first, progress, before)


def watches_of(proc: Announced, machines: int, settings: AgentSettings) -> dict[str, Watch]:
    """A watch for each machine."""
    table = ProcessTable(proc, frozenset([MACHINE]))
    return {
        machine: Watch(table, (MACHINE, machine), (), settings.link.forget_s)
        for machine in (f"node-{number}" for number in range(machines))
    }


def _row(
    framework: Framework, case: Case, found: Sequence[Incident], first: Incident | None, progress: Progress, before: int
) -> Row:
    """`before` incidents were opened while it still trained, which is wrong in itself."""
    wrong = [f"{before} incidents while it trained"] if before else []
    if first is None:
        return Row(framework.name, case, len(found), wrong=(*wrong, *(["never judged"] if case.fault else [])))
    verdict = from_json(json.loads(first.verdict))
    wrong += [*missed(verdict, expected_live(framework, case)), *([] if case.fault else [f"opened, as {first.why}"])]
    return Row(
        framework.name,
        case,
        len(found),
        first.why.removeprefix("suspected: "),
        first.began - progress.last(first.began),
        first.changed - first.began,
        str(verdict.kind),
        verdict.suspects[0].ranks if verdict.suspects else (),
        verdict.evict.machines,
        tuple(wrong),
    )


def _line(row: Row) -> str:
    suspected = "-" if row.suspected_s is None else f"{row.suspected_s:.1f}"
    judged = "-" if row.judged_s is None else f"{row.judged_s:.1f}"
    suspects = ",".join(map(str, row.suspects)) or "-"
    kind = "fault" if row.case.fault else "healthy"
    return (
        f"| {row.framework} | {row.case.name} ({kind}) | {row.incidents} | {suspected} | {judged} | {row.verdict or '-'} "
        f"| {suspects} | {' '.join(row.evicted) or '-'} | {'; '.join(row.wrong) or '-'} |"
    )
