"""What a capture brought, as people and programs are told it: whom it read, and why not the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hangdog.capture.job_choice import RIGHTS
from hangdog.capture.local_capture import JobCapture, spelled
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.discovery.redact import command_line
from hangdog_agent.discovery.watch import LocalJob, jobs
from hangdog_models.counts import counted
from hangdog_models.ranks import format_ranks
from hangdog_models.stack import ProcessTrace, Reason

SCHEMA = "hangdog.capture/1"
#: What to do about a reason, where something can be done before the next capture.
_REMEDIES = {
    Reason.NOT_PERMITTED: RIGHTS,
    Reason.TRACED: "end gdb, strace or the other tool that holds it",
    Reason.TOOL_MISSING: "install py-spy beside hangdog: pip install py-spy==0.4.3",
    Reason.TIMED_OUT: "capture again; the machine may be overloaded",
}


@dataclass(frozen=True, slots=True)
class Unread:
    """Processes that were not read in full at the last look, for one reason; `example` is one of their messages."""

    reason: Reason
    processes: tuple[ProcessTrace, ...]
    example: str

    @property
    def remedy(self) -> str:
        return _REMEDIES.get(self.reason, "")

    def lines(self) -> Iterator[str]:
        """As people are told it."""
        ranks = sorted({trace.rank for trace in self.processes})
        some = all(trace.threads for trace in self.processes)
        what = "read with a reservation" if some else "not read"
        whose = counted(len(self.processes), "process", "processes")
        yield f"{whose} of {spelled(ranks)} {what}: {self.reason}: {self.example}"
        if self.remedy:
            yield f"  {self.remedy}"


def unread(capture: JobCapture) -> tuple[Unread, ...]:
    """Who was not read in full at the last look, by reason; helper programs that are no Python have nothing to read."""
    by_reason: dict[Reason, list[ProcessTrace]] = {}
    for trace in capture.snapshot.rounds[-1].traces if capture.snapshot.rounds else ():
        if trace.missing is not None and trace.missing.reason is not Reason.NOT_PYTHON:
            by_reason.setdefault(trace.missing.reason, []).append(trace)
    return tuple(
        Unread(reason, tuple(traces), traces[0].missing.message if traces[0].missing else "")
        for reason, traces in sorted(by_reason.items())
    )


def as_json(capture: JobCapture, output: str, files: int) -> dict[str, object]:
    """The summary as one JSON object."""
    snapshot, layout = capture.snapshot, capture.layout
    last = snapshot.rounds[-1].traces if snapshot.rounds else ()
    return {
        "schema": SCHEMA,
        "machine": capture.machine,
        "job": snapshot.job.id,
        "world_size": layout.world_size,
        "ranks": format_ranks(sorted({trace.rank for trace in last})),
        "looks": len(snapshot.rounds),
        "interval_s": snapshot.interval_s,
        "processes": len(last),
        "read": sum(bool(trace.threads) for trace in last),
        "counters": len(capture.counters),
        "findings": len(snapshot.findings),
        "unread": [
            {
                "rank": trace.rank, "role": trace.role, "pid": trace.pid,
                "reason": trace.missing.reason, "message": trace.missing.message, "do": one.remedy,
            }
            for one in unread(capture) for trace in one.processes if trace.missing is not None
        ],
        "remarks": [*snapshot.account.notes, *capture.remarks],
        "output": output,
        "files": files,
    }  # fmt: skip


def listing(members: Sequence[RankProcesses]) -> dict[str, object]:
    """Whom a capture would look at, as one JSON object."""
    return {"schema": SCHEMA, "jobs": [_listed(job, members) for job in jobs(members)]}


def listed_lines(members: Sequence[RankProcesses]) -> Iterator[str]:
    """The same for people."""
    for job in jobs(members):
        world = f" of {job.world_size}" if job.world_size else ""
        yield f"job {job.key}: {spelled(job.ranks)}{world}"
        own = [member for member in members if member.key == job.key]
        for member in (member for member in own if member.kind is ProcessRole.TRAINER):
            children = sum(one.rank == member.rank for one in own) - 1
            beside = f", {counted(children, 'other process', 'other processes')}" if children else ""
            yield f"  rank {member.rank}: process {member.process.pid}{beside}: {command_line(member.process.arguments)}"
        yield from (f"  {note}" for note in job.notes)


def _listed(job: LocalJob, members: Sequence[RankProcesses]) -> dict[str, object]:
    return {
        "job": job.name,
        "owner": str(job.owner),
        "world_size": job.world_size or None,
        "ranks": format_ranks(job.ranks),
        "topology": job.topology,
        "notes": list(job.notes),
        "processes": [
            {
                "rank": member.rank, "kind": member.kind, "pid": member.process.pid, "found_by": member.source,
                "command": command_line(member.process.arguments),
            }
            for member in members if member.key == job.key
        ],
    }  # fmt: skip
