"""A shift: one healthy job after another under one server and its agents, for hours of real time; what was opened, and when."""

import json
import random
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from frameworks.cases import Case
from frameworks.environment import WORLD, Framework
from frameworks.guard import ClusterGuard
from frameworks.job import Job
from frameworks.live import Announced, watches_of
from frameworks.record import brought_about, ends
from frameworks.served import server
from hangdog.demo.prctl import adopt_orphans
from hangdog_agent.settings import AgentSettings
from hangdog_models.errors import OurFault
from hangdog_models.incident import Incident
from healthy.timeline import TRAINING

#: How long a step lasts at least, drawn for each job. Seconds.
PACES_S = (0.2, 0.2, 1.0, 4.0, 10.0)
#: Training between two phases, and a phase, drawn evenly by order of magnitude. Seconds.
TRAINS_S, LASTS_S = (30.0, 180.0), (20.0, 240.0)
#: A job goes through so many phases before it ends.
PHASES_A_LIFE = (1, 4)
STARTING, ENDING = "start", "end"
#: Who leaves by itself is waited for so long. Seconds.
LEAVES_S = 40.0


def work(framework: Framework, phases: Sequence[Case], hours: float, seed: int, folder: Path, log: Path) -> None:
    """Plays jobs of one framework for some hours; appends what was played and what was opened to `log`, a JSON object a line."""
    adopt_orphans()
    chance = random.Random(f"{framework.name}-{seed}")
    machines, settings, pids = chance.choice((1, 2, 4)), AgentSettings(), dict[int, int]()
    watches = watches_of(Announced(framework, pids, WORLD // machines), machines, settings)
    due = [phase for phase in phases if phase.name not in framework.without and phase.name != TRAINING]
    with server() as address, ClusterGuard(watches, folder, settings) as guard:
        played = _Played(guard, framework.name, machines, log)
        shift = _Shift(framework, address, chance, pids, played, time.monotonic() + 3600.0 * hours)
        lives = 0
        while not shift.over():
            lives += 1
            chance.shuffle(due)
            shift.live(due[: chance.randint(*PHASES_A_LIFE)], folder / str(lives))
        time.sleep(20.0)
        played.flush()


@dataclass
class _Shift:
    """One job after the other, until the time is over; `pids` are those of the one that runs, by rank."""

    framework: Framework
    server: str
    chance: random.Random
    pids: MutableMapping[int, int]
    played: "_Played"
    until: float

    def over(self) -> bool:
        return time.monotonic() >= self.until

    def live(self, due: Sequence[Case], place: Path) -> None:
        """Plays one job from its start to its end, through these phases."""
        pace_s = self.chance.choice(PACES_S)
        try:
            self._play(due, place, pace_s)
        except OurFault as error:
            self.played.note(f"not played to its end: {error}")
        self.pids.clear()
        with self.played.during(ENDING, pace_s):
            time.sleep(10.0)

    def _play(self, due: Sequence[Case], place: Path, pace_s: float) -> None:
        with ExitStack() as stack:
            with self.played.during(STARTING, pace_s):
                job = stack.enter_context(Job(self.framework, place, self.server, pace_s))
                self.pids.update(job.pids)
            for phase in due:
                self._train(pace_s)
                if self.over():
                    break
                with self.played.during(phase.name, pace_s):
                    goes_on = _phase(job, phase, _drawn(self.chance, LASTS_S))
                if not goes_on:
                    return
            self._train(pace_s)
            if self.chance.random() < 0.5:
                with self.played.during(ENDING, pace_s):
                    job.order("finish", "its end", range(WORLD))
                    time.sleep(LEAVES_S)

    def _train(self, pace_s: float) -> None:
        with self.played.during(TRAINING, pace_s):
            time.sleep(_drawn(self.chance, TRAINS_S))


def _phase(job: Job, phase: Case, seconds: float) -> bool:
    """Plays a phase; answers whether the job goes on afterwards."""
    ranks = phase.ranks(job.framework.name)
    goes_on = ends(job.framework, phase) and phase.name != "compile"
    with ExitStack() as stack:
        stack.enter_context(brought_about(job, phase, ranks))
        time.sleep(seconds)
        if not job.alive():
            raise OurFault(f"{phase.name}: a rank has ended by itself: {job.last_words()}")
        if goes_on and phase.act:
            job.release(ranks)
    if goes_on:
        job.wait_on(phase.name)
    return goes_on


class _Played:
    """Writes what was played and what the guard has opened in it."""

    def __init__(self, guard: ClusterGuard, framework: str, machines: int, log: Path) -> None:
        self._guard, self._framework, self._machines, self._log = guard, framework, machines, log
        self._spans: list[tuple[float, str, float]] = []
        self._written: dict[str, int] = {}

    @contextmanager
    def during(self, phase: str, pace_s: float) -> Iterator[None]:
        began = time.monotonic()
        self._spans.append((began, phase, pace_s))
        try:
            yield
        finally:
            self._line(phase=phase, pace_s=pace_s, seconds=round(time.monotonic() - began, 1))
            self.flush()

    def note(self, words: str) -> None:
        self._line(note=words[:300])

    def flush(self) -> None:
        """Incidents that are new, or were looked at again: the last line of an incident holds."""
        for incident in self._guard.incidents():
            if incident.looks == self._written.get(incident.id) or not incident.kind:
                continue
            self._written[incident.id] = incident.looks
            began, phase, pace_s = max(
                (span for span in self._spans if span[0] <= incident.began), default=(0.0, "", 0.0)
            )
            self._line(incident=_told(incident), phase=phase, pace_s=pace_s, age_s=round(incident.began - began, 1))

    def _line(self, **values: object) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps({"framework": self._framework, "machines": self._machines} | values) + "\n")


def _told(incident: Incident) -> dict[str, object]:
    verdict = json.loads(incident.verdict) if incident.verdict else {}
    return {
        "id": incident.id,
        "why": incident.why.removeprefix("suspected: "),
        "kinds": [*(one.kind for one in incident.earlier), incident.kind],
        "evict": list(incident.evict),
        "went_on_s": round(incident.went_on_s, 1),
        "because": verdict.get("because", [])[:3],
    }


def _drawn(chance: random.Random, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return float(low * (high / low) ** chance.random())
