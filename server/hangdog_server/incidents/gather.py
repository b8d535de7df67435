"""Gathering the answers to one capture order: who was asked, who answered which looks, and when to stop waiting.

Pure: a moment (`now`, seconds on any steady clock) comes in as a value, and every decision carries its reason.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import msgspec

from hangdog_models.collectives import INSPECTOR, RankCounters
from hangdog_models.counts import counted
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, owners_of, with_ends
from hangdog_models.numbers.wrong_number import WrongNumber
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.collectives import inspected_ranks
from hangdog_models.reading.collectives.library_counters import LibraryCounters, joined
from hangdog_models.snapshot import Account, Job, Round, Snapshot
from hangdog_models.stack import TRAINER, Missing, ProcessTrace, Reason
from hangdog_server.incidents import round_diff
from hangdog_server.protocol.rejections import RejectedCapture, Rejection

Ranks = tuple[Rank, ...]
_RANK, _RANK_AND_ROLE = attrgetter("rank"), attrgetter("rank", "role")
#: Looks of a large cluster come in for longer than patience lasts: while they still come, and not more than so long apart,
#: they are waited for. Seconds.
FLOW_S = 2.0
#: But no longer than the server needs for all that it asked for, several times a third of a millisecond for each. Seconds.
LOOK_S = 0.001
#: Messages one machine may send behind its last look: what libraries counted there, cut to the size of a message.
FURTHER = 64


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What is asked of whom: `asked` machines look `rounds` times; `absent` ones belong to the job but are gone.

    `world`: how many ranks the job has, where that is known; an answer that speaks of more is not believed in that.
    """

    order: str
    job: Job
    rounds: int
    interval_s: float
    asked: Mapping[str, Ranks]
    absent: Mapping[str, Ranks] = field(default_factory=dict)
    patience_s: float = 20.0
    rejoin_s: float = 3.0
    #: What libraries counted is waited for this long behind a machine's last look; its agent gives up on them after 10 s.
    counters_s: float = 12.0
    world: int | None = None

    @property
    def lasts_s(self) -> float:
        """How long the slowest answer is waited for, counted from the asking."""
        return (self.rounds - 1) * self.interval_s + self.patience_s

    @property
    def backlog_s(self) -> float:
        """How much longer looks are waited for that still come in: what takes less than a second patience covers."""
        return max(0.0, self.rounds * len(self.asked) * LOOK_S - 1.0)


class RoundAnswer(msgspec.Struct, frozen=True, gc=False):
    """One look of one machine; `unreadable` says why its message could not be read, and is empty when it could.

    `told` is what its libraries counted, in a last look or behind it (`round` is then no look's); `more` is to come.
    `findings` are those of its checks, `exits` the ends of its trainers in a crash report,
    `numbers` what is wrong in a report of that. `addresses` are those of its trainers.
    """

    machine: str
    round: int
    traces: tuple[ProcessTrace, ...] = ()
    last: bool = False
    unreadable: str = ""
    counters: LibraryCounters | None = None
    more: bool = False
    findings: tuple[Finding, ...] = ()
    exits: tuple[Exit, ...] = ()
    numbers: tuple[WrongNumber, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not everybody answered: `because` says it in one line, `until` is when waiting ends at the latest."""

    reason: str
    until: float


@dataclass(slots=True)
class Gathering:
    """The state of one gathering; only the functions of this module change it. `seen` counts the looks of each machine.

    `came` is when it was seen that more answers than `taken` were in; `owned` are the owners by so many answers.
    """

    plan: RoundPlan
    began: float
    answers: dict[tuple[str, int], RoundAnswer] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    counters: dict[str, dict[int, LibraryCounters]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    lost: dict[str, float] = field(default_factory=dict)
    looked: dict[str, float] = field(default_factory=dict)
    taken: int = 0
    came: float = -math.inf
    owned: tuple[int, dict[Rank, str]] | None = None


def take(gathering: Gathering, answer: RoundAnswer) -> str:
    """Takes an answer in, or says why it is refused (empty: it was taken)."""
    plan, key = gathering.plan, (answer.machine, answer.round)
    if answer.machine not in plan.asked:
        return Rejection(RejectedCapture.UNASKED, f"{answer.machine} was not asked")
    if answer.round >= plan.rounds + FURTHER * (answer.counters is not None):
        return Rejection(RejectedCapture.UNASKED, f"look {answer.round} was not asked for, only {plan.rounds}")
    if key in gathering.answers or answer.round in gathering.counters.get(answer.machine, ()):
        return Rejection(RejectedCapture.AGAIN, f"{answer.machine} answered look {answer.round} before")
    if answer.machine in gathering.done:
        return Rejection(RejectedCapture.LATE, f"{answer.machine} had given its last answer")
    if answer.counters is not None:
        gathering.counters.setdefault(answer.machine, {})[answer.round] = answer.counters
    if answer.round < plan.rounds:
        gathering.answers[key] = answer
        gathering.seen[answer.machine] = gathering.seen.get(answer.machine, 0) + 1
    if answer.last or (_looked(gathering, answer.machine) and not _awaited(gathering, answer.machine)):
        gathering.done.add(answer.machine)
    return ""


def lose(gathering: Gathering, machine: str, now: float) -> None:
    """Notes that the stream of a machine broke: it is waited for a short while, then no longer."""
    if _looked(gathering, machine):
        gathering.done.add(machine)  # what its libraries counted is lost with it: nobody looks again for that
    elif machine in gathering.plan.asked and machine not in gathering.done:
        gathering.lost.setdefault(machine, now)


def rejoin(gathering: Gathering, machine: str) -> bool:
    """Notes that a machine has a new stream; True says that it must be asked again: what the old one was told is lost."""
    gathering.lost.pop(machine, None)
    return machine in gathering.plan.asked and machine not in gathering.done


def further(gathering: Gathering, now: float) -> None:
    """One look more is asked of everybody; patience begins anew."""
    plan = gathering.plan = replace(gathering.plan, rounds=gathering.plan.rounds + 1)
    gathering.began = now - (plan.rounds - 1) * plan.interval_s
    gathering.done.clear()
    gathering.looked.clear()


def ready(gathering: Gathering, now: float) -> Snapshot | Waiting:
    """The snapshot, once everybody answered or nobody is worth waiting for any longer; else what is waited for."""
    plan = gathering.plan
    if len(gathering.answers) != gathering.taken:
        gathering.taken, gathering.came = len(gathering.answers), now
    deadline = gathering.began + plan.lasts_s
    deadline = max(deadline, min(gathering.came + FLOW_S, deadline + plan.backlog_s))
    waited: list[float] = []
    for machine in plan.asked.keys() - gathering.done:
        looked = _looked(gathering, machine)
        end = gathering.lost.get(machine, deadline) + plan.rejoin_s
        if looked:
            end = gathering.looked.setdefault(machine, now) + plan.counters_s
        if min(end, deadline) > now:
            waited.append(min(end, deadline))
        elif looked:
            gathering.done.add(machine)
    if not waited:
        return conclude(gathering)
    return Waiting(f"{len(gathering.done)} of {counted(len(plan.asked), 'machine')} answered", min(waited))


def _looked(gathering: Gathering, machine: str) -> bool:
    """Whether a machine has answered every look."""
    return gathering.seen.get(machine, 0) >= gathering.plan.rounds


def _awaited(gathering: Gathering, machine: str) -> bool:
    """Whether a machine that looked said that it would tell more."""
    return gathering.answers[machine, gathering.plan.rounds - 1].more


def owners(gathering: Gathering) -> dict[Rank, str]:
    """The machine of each rank, by the answers so far."""
    if gathering.owned is None or gathering.owned[0] != len(gathering.answers):
        plan = gathering.plan
        stated = ((answer.machine, answer.traces) for answer in gathering.answers.values())
        gathering.owned = len(gathering.answers), _machines_of_ranks(plan.asked, plan.absent, stated, plan.world)
    return gathering.owned[1]


def placement(gathering: Gathering) -> dict[str, Ranks]:
    """The ranks of each machine, machines by name, each rank once."""
    found: dict[str, list[Rank]] = {}
    for rank, machine in sorted(owners(gathering).items()):
        found.setdefault(machine, []).append(rank)
    return {machine: tuple(ranks) for machine, ranks in sorted(found.items())}


def conclude(gathering: Gathering) -> Snapshot:
    """The snapshot of what is in by now: every expected rank is in every look, as a trace or as a reason."""
    plan, owner = gathering.plan, owners(gathering)
    counted = joined(gathering.counters, owner)
    numbers = sorted({number for _, number in gathering.answers}) or [0]
    rounds: list[Round] = []
    claims: dict[tuple[str, str], set[Rank]] = {}
    pids: dict[Rank, int] = {}
    answered: dict[str, set[int]] = {}
    for machine, number in gathering.answers:
        answered.setdefault(machine, set()).add(number)
    for number in numbers:
        traces = _look(gathering, owner, answered, number, claims)
        rounds.append(Round(number, tuple(round_diff.restarted(traces, pids))))
    found = sorted([key for key, answer in gathering.answers.items() if answer.findings])
    unreadable = {key: answer.unreadable for key, answer in gathering.answers.items() if answer.unreadable}
    return Snapshot(
        job=plan.job,
        rounds=tuple(rounds),
        interval_s=plan.interval_s if plan.rounds > 1 else None,
        counters=counted.counters,
        progress=counted.progress,
        ras=counted.ras,
        findings=(
            *with_ends(
                [finding for key in found for finding in gathering.answers[key].findings],
                owners_of((answer.machine, answer.addresses) for answer in gathering.answers.values()),
            ),
            *_left_behind(counted.counters, plan.job.stalled_s or 0.0, owner),
        ),
        exits=tuple(
            one
            for answer in gathering.answers.values()
            for one in answer.exits
            if owner.get(one.rank) == answer.machine
        ),
        numbers=tuple(
            one
            for _, answer in sorted(gathering.answers.items())
            for one in answer.numbers
            if one.rank is None or owner.get(one.rank) == answer.machine
        ),
        account=Account(
            files_read=len(gathering.answers) - len(unreadable),
            unreadable={f"{machine}, look {number}": why for (machine, number), why in sorted(unreadable.items())}
            | dict(counted.unreadable),
            notes=(*_odd(gathering, claims, numbers), *counted.notes),
        ),
    )


def _left_behind(counters: Sequence[RankCounters], stood_s: float, owner: Mapping[Rank, str]) -> Iterator[Finding]:
    """Ranks that alone lack an operation by NCCL Inspector, if its files on all ranks are of when the job stood still."""
    inspected = [one for one in counters if one.source == INSPECTOR]
    if inspected and all(one.age_s < stood_s for one in inspected):
        for rank, finding in inspected_ranks.left_behind(inspected).items():
            yield replace(finding, machine=owner.get(rank, ""))


def _look(
    gathering: Gathering,
    owner: Mapping[Rank, str],
    answered: Mapping[str, set[int]],
    number: int,
    claims: dict[tuple[str, str], set[Rank]],
) -> list[ProcessTrace]:
    """The traces of one look by rank and role, and a reason for each rank that is not in it; of a rank and role that an
    answer tells twice the first stands. `answered`: the looks of each machine. `claims` takes in the ranks that a machine
    reports of another one, who is believed.
    """
    trainers: dict[Rank, ProcessTrace] = {}
    others: dict[tuple[Rank, str], ProcessTrace] = {}
    for machine, numbers in answered.items():
        if number in numbers:
            for trace in gathering.answers[machine, number].traces:
                rank = trace.rank
                if rank not in owner:
                    claims.setdefault((machine, ""), set()).add(rank)
                elif owner[rank] != machine:
                    claims.setdefault((machine, owner[rank]), set()).add(rank)
                elif trace.role == TRAINER:
                    trainers.setdefault(rank, trace)
                else:
                    others.setdefault((rank, trace.role), trace)
    for rank, machine in owner.items():
        if rank not in trainers:
            absence = _absence(gathering, machine, answered.get(machine, set()), number)
            trainers[rank] = ProcessTrace(rank, missing=absence)
    if not others:
        return sorted(trainers.values(), key=_RANK)
    return sorted([*others.values(), *trainers.values()], key=_RANK_AND_ROLE)


def _absence(gathering: Gathering, machine: str, answered: set[int], number: int) -> Missing:
    """Why a machine's rank is not in a look; `answered`: the looks of the machine."""
    plan = gathering.plan
    if machine not in plan.asked:
        return Missing(Reason.NO_AGENT, f"the agent of {machine} is not connected")
    answer = gathering.answers.get((machine, number))
    if answer is not None:
        words = f"is not readable: {answer.unreadable}" if answer.unreadable else "does not speak of this rank"
        return Missing(Reason.NO_EVIDENCE, f"the answer of {machine} {words}")
    if any(round_ > number for round_ in answered):
        return Missing(Reason.NO_AGENT, f"{machine} did not answer look {number}, but a later one")
    if machine in gathering.done:
        return Missing(Reason.NO_EVIDENCE, f"{machine} ended its answers before look {number}")
    before = f" after look {max(answered)}" if answered else ""
    if machine in gathering.lost:
        return Missing(Reason.NO_AGENT, f"the agent of {machine} was lost while it captured{before}")
    if answered:
        return Missing(Reason.TIMED_OUT, f"{machine} fell silent{before} for {plan.patience_s:g} s")
    return Missing(Reason.NO_AGENT, f"{machine} did not answer within {plan.lasts_s:g} s")


def _odd(gathering: Gathering, claims: Mapping[tuple[str, str], set[Rank]], numbers: list[int]) -> Iterator[str]:
    """Remarks: looks nobody answered, ranks that two machines claim, and promises that were not kept."""
    silent = [str(number) for number in range(gathering.plan.rounds) if number not in numbers]
    if silent:
        yield f"no machine answered look {', '.join(silent)}: judged without"
    for machine in gathering.plan.asked:
        if machine not in gathering.counters and _looked(gathering, machine) and _awaited(gathering, machine):
            yield f"what libraries counted on {machine} did not come in time"
    for (machine, believed), ranks in sorted(claims.items()):
        if believed:
            yield f"{machine} and {believed} both report rank {format_ranks(ranks)}: {believed} is believed"
        else:
            yield f"{machine} reports rank {format_ranks(ranks)} of a job of {counted(gathering.plan.world or 0, 'rank')}"


def _machines_of_ranks(
    asked: Mapping[str, Ranks],
    absent: Mapping[str, Ranks],
    stated: Iterable[tuple[str, Iterable[ProcessTrace]]],
    world: int | None,
) -> dict[Rank, str]:
    """The machine of each rank: the first of `asked` that announced it; else one that captured it, else spoke of it, else the
    gone one. No answer makes a rank of one that a job of `world` ranks does not have.

    `asked` and `absent` are what machines announced that were asked, and that are gone; of several that announced one rank
    the first in order has it (`claims`), whatever it and the others answer. `said` is what they answered.
    """
    found: dict[Rank, str] = {}
    for machine, ranks in asked.items():
        for rank in ranks:
            found.setdefault(rank, machine)
    captured: dict[str, set[Rank]] = {}
    named: dict[str, set[Rank]] = {}
    for machine, traces in stated:
        odd = [trace for trace in traces if trace.rank not in found and (world is None or trace.rank < world)]
        if odd:
            named.setdefault(machine, set()).update(trace.rank for trace in odd)
            seen = (trace.rank for trace in odd if trace.threads or trace.missing is None)
            captured.setdefault(machine, set()).update(seen)
    for claims in (captured, named, absent):
        for machine in sorted(claims):
            for rank in claims[machine]:
                found.setdefault(rank, machine)
    return found
