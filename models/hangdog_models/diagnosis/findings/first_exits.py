"""How a job's trainers ended: with which rank a crash began, and that the others failed because of it."""

import signal
from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.counts import counted
from hangdog_models.diagnosis.findings import logged_ends
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.exits import OWN, SIGNALS, Exit, failed, first_failed, signal_name
from hangdog_models.findings import Finding, Impact
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import JobCrash, Kind, VerdictReason

KILLED_FIRST = likelihood("killed_first")
GONE_AS_OTHERS_FELL = likelihood("gone_as_others_fell")
KILLED_FOR_MEMORY_S = likelihood("killed_for_memory_s")
SOURCE = "exit"
#: The code of a rank that was killed by an unknown sender.
KILLED = "killed"
#: The kernel's term for a process that it killed for memory.
OUT_OF_MEMORY = "out of memory"


def with_first_failure(snapshot: Snapshot, topology: Topology) -> Snapshot:
    """The snapshot with the ends of its trainers among its findings.

    Errors of ranks that failed later are consequences.
    """
    first = first_failed(snapshot.exits, snapshot.findings)
    if first is None:
        silent = logged_ends.silent_end(snapshot, topology)
        return snapshot if silent is None else replace(snapshot, findings=(silent, *snapshot.findings))
    own = [one for one in snapshot.findings if one.rank == first.rank and one.impact in OWN]
    lead = own[0] if own else _by_status(first, snapshot, topology)
    rest = _consequences([one for one in snapshot.findings if not own or one is not lead], lead, snapshot.exits)
    lead = replace(lead, what=f"{lead.what}; {_before_others(first, snapshot.exits)}")
    return replace(snapshot, findings=(lead, *rest))


def crash_of(snapshot: Snapshot, topology: Topology) -> JobCrash | None:
    """How the job ended, by a snapshot `with_first_failure`; None where neither exits nor logs tell of an end."""
    if not snapshot.exits:
        return logged_ends.crash(snapshot, topology)
    first = first_failed(snapshot.exits, snapshot.findings)
    if first is None:
        return JobCrash()
    return JobCrash(first.rank, topology.machine(first.rank) or "", _how(first, snapshot.findings[0]))


def _how(first: Exit, lead: Finding) -> str:
    if lead.source != SOURCE:
        return f"with {lead.code}"
    if lead.code == OUT_OF_MEMORY:
        return "for lack of memory"
    if first.status is not None and first.status < 0:
        return f"by {signal_name(-first.status)}"
    return f"with {lead.code}"


def explain(snapshot: Snapshot, topology: Topology) -> list[Hypothesis]:
    """Hypotheses on ranks and machines known only by their own end or the others' ends."""
    return [*_killed(snapshot, topology), *_gone(snapshot, topology)]


def _gone(snapshot: Snapshot, topology: Topology) -> list[Hypothesis]:
    """The one machine whose agent is gone, if all others failed because they lost a connection."""
    if first_failed(snapshot.exits, snapshot.findings) is not None or not failed(snapshot.exits, snapshot.findings):
        return []
    absent = {
        trace.rank
        for round_ in snapshot.rounds[-1:]
        for trace in round_.traces
        if trace.missing is not None and trace.missing.reason is Reason.NO_AGENT
    }
    gone = [(name, ranks) for name, ranks in topology.machines.items() if ranks and absent.issuperset(ranks)]
    if len(gone) != 1:
        return []
    ((name, ranks),) = gone
    text = f"{name} is gone, agent and all, and every rank that failed elsewhere had lost a connection"
    return [
        Hypothesis(
            Kind.MACHINE,
            odds("gone while the others fell", GONE_AS_OTHERS_FELL),
            ranks,
            (name,),
            (VerdictReason("machine-gone", text),),
            hearsay=True,
        )
    ]


def _killed(snapshot: Snapshot, topology: Topology) -> list[Hypothesis]:
    """That it began with a killed rank. The sender is unknown, so the cause stays open and no machine is at fault."""
    ends = ((SOURCE, KILLED), (logged_ends.SOURCE, logged_ends.SILENT))
    killed = [one for one in snapshot.findings if (one.source, one.code) in ends and one.rank is not None]
    return [
        Hypothesis(
            Kind.UNDETERMINED,
            odds(f"rank {one.rank} ended before the others", KILLED_FIRST),
            (one.rank,),
            (topology.machine(one.rank) or f"rank {one.rank}",),
            (VerdictReason("killed", f"rank {one.rank}: {one.what}"),),
        )
        for one in killed
        if one.rank is not None
    ]


def _by_status(first: Exit, snapshot: Snapshot, topology: Topology) -> Finding:
    """What the exit status says of a rank that left no error message."""
    machine = topology.machine(first.rank) or ""
    status = first.status
    if status == -signal.SIGKILL and (first.oom or _killed_for_memory(snapshot, machine)):
        code, impact = OUT_OF_MEMORY, Impact.PROGRAM
        what = "it was killed for using more memory than its container or control group may"
    elif status == -signal.SIGKILL:
        code, impact = KILLED, Impact.VICTIM
        what = "it was killed (SIGKILL), and nothing that was read says by whom: a person, the scheduler, or lack of memory"
    elif status is not None and status < 0:
        code, impact, why = SIGNALS.get(str(status), ("ended by a signal", Impact.PROGRAM, signal_name(-status)))
        what = f"it was ended by {why}"
    else:
        code, impact = f"exit code {status}", Impact.PROGRAM
        what = f"it ended itself with exit code {status}, and left no words that could be read"
    return Finding(SOURCE, code, impact, what, machine, first.rank, at_s=first.at_s)


def _killed_for_memory(snapshot: Snapshot, machine: str) -> bool:
    return any(
        one.code == OUT_OF_MEMORY and one.impact is Impact.PROGRAM and one.machine == machine
        and one.age_s is not None and one.age_s <= KILLED_FOR_MEMORY_S
        for one in snapshot.findings
    )  # fmt: skip


def _before_others(first: Exit, exits: Sequence[Exit]) -> str:
    later = [one.at_s for one in exits if one.rank != first.rank and one.at_s >= first.at_s]
    ran = f" after {first.ran_s:.0f} s" if first.ran_s else ""
    if not later:
        return f"it ended{ran}"
    return f"it ended{ran}, {min(later) - first.at_s:.1f} s before the next of {counted(len(exits), 'rank')}"


def _consequences(findings: Sequence[Finding], lead: Finding, exits: Sequence[Exit]) -> list[Finding]:
    """The findings, with other errors of later ranks marked as a victim's; equal errors stay."""
    ended = {one.rank: one.at_s for one in exits}
    began = ended.get(lead.rank, 0.0) if lead.rank is not None else 0.0
    found = []
    for one in findings:
        later = one.rank is not None and one.rank != lead.rank and ended.get(one.rank, began) >= began
        same = (one.code, one.what) == (lead.code, lead.what)
        if later and one.impact is Impact.PROGRAM and not same:
            one = replace(one, impact=Impact.VICTIM, what=f"{one.what}; after rank {lead.rank} had ended")
        found.append(one)
    return found
