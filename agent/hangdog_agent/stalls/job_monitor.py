"""The watch over one job's trainers on this machine: from pulses and witnesses to glances, from those to signs of a standstill.

A pulse alone is no reason to disturb anybody, and neither is a witness or a stack that stands still: a sign needs two of them.
"""

from collections.abc import Iterable, Mapping, Sequence

from hangdog_agent.discovery import discover
from hangdog_agent.discovery.cpu_activity import CpuActivity, CpuSample
from hangdog_agent.stalls.baseline import Baseline
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import (
    APART_S,
    LOOPS,
    OUTSIDE,
    StackMotion,
    StackSample,
    at_one_place,
    call_site,
    meanwhile,
    stack_motion_of,
    writes,
)
from hangdog_agent.stalls.trainer import Trainer
from hangdog_models.diagnosis.observe.activity import HELD, LOCK_FILE
from hangdog_models.planning.slowdown import Slowdown, StepPace, StepTimes
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.verdict import Activity

Key = discover.Key
#: Two glances so far apart at the one that stands for all are enough to glance at all. Seconds.
_PROBE_APART_S = 0.9
#: So many glances in a row at one place are a loop where a witness has stalled, too; three are enough to glance at all.
_LOOPS_STALLED, _MAY_LOOP = 5, 3
#: Places whose longest standstill is remembered of one job: a step has tens.
_PLACES = 256
#: A doubt that lasts is looked into less and less often: (seconds of doubt, seconds between two rounds of glances).
_PAUSES = ((20.0, 0.7), (60.0, 4.0), (float("inf"), 15.0))
#: A stretch this much longer than the usual ones makes wonder; it is only then that anybody is glanced at.
_UNUSUAL = 1.25
#: A rank whose pulse and progress rest for less is seen to move: shorter, and each step of a job would be told. Seconds.
_MOVES_S = 10.0


class JobMonitor:
    """One job. All times are of `time.monotonic`."""

    def __init__(self, settings: StallSettings) -> None:
        self._settings = settings
        #: Whether this machine has any, as far as is known by now.
        self.gpus = False
        self._trainers: dict[Key, Trainer] = {}
        self._longest: dict[object, float] = {}
        self._suspicious_since: float | None = None
        self._probe: Key | None = None
        self._alarmed = False
        self._asked_until = float("-inf")
        self._glanced_at = float("-inf")

    def feel(self, beats: Mapping[Key, tuple[Rank, CpuSample | None]]) -> None:
        """Takes the next beat of every trainer; one that is not among them has ended. None: its beats are not counted."""
        for key in self._trainers.keys() - beats.keys():
            del self._trainers[key]
        for key, (rank, beat) in beats.items():
            trainer = self._trainers.get(key) or self._watched(rank)
            self._trainers[key] = trainer
            if beat is not None:
                trainer.baseline.feel(beat)

    def hear(self, signals: Mapping[Key, Sequence[ProgressSignal]]) -> None:
        """Takes the witnesses of every trainer, as they stand now."""
        for key, trainer in self._trainers.items():
            trainer.hear(signals.get(key, ()))

    def slowdown(self) -> Slowdown | None:
        """How much longer its steps take than they used to, as most of its ranks here tell whose steps are known."""
        known = [trainer.step_times for trainer in self._trainers.values() if trainer.step_times.settled]
        found = [slow for one in known if (slow := one.slowdown) is not None]
        if self._settings.slow_share <= 0 or 2 * len(found) <= len(known):
            return None
        return sorted(found, key=lambda slow: slow.step_s / slow.usual_s)[len(found) // 2]

    def pace(self, now: float) -> StepPace | None:
        """How its steps go on, as the middle one of its ranks here tells whose steps are timed."""
        known = sorted(
            (step_s, trainer.timed.advanced_at)
            for trainer in self._trainers.values()
            if trainer.timed is not None and (step_s := trainer.step_times.latest_s) is not None
        )
        if not known:
            return None
        step_s, at = known[len(known) // 2]
        return StepPace(step_s, max(0.0, now - at))

    def ask(self, until: float) -> None:
        """Somebody elsewhere waits for this job: everybody is glanced at until then, whatever the pulses say."""
        self._asked_until = max(self._asked_until, until)

    def wants(self, now: float) -> tuple[Key, ...]:
        """Whom to glance at now: nobody; one that makes wonder, and those at work while its pulse waits; or everybody.

        Everybody once that one stands still. Where all are at work all the time, one stands for all of them.
        """
        due = self._due(now)
        if not due and now >= self._asked_until:
            self._calm()
            return ()
        self._suspicious_since = now if self._suspicious_since is None else self._suspicious_since
        if now - self._glanced_at < next(pause for until, pause in _PAUSES if now - self._suspicious_since < until):
            return ()
        self._glanced_at = now
        if self._alarmed or now < self._asked_until:
            return tuple(self._trainers)
        if self._probe not in due:
            self._probe = max(due, key=lambda key: (self._trainers[key].baseline.silent, due[key]))
        at_work = [key for key, trainer in self._trainers.items() if key != self._probe and not trainer.baseline.silent]
        return (self._probe, *(at_work if self._trainers[self._probe].baseline.silent else ()))

    def take(self, samples: Mapping[Key, StackSample]) -> None:
        """Takes what the glances asked for showed."""
        for key, sample in samples.items():
            trainer = self._trainers.get(key)
            if trainer is not None:
                if trainer.samples and trainer.moved(trainer.samples[-1], sample):
                    self._learn(trainer)
                trainer.samples.append(sample)
        if self._alarmed:
            shown = [self._shown(trainer) for trainer in self._trainers.values()]
            if all(one is not None and one.doing is Doing.WORKING for one in shown):
                self._alarmed = False
                self._explain(self._trainers.values())
            return
        probe = self._trainers.get(self._probe) if self._probe is not None else None
        if probe is None:
            return
        doing = self._shown(probe, _PROBE_APART_S)
        if doing is None:
            self._alarmed = self._may_loop(probe)
        elif doing.doing is Doing.STILL or (doing.doing is Doing.LOOPING and probe.stalled_since is not None):
            self._alarmed = True
        else:
            self._explain([probe])

    def signs(self, now: float) -> dict[Rank, Sign]:
        """What each trainer shows of a standstill; those that show none, or are not known yet, are absent."""
        found: dict[Rank, Sign] = {}
        for trainer in self._trainers.values():
            shown = self._shown(trainer)
            if shown is not None and not trainer.gets_on(self._began(trainer, shown)):
                found[trainer.rank] = self._sign(trainer, shown, now)
        return found

    def moving(self, now: float, signs: Mapping[Rank, Sign]) -> frozenset[Rank]:
        """The trainers that are seen to move: by a rhythm that is known and goes on; one that shows a sign is not."""
        return frozenset(
            trainer.rank
            for trainer in self._trainers.values()
            if trainer.rank not in signs
            and trainer.is_known(self._settings.settle_s)
            and self._rests_s(trainer, now) < max(_MOVES_S, _UNUSUAL * trainer.baseline.usual_s)
        )

    def _rests_s(self, trainer: Trainer, now: float) -> float:
        """For how long its pulse, or its progress, has rested; 0 where neither does."""
        since = trainer.baseline.since
        resting = [max(since, trainer.proof_at)] if since is not None else []
        stalled = trainer.stalled_since
        if stalled is not None and not trainer.gets_on(stalled):
            resting.append(stalled)
        return max((now - one for one in resting), default=0.0)

    def _watched(self, rank: Rank) -> Trainer:
        return Trainer(rank, Baseline(self._settings.settle_s), StepTimes(self._settings.slowdown))

    def _shown(self, trainer: Trainer, apart_s: float = APART_S) -> StackMotion | None:
        """What its glances show; None while they may yet turn out to be a loop, where a witness has stalled, too."""
        stalled = trainer.stalled_since is not None
        shown = stack_motion_of(trainer.samples, apart_s, _LOOPS_STALLED if stalled else LOOPS)
        if shown is not None and shown.doing is Doing.WORKING and stalled and len(trainer.samples) < _LOOPS_STALLED:
            return None if at_one_place(trainer.samples) else shown
        return shown

    def _may_loop(self, trainer: Trainer) -> bool:
        """Whether it is worth while to glance at everybody, so that all are known to loop when it is."""
        return trainer.surely_stands and len(trainer.samples) >= _MAY_LOOP and at_one_place(trainer.samples)

    def _explain(self, trainers: Iterable[Trainer]) -> None:
        """They are busy, and move: their pulses, or their witnesses' stalls, have an innocent reason."""
        for trainer in trainers:
            trainer.baseline.mark_benign(trainer.samples[-1].at)
            for signal in trainer.signals:
                signal.mark_benign(trainer.samples[-1].at)
            trainer.samples.clear()
        self._probe = None

    def _due(self, now: float) -> dict[Key, float]:
        """The trainers whose stretch, or a witness that has stalled, makes wonder, and for how long it lasts."""
        found: dict[Key, float] = {}
        for key, trainer in self._trainers.items():
            since = trainer.baseline.since
            if since is not None:
                since = max(since, trainer.proof_at)
                least = max(self._settings.suspicious_s, _UNUSUAL * trainer.baseline.usual_s)
                if now - since >= least:
                    found[key] = now - since
            stalled = trainer.stalled_since
            if stalled is not None and not trainer.gets_on(stalled):
                found[key] = max(found.get(key, 0.0), now - stalled)
        return found

    def _calm(self) -> None:
        self._suspicious_since, self._probe, self._alarmed = None, None, False
        for trainer in self._trainers.values():
            self._learn(trainer)
            self._learn_loop(trainer)
            trainer.samples.clear()

    def _sign(self, trainer: Trainer, shown: StackMotion, now: float) -> Sign:
        crowding = trainer.baseline.crowding
        state = trainer.samples[-1].state
        place = " in ".join(word for word in (state.operation or str(state.activity), state.label) if word)
        seconds = now - max(self._began(trainer, shown), trainer.proof_at)
        # A loop may be work: only what has stopped getting on beside it makes it a wait.
        stalled = self._progress_stalled(trainer)
        waits = shown.doing is Doing.LOOPING and stalled and not writes(trainer.samples)
        survived_s = self._settings.factor * self._longest.get(state.place, 0.0)
        if shown.doing in (Doing.STILL, Doing.LOOPING) and self._all_at_lock():
            patience = max(survived_s, self._settings.outside_s)
            return Sign(shown.doing, seconds, seconds >= patience, place, crowding, waits=True)
        if not waits and shown.doing is not Doing.STILL:
            site = call_site([sample for sample in trainer.samples if sample.at >= shown.since])
            loops_in_wait = state.waits and shown.doing is Doing.LOOPING  # as a barrier does that looks again and again
            return Sign(shown.doing, seconds, place=site or place, crowding=crowding, waits=loops_in_wait)
        doing = self._at_its_line(trainer, now) if shown.doing is Doing.STILL else shown.doing
        if doing is not shown.doing:  # it gets on with something there, which may be a loop that does not end
            patience = max(survived_s, 2 * self._settings.start_s * crowding)
            may_poll = doing is Doing.LOOPING and not trainer.baseline.pinned
            if may_poll and stalled:
                patience = self._patience(trainer, survived_s, True)
            return Sign(doing, seconds, seconds >= patience, call_site(trainer.samples) or place, crowding)
        patience = self._patience(trainer, survived_s, waits)
        return Sign(shown.doing, seconds, seconds >= patience, place, crowding, waits=state.waits)

    def _at_its_line(self, trainer: Trainer, now: float) -> Doing:
        """What it does at the one line at which it stands, by what is counted of it."""
        # a pulse is lively in a loop that polls, too, where the job's own progress has stalled
        polls = self._progress_stalled(trainer) and not trainer.baseline.pinned
        doing = meanwhile(trainer.samples, CpuActivity.SILENT if polls else trainer.baseline.mode, self.gpus)
        outside = trainer.samples[-1].state.activity in OUTSIDE
        fed = outside and now - trainer.baseline.woken_at <= self._settings.outside_s
        return Doing.LOOPING if doing is Doing.STILL and fed else doing

    def _all_at_lock(self) -> bool:
        """Whether all of this machine's ranks wait for a lock file: one that does not may hold it, and work for all."""
        trainers = self._trainers.values()
        return all(one.samples and one.samples[-1].state.operation == LOCK_FILE for one in trainers)

    def _progress_stalled(self, trainer: Trainer) -> bool:
        """Whether a witness of its own has stalled, or one that vouches for another rank: a step is made by all or by none."""
        return trainer.stalled_since is not None or any(each.surely_stands for each in self._trainers.values())

    def _patience(self, trainer: Trainer, survived_s: float, polls: bool) -> float:
        """How long a standstill is borne; `polls`: it loops while the job's progress stalls."""
        settings, baseline, stalled = self._settings, trainer.baseline, self._progress_stalled(trainer)
        patience = max(settings.patience_s, survived_s)
        if trainer.samples[-1].state.activity in OUTSIDE:
            patience = max(patience, settings.outside_s)
        if trainer.samples[-1].state.operation == HELD:  # somebody is at it, and knows
            patience = max(patience, settings.start_s)
        if baseline.pinned:  # it spins, or computes: then it takes longer where cores are wanted
            patience *= baseline.crowding
        # Nor is it sure that one line of Python is a standstill, where the pulse is lively: what it calls may compute, which
        # takes longer on crowded cores.
        sure = trainer.surely_stands or (stalled and trainer.stalled_since is None)
        if (polls or (baseline.since is None and stalled)) and not sure:
            patience = max(patience, settings.loop_s * baseline.crowding)
            if polls and baseline.pinned:  # as who evaluates, while no step lines come
                patience = max(patience, settings.start_s)
        # In a job that gets on, looks seldom enough meet it at one line each time, in a wait as well as at work.
        if (baseline.since is None and not stalled) or not trainer.is_known(settings.settle_s) or self._joins():
            patience = max(patience, settings.start_s)
        return patience

    def _joins(self) -> bool:
        """Whether ranks are joining each other: imports from a busy share look like a rhythm, and the first waits are long.

        A job whose own progress was seen has joined.
        """
        trainers = self._trainers.values()
        if any(each.vouches and each.known_s >= self._settings.settle_s for one in trainers for each in one.signals):
            return False
        return any(one.samples and one.samples[-1].state.activity is Activity.RENDEZVOUS for one in trainers)

    def _began(self, trainer: Trainer, shown: StackMotion) -> float:
        """Since when it does this: since its pulse or progress stopped, unless a glance has seen it elsewhere after that."""
        still, loops = shown.doing is Doing.STILL, shown.doing is Doing.LOOPING
        cpu_activity = trainer.baseline.since if still else None
        stall = trainer.stalled_since if still or loops else None
        moved = trainer.samples[0].at < shown.since and not (stall is not None and at_one_place(trainer.samples))
        return shown.since if moved else min(since for since in (cpu_activity, stall, shown.since) if since is not None)

    def _learn(self, trainer: Trainer, doing: Doing = Doing.STILL) -> None:
        """Its standstill has ended, so it was innocent: the next one at its place is borne for longer than that."""
        shown = stack_motion_of(trainer.samples)
        if shown is None or shown.doing is not doing:
            return
        last = trainer.samples[-1]
        if last.state.activity is Activity.RENDEZVOUS:
            trainer.baseline.begin()
        place = last.state.place
        if place in self._longest or len(self._longest) < _PLACES:
            lasted = last.at - self._began(trainer, shown)
            self._longest[place] = max(self._longest.get(place, 0.0), lasted)

    def _learn_loop(self, trainer: Trainer) -> None:
        """The same of a loop, which only its witnesses can have made doubtful."""
        if trainer.signals:
            self._learn(trainer, Doing.LOOPING)
