"""Replays run-hours under the real watch, and counts who was alarmed for nothing, and how soon a real hang is noticed in each phase."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from frameworks.environment import WORLD
from hangdog_models.verdict import Kind
from hangdog_server.cluster.stalls import StallTracker
from healthy.recording import ENDING, RECORDINGS, read
from healthy.timeline import LONGEST_S, TRAINING, Playable, Second, habits, life, trained
from healthy.watched_job import WatchedJob

#: How far ahead an incident's looks reach. Seconds.
AHEAD = 8
#: A job that was ended is started again after so long. Seconds.
RESTART_S = 30.0
#: The share of starts that are those of a job which was never seen before; the server remembers what it learned of all others.
NEW_JOB = 0.25
#: A hang in a phase of that age is looked for so long; training before it, for a rhythm. Seconds.
AGES_S, WAITED_S, RHYTHM_S = (15, 60, 240), 1200, 120.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """An incident that was opened in a healthy phase, or looked at `again`: how old that was, why, and the verdict."""

    framework: str
    phase: str
    age_s: float
    why: str
    verdict: Kind
    evicted: tuple[str, ...]
    because: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Frozen:
    """A hang in a phase: after how many seconds it was suspected (None: never), and whether the phase itself had been."""

    framework: str
    phase: str
    age_s: int
    suspected_s: float | None
    before: bool


@dataclass(slots=True)
class Outcome:
    """Of one framework: seconds by phase, the alarms, and the hangs."""

    framework: str
    seconds: dict[str, float] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)
    hangs: list[Frozen] = field(default_factory=list)
    lives: int = 0


def playable(framework: str, phases: Sequence[str] = ()) -> dict[str, Playable]:
    """The recordings of a framework, ready to be played; training is always among them."""
    paths = sorted((RECORDINGS / framework).glob(f"*{ENDING}"))
    names = {path.name.removesuffix(ENDING): path for path in paths}
    return {name: Playable(read(path)) for name, path in names.items() if not phases or name in (*phases, TRAINING)}


def recorded() -> list[str]:
    """The frameworks of which there are recordings."""
    return sorted(path.parent.name for path in RECORDINGS.glob(f"*/{TRAINING}{ENDING}"))


def replay_all(
    frameworks: Sequence[str], phases: Sequence[str], hours: float, seed: int, hangs: bool, longest_s: float = LONGEST_S
) -> list[Outcome]:
    """Replays all frameworks, each for its share of the hours, as many at once as there are cores."""
    share = hours / max(1, len(frameworks))
    with ProcessPoolExecutor(min(2, len(frameworks) or 1)) as pool:
        runs = [pool.submit(replay, one, phases, share, seed, hangs, longest_s) for one in frameworks]
        return [run.result() for run in runs]


def replay(
    framework: str, phases: Sequence[str], hours: float, seed: int, hangs: bool = True, longest_s: float = LONGEST_S
) -> Outcome:
    """Replays one framework for so many hours, then breaks it in each phase; a phase usually lasts no longer than told."""
    recordings, outcome = playable(framework, phases), Outcome(framework)
    chance = random.Random(f"{framework}-{seed}")
    now, tracker, usual = 0.0, StallTracker(), habits(recordings, chance, longest_s)
    seconds: dict[str, float] = defaultdict(float)
    while sum(seconds.values()) < hours * 3600.0:
        outcome.lives += 1
        if chance.random() < NEW_JOB:
            tracker, usual = StallTracker(), habits(recordings, chance, longest_s)
        job = WatchedJob(framework, chance.choice((1, 2, WORLD)), outcome.lives, tracker=tracker)
        timeline = list(life(recordings, usual, chance))
        phase, since = "", now
        for number, second in enumerate(timeline):
            now += 1.0
            seconds[second.phase] += 1.0
            if second.phase != phase:
                phase, since = second.phase, now
            opened = job.second(now, second, timeline[number : number + AHEAD])
            if opened is not None:
                verdict = opened.verdict
                alarm = Alarm(
                    framework, _blamed(timeline, number), now - since, opened.suspicion.why, verdict.kind,
                    verdict.evict.machines, verdict.because[0].text if verdict.because else "", opened.again,
                )  # fmt: skip
                outcome.alarms.append(alarm)
        now += RESTART_S
    outcome.seconds = dict(seconds)
    if hangs:
        outcome.hangs = [hang(framework, recordings, one, age) for one in recordings.values() for age in AGES_S]
    return outcome


def _blamed(timeline: Sequence[Second], number: int) -> str:
    """The phase that an alarm is about: a wait may be noticed a moment after its phase has ended."""
    return next((one.phase for one in islice(reversed(timeline[: number + 1]), 12) if one.phase != TRAINING), TRAINING)


def hang(framework: str, recordings: Mapping[str, Playable], phase: Playable, age_s: int) -> Frozen:
    """Freezes those that do a phase when it is so old, for ever, and waits until that is suspected."""
    job = WatchedJob(framework, 1)
    now, seen, frozen_at = 0.0, 0, None
    for second in _until_hung(recordings, phase, age_s):
        now += 1.0
        seen += second.phase == phase.name and (phase.name != TRAINING or now > RHYTHM_S)
        if frozen_at is None and seen >= age_s and phase.repeated[0] <= second.beat <= phase.repeated[1]:
            frozen_at = now
            before = job.suspicion is not None
            job.frozen = dict.fromkeys(phase.doers, (second.recording, second.beat))
        job.second(now, second, [second])
        if frozen_at is not None and job.suspicion is not None:
            return Frozen(framework, phase.name, age_s, now - frozen_at, before)
    return Frozen(framework, phase.name, age_s, None, False)


def _until_hung(recordings: Mapping[str, Playable], phase: Playable, age_s: int) -> Iterator[Second]:
    yield from trained(recordings[TRAINING], RHYTHM_S)
    lasts_s = age_s + WAITED_S
    yield from trained(phase, lasts_s) if phase.name == TRAINING else phase.played(lasts_s)
