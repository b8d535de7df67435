"""Fail-slow: which machine a moving job waits for again and again, decided in as few rounds as possible."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from hangdog_models.counts import counted
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.stragglers import lateness, sequential_test
from hangdog_models.diagnosis.stragglers.lateness import IN_TIME, LATE, Ballot
from hangdog_models.diagnosis.stragglers.sequential_test import Pattern
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind, VerdictReason

FALSE_ALARMS = likelihood("false_alarms")
GIVEN_UP = likelihood("given_up")
#: Wald's bounds: with odds above the first a degrader is named; below the second the search ends.
NAMED_FROM, DROPPED_FROM = (1 - GIVEN_UP) / FALSE_ALARMS, GIVEN_UP / (1 - FALSE_ALARMS)
#: After so many rounds it is decided. ByteRobust (SOSP 2025) always takes this many, ten seconds apart. Where light
#: rounds come more often, as many as fit into its fifty seconds may be requested.
ROUNDS = 5
#: The dimension along which experts are spread, and the note where their work may be uneven.
EXPERTS = "ep"
MORE_TOKENS = VerdictReason(
    "experts-may-have-more",
    "others wait for it in exchanges between experts: a slow device looks like experts that are given more tokens",
)
#: The note where it is a guess which ranks wait.
NO_RULE_KNOWS = VerdictReason(
    "frames-unknown",
    "no rule knows the frames: those who stand at one place on several machines are taken to wait there",
)
#: The note where who is late waits for its own data.
ITS_DATA = VerdictReason(
    "waits-for-its-data",
    "it waits for its own data loader: its samples, its code or its storage may be slow, and its machine seldom is",
)
DEGRADER_PRIOR = by_cause("degrader_prior")
SECOND_DEGRADER = likelihood("second_degrader")
UNEVEN_MACHINES = likelihood("uneven_machines")
ROLE_HAS_MORE = likelihood("role_has_more")
SERVICE_SOUND = likelihood("service_sound")
SERVICE_SLOW = likelihood("service_slow")
STRAGGLER_PRIOR = likelihood("straggler_prior")
LATE_UNPROVEN = likelihood("late_unproven")
LATE_SHOWN = likelihood("late_shown")
LATE_DECIDES = likelihood("late_decides")


@dataclass(frozen=True, slots=True)
class Degrader:
    """A machine, or the machines of one group (`dim`), that the job waits for; `ranks` are the late ones.

    It was late in `late` of `looks` rounds. Where the machine is unknown, `machines` is empty.
    """

    ranks: tuple[Rank, ...]
    machines: tuple[str, ...]
    probability: float
    late: int
    looks: int
    dim: str | None = None


@dataclass(frozen=True, slots=True)
class Slowness:
    """What the rounds show of a moving job.

    - `kind`: slow with `suspects`, most probable first; dependency; none; or undetermined while more rounds may decide.
    - `sound`: how probable it is that nothing slows the job down (0..1).
    - `looks_used`: the rounds that were needed.
    - `more`: further rounds that may be needed to decide; 0 when decided.
    - `surest`: the highest probability of any suspect, however sure other evidence is. It covers what only this can
      show.
    """

    kind: Kind
    suspects: tuple[Degrader, ...]
    looks_used: int
    reasons: tuple[VerdictReason, ...]
    sound: float
    more: int = 0
    surest: float = 1.0

    @property
    def machines(self) -> dict[str, float]:
        """Each suspected machine, with the probability that it is a degrader."""
        return {machine: suspect.probability for suspect in reversed(self.suspects) for machine in suspect.machines}


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The odds that there is a degrader (`total`), those of each that stands out, and notes on what blames none.

    `left`: the part of the total that uneven work does not explain.
    """

    total: float
    left: float
    named: tuple[tuple[float, Degrader], ...]
    notes: tuple[VerdictReason, ...]


def find(looks: Sequence[Look], topology: Topology, *, rounds: int = ROUNDS, stepped: Sequence[bool] = ()) -> Slowness:
    """The degrader a moving job waits for, by `rounds` rounds at most. Of more rounds the last count. Linear in the
    ranks.

    `stepped`: whether counters or steps show that the job moved before each round but the first. Then one with equal call
    sites counts as well, which otherwise may be the same stall captured again.
    """
    window = looks[-rounds:]
    stepped = stepped[max(0, len(looks) - rounds) :]
    kept = lateness.moments(window, topology, stepped)
    ballots = lateness.ballots(kept, topology)
    service = 1.0
    for used in range(1, len(kept) + 1):
        weighed = _weigh(ballots, used, topology, NAMED_FROM)
        proven = tuple(degrader for odds, degrader in weighed.named if odds >= SECOND_DEGRADER)
        if proven and sum(odds for odds, _ in weighed.named) >= NAMED_FROM:
            reasons = tuple(_reason(suspect, kept) for suspect in proven)
            if any(_exchanges(suspect, kept[:used], topology) for suspect in proven):
                reasons, proven = (*reasons, MORE_TOKENS), tuple(map(_unproven, proven))
            elif all(_loads(suspect, kept[:used]) for suspect in proven):
                reasons, proven = (*reasons, ITS_DATA), tuple(map(_unproven, proven))
            elif lateness.guessed(kept[:used], topology):
                reasons, proven = (*reasons, NO_RULE_KNOWS), tuple(map(_unproven, proven))
            return Slowness(Kind.SLOW, proven, used, reasons, 1 - proven[0].probability)
        waiting = lateness.served(kept[used - 1], topology)
        service *= SERVICE_SLOW / SERVICE_SOUND if waiting else (1 - SERVICE_SLOW) / (1 - SERVICE_SOUND)
        if service >= NAMED_FROM:
            shared = _shared(waiting, kept[used - 1], topology)
            return Slowness(Kind.DEPENDENCY, (), used, (shared,), 1 / (1 + LATE_UNPROVEN))
        if weighed.total <= DROPPED_FROM and service <= DROPPED_FROM:
            change = VerdictReason("nobody-waited-for-more", "those that the others wait for change from look to look")
            return Slowness(Kind.NONE, (), used, (change,), 1 / _all(weighed.total))
    return _likely(lateness.until_still(window, topology, stepped), topology, max(0, rounds - len(window)))


def _likely(looks: Sequence[Look], topology: Topology, more: int) -> Slowness:
    """The result where no degrader is proven: the probability of each, and that there is none.

    A stall that is over may fill several rounds. Together they show for how much of the time the others waited, so all
    count.
    """
    weighed = _weigh(lateness.ballots(looks, topology), len(looks), topology, 0.0)
    odds = _all(weighed.left)
    most = LATE_UNPROVEN / (1 + LATE_UNPROVEN)
    shares = [STRAGGLER_PRIOR * LATE_SHOWN * own / odds for own, _ in weighed.named]
    left = most / max(most, sum(shares))  # all together are no surer than one may be
    suspects = tuple(
        replace(one, probability=share * left) for share, (_, one) in zip(shares, weighed.named, strict=True)
    )
    sound = max(1 / odds, 1 - most)
    reasons = (*(_reason(suspect, looks) for suspect in suspects), *weighed.notes)
    if suspects and sound <= 1 - LATE_DECIDES:
        return Slowness(Kind.SLOW, suspects, len(looks), reasons, sound, more)
    reasons = reasons or (VerdictReason("nobody-waited-for-more", "no machine is waited for more often than its like"),)
    if more:
        ask = f"collect next: up to {more} further looks, seconds apart, to see who is waited for in each"
        reasons = (*reasons, VerdictReason("collect-looks", ask))
        return Slowness(Kind.UNDETERMINED, suspects, len(looks), reasons, sound, more)
    return Slowness(Kind.NONE, suspects, len(looks), reasons, sound)


def _all(total: float) -> float:
    """The odds of all possibilities relative to a sound job: 1, a degrader that rounds do not show, one that they do."""
    return 1 + STRAGGLER_PRIOR * (1 - LATE_SHOWN + LATE_SHOWN * total)


def _exchanges(suspect: Degrader, looks: Sequence[Look], topology: Topology) -> bool:
    """Whether others mostly wait for it in exchanges between experts: its own experts may get more work than theirs."""
    peers = {peer for rank in suspect.ranks for peer in topology.group(EXPERTS, rank) or ()}
    waits = [
        any(look[peer].dim == EXPERTS and look[peer].waits for peer in peers.intersection(look))
        for look in looks
        if any(rank in look and look[rank].wait in (Wait.NONE, Wait.SOME) for rank in suspect.ranks)
    ]
    return 2 * sum(waits) > len(waits)


def _loads(suspect: Degrader, looks: Sequence[Look]) -> bool:
    """Whether it mostly waits for its data loader where it is late."""
    late = [look[rank].activity for look in looks for rank in suspect.ranks if rank in look and not look[rank].waits]
    return 2 * sum(activity is Activity.DATALOADER for activity in late) > len(late)


def _unproven(suspect: Degrader) -> Degrader:
    """A degrader that healthy jobs resemble more often than false alarms may: named, but never sure enough to evict."""
    return replace(suspect, probability=min(suspect.probability, LATE_UNPROVEN / (1 + LATE_UNPROVEN)))


def _weigh(ballots: Sequence[Ballot], used: int, topology: Topology, enough: float) -> _Weighed:
    """The odds that there is a degrader, and the degraders where these odds are `enough`.

    All candidates of one sort have the same prior, and all priors add up to 1. So over healthy jobs with known rates
    the odds have a mean of 1, however many candidates there are. They exceed b at most once in b jobs.
    """
    total = 0.0
    groups = sum(ballot.dim not in DEGRADER_PRIOR for ballot in ballots)
    share = {
        ballot.dim: DEGRADER_PRIOR.get(ballot.dim) or (1 - sum(DEGRADER_PRIOR.values())) / groups for ballot in ballots
    }
    whole = sum(share.values())
    strong: list[tuple[float, Ballot, int]] = []
    for ballot in reversed(ballots):  # ranks, which come first, last: their ratios are needed again
        patterns, ratio = sequential_test.ratios(ballot, used)
        prior = share[ballot.dim] / whole / len(ballot.kinds)
        odds = {pattern: prior * value for pattern, value in ratio.items()}
        total += sum(odds[pattern] * count for pattern, count in patterns.items())
        state_out = {pattern for pattern, value in odds.items() if value > 1}
        if state_out:
            votes = zip(ballot.kinds, *ballot.votes[:used], strict=True)
            strong += [(odds[pattern], ballot, at) for at, pattern in enumerate(votes) if pattern in state_out]
    if total < enough:
        return _Weighed(total, min(1.0, total), (), ())
    late = {ballot.ranks(at)[0] for _, ballot, at in strong if ballot.dim == "rank"}
    alike = _alike(late, ballots[0], ratio, used, prior, topology)
    notes = [
        VerdictReason(
            "work-uneven", f"ranks {format_ranks(group)} do the same work and are late together: it is their work"
        )
        for group in alike
    ]
    theirs = {rank for group in alike for rank in group}
    apart = [entry for entry in strong if not theirs.intersection(entry[1].ranks(entry[2]))]
    named = _named(apart, used, topology)
    if len(named) > UNEVEN_MACHINES:
        text = f"{len(named)} machines are late again and again: work unevenly spread, rather than a few machines"
        notes.append(VerdictReason("work-uneven", text))
        apart, named = [], []
    # Many late machines of which none stands out have uneven work. Together they count for no more than before any
    # round.
    rest = min(1.0, max(0.0, total - sum(entry[0] for entry in strong)))
    return _Weighed(total, rest + sum(entry[0] for entry in apart), tuple(named), tuple(notes))


def _named(strong: Iterable[tuple[float, Ballot, int]], used: int, topology: Topology) -> list[tuple[float, Degrader]]:
    """One entry for each machine, the best first; a group only if none of its machines has one."""
    by_unit: dict[tuple[str, ...] | Rank, list[tuple[float, Ballot, int]]] = {}
    for entry in strong:
        ranks = entry[1].ranks(entry[2])
        by_unit.setdefault(lateness.hosts(ranks, topology) or ranks[0], []).append(entry)
    found: list[tuple[float, Degrader]] = []
    taken: set[str] = set()
    for unit, entries in sorted(by_unit.items(), key=lambda item: isinstance(item[0], tuple) and len(item[0])):
        machines = unit if isinstance(unit, tuple) else ()
        if taken.isdisjoint(machines):
            taken.update(machines)
            odds = sum(entry[0] for entry in entries)
            _, ballot, at = max(entries, key=lambda entry: entry[0])
            # where all are late nobody waits for anybody
            late = sum(votes[at] == LATE and IN_TIME in votes for votes in ballot.votes[:used])
            dim = ballot.dim if len(machines) > 1 else None
            found.append((odds, Degrader(ballot.ranks(at), machines, odds / (1 + odds), late, used, dim)))
    return sorted(found, key=lambda entry: (-entry[0], entry[1].ranks))


def _alike(
    late: Iterable[Rank], ballot: Ballot, ratio: Mapping[Pattern, float], used: int, prior: float, topology: Topology
) -> list[tuple[Rank, ...]]:
    """Ranks of one role that are more likely late for the role's work than each for its own reason.

    One role are the members of a data-parallel group, which hold the same share of the model: the first tensor ranks of
    all replicas read the data. The ranks that come first, second, ... on their machines are one role, too.
    """
    found: dict[tuple[Rank, ...], None] = {}
    roles = [groups for dim, groups in topology.groups.items() if dim.startswith("dp")]
    roles.append(tuple(zip(*topology.machines.values(), strict=False)))
    late = set(late)
    for groups in roles:
        for group in groups:
            if len(group) < 2 or late.isdisjoint(group) or len(lateness.hosts(group, topology)) == 1:
                continue
            ratios = [log(ratio[ballot.pattern(rank, used)]) for rank in group if rank < len(ballot.kinds)]
            together = log(ROLE_HAS_MORE / len(groups)) + sum(ratios)
            if together > sum(max(0.0, log(prior) + value) for value in ratios):
                found[group] = None
    return sorted(found)


def _reason(suspect: Degrader, looks: Sequence[Look]) -> VerdictReason:
    doing = Counter(
        look[rank].label or str(look[rank].activity)
        for look in looks[: suspect.looks]
        for rank in suspect.ranks
        if rank in look and not look[rank].waits and look[rank].activity is not Activity.MISSING
    )
    where = f", mostly in {doing.most_common(1)[0][0]}" if doing else ""
    who = f"the {suspect.dim} group on {', '.join(suspect.machines)}" if suspect.dim else " ".join(suspect.machines)
    whose = f"{who} ({ranks_of(suspect.ranks)})" if who else f"rank {suspect.ranks[0]}"
    often = f"in {suspect.late} of {counted(suspect.looks, 'look')}"
    return VerdictReason("waited-for-again", f"{often} others wait for {whose}{where}, and not for its like")


def _shared(waiting: Sequence[Rank], look: Look, topology: Topology) -> VerdictReason:
    what = Counter(str(look[rank].activity) for rank in waiting).most_common(1)[0][0]
    where = f" on {counted(len(lateness.hosts(waiting, topology)), 'machine')}" if topology.machines else ""
    text = f"look after look most of those the others wait for are in {what}{where}"
    return VerdictReason("service-slow", f"{text}: a shared service is slow, no machine")
