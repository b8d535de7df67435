"""The end of a job as its launcher's or scheduler's log tells it, where nobody was there to see it."""

import re
from collections.abc import Mapping

from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import JobCrash, VerdictReason

SOURCE = "log"
#: The code of a rank that left no last word where all others lost a connection, and the code of these.
SILENT, LOST = "ended without a word", "connection lost"
#: How a rank ended, by the code under which its launcher's word stands.
_HOW: Mapping[str, str] = {
    "killed": "by SIGKILL", "segmentation fault": "by SIGSEGV", "bus error": "by SIGBUS", "illegal instruction": "by SIGILL",
    "arithmetic error": "by SIGFPE", "aborted": "by SIGABRT", "first observed failure": "of all that its launcher saw",
    "ended with an error": "with an error of its own", "worker vanished": "as Ray saw it", SILENT: "without a last word",
}  # fmt: skip
#: Codes of an end that is told of the whole job; and of one that was ordered, which is no crash.
_OF_ALL = frozenset({"node failure somewhere", "launcher lost a daemon", "store lost"})
_ORDERED = frozenset({"preempted", "time limit", "cancelled", "ended by the launcher"})
#: Codes by which a job hung before it ended.
_HUNG = frozenset({"watchdog time-out", "heartbeat monitor", "monitored barrier", "store time-out", "desync report"})
#: An exception that ended a program stands under its own name.
_EXCEPTION = re.compile(r"[A-Z]\w{0,120}(?:Error|Exception|Failure|Fault)")


def ended(snapshot: Snapshot) -> bool:
    """Whether the job has ended: its trainers' exits are known, or its logs tell of the end and there is no stack."""
    return bool(snapshot.exits) or (not _seen(snapshot) and any(map(_is_end, snapshot.findings)))


def crash(snapshot: Snapshot, topology: Topology) -> JobCrash | None:
    """How the job ended by its logs; None where they tell of no end, of an ordered one alone, or where it hung before.

    Without a rank where none or several are named.
    """
    ends = _unordered(snapshot)
    if not ended(snapshot) or not ends or any(one.code in _HUNG for one in snapshot.findings):
        return None
    named = sorted((one for one in ends if one.code in _HOW), key=lambda one: (not one.machine, one.code, one.what))
    ranks = {one.rank for one in named if one.rank is not None}
    machines = {one.machine for one in named if one.machine}
    if len(ranks) > 1 or (not ranks and len(machines) != 1):
        return JobCrash()
    first = next(one for one in named if one.rank in ranks or (not ranks and one.machine))
    machine = topology.machine(first.rank) if first.rank is not None else None
    return JobCrash(first.rank, machine or first.machine, _HOW[first.code])


def silent_end(snapshot: Snapshot, topology: Topology) -> Finding | None:
    """The one rank that left no last word where the logs of all others end with a lost connection; None if there is none.

    Whoever fails by an error says so. Who is killed does not, and all others lose it. Its own log must have been read: one that
    is merely not there tells nothing.
    """
    known = [one for one in snapshot.findings if one.impact is not Impact.TELLS_NOTHING]
    read = {*snapshot.account.quiet, *(one.rank for one in snapshot.findings if one.source == SOURCE)}
    lost = {one.rank for one in known if (one.source, one.code, one.impact) == (SOURCE, LOST, Impact.VICTIM)}
    silent = [rank for rank in range(topology.world_size) if Rank(rank) not in lost]
    alone = len(silent) == 1 and len(lost) > 1 and silent[0] in read
    if snapshot.exits or _seen(snapshot) or not alone or any(one.rank not in lost or one.code != LOST for one in known):
        return None
    what = "it left no last word, and all others lost a connection: it may have been killed, or its machine is gone"
    rank = Rank(silent[0])
    return Finding(SOURCE, SILENT, Impact.VICTIM, what, topology.machine(rank) or "", rank)


def to_read(snapshot: Snapshot, topology: Topology) -> list[VerdictReason]:
    """What is left to read of a job that has ended, best first; each begins with what it is."""
    found: dict[str, VerdictReason] = {}
    for one in sorted(snapshot.findings, key=repr):
        machine = one.machine or (topology.machine(one.rank) or "" if one.rank is not None else "")
        if one.code in ("killed", "worker vanished", SILENT):
            text = f"the kernel log of {machine or 'its machine'} and what the scheduler says: they tell who killed it, and whether for memory"
            found.setdefault(one.code, VerdictReason("collect-who-killed", text))
        elif one.code == "node failure somewhere":
            text = "sinfo -R and the log of slurmctld: they name the machine"
            found.setdefault(one.code, VerdictReason("collect-scheduler-log", text))
        elif one.code == "store lost":
            at = f" on {one.peers[0]}" if one.peers else ""
            text = f"the log of rank 0, which mostly serves the job's store{at}: how it ended"
            found.setdefault(one.code, VerdictReason("collect-first-log", text))
        elif one.code in ("first observed failure", "aborted", "ended with an error") and (
            one.rank is not None or machine
        ):
            whose = ranks_of([one.rank]) if one.rank is not None else f"the process on {machine}"
            text = f"the log of {whose} before its end: its own error stands there"
            found.setdefault(one.code, VerdictReason("collect-first-log", text))
    hung = any(one.code in _HUNG for one in snapshot.findings)
    if hung:
        text = "stacks, when it hangs again and before its time-out ends it: they show who waits for whom (hangdog capture)"
        found["hung"] = VerdictReason("collect-stacks", text)
    ends = _unordered(snapshot)
    if not found and ends and all(one.impact is Impact.VICTIM for one in ends):
        text = "the logs of all ranks around the end: the first error that speaks of no other rank says why"
        found["victims"] = VerdictReason("collect-first-log", text)
    return list(found.values())


def _unordered(snapshot: Snapshot) -> list[Finding]:
    return [one for one in snapshot.findings if _is_end(one) and one.code not in _ORDERED]


def _is_end(finding: Finding) -> bool:
    raised = finding.source == SOURCE and _EXCEPTION.fullmatch(finding.code) is not None
    return raised or finding.code in _HOW or finding.code in _OF_ALL or finding.code in _ORDERED


def _seen(snapshot: Snapshot) -> bool:
    return any(trace.threads for round_ in snapshot.rounds for trace in round_.traces)
