"""Monitors one job's trainers on this machine: CPU samples and progress signals ask for stack samples, those give stall signs.

No single one is enough, be it CPU activity, a progress signal or an unchanged stack: a sign needs two of them.
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
    StackMotion,
    StackSample,
    at_one_place,
    call_site,
    meanwhile,
    stack_motion_of,
    waits_outside,
    writes,
)
from hangdog_agent.stalls.trainer import Trainer
from hangdog_models.diagnosis.observe.activity import HELD, LOCK_FILE
from hangdog_models.planning.slowdown import Slowdown, StepPace, StepTimes
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.verdict import Activity

Key = discover.Key
#: Two samples so far apart of the one rank that stands for all are enough to sample all. Seconds.
_PROBE_APART_S = 0.9
#: So many samples in a row at one call site are a loop if a progress signal has stalled, too; three are enough to sample all.
_LOOPS_STALLED, _MAY_LOOP = 5, 3
#: Call sites whose longest stall is remembered for one job: a step has tens.
_PLACES = 256
#: A suspicion that lasts is checked less and less often: (its seconds, seconds between two rounds of samples).
_PAUSES = ((20.0, 0.7), (60.0, 4.0), (float("inf"), 15.0))
#: An interval this much longer than usual is suspicious; only then stacks are sampled.
_UNUSUAL = 1.25
#: A rank whose CPU activity and progress rest for less is moving: shorter, and each step of a job would be reported. Seconds.
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
        self._stepped = False
        self._sampled_at = float("-inf")

    def add_cpu_samples(self, samples: Mapping[Key, tuple[Rank, CpuSample | None]]) -> None:
        """Adds the next CPU sample of every trainer; one that is not among them has ended. None: the kernel does not count."""
        if self._trainers.keys().isdisjoint(samples):  # it begins, or begins anew
            self._stepped = False
        for key in self._trainers.keys() - samples.keys():
            del self._trainers[key]
        for key, (rank, sample) in samples.items():
            trainer = self._trainers.get(key) or self._watched(rank)
            self._trainers[key] = trainer
            if sample is not None:
                trainer.baseline.add(sample)

    def add_signals(self, signals: Mapping[Key, Sequence[ProgressSignal]]) -> None:
        """Sets the progress signals of every trainer, as they are now."""
        for key, trainer in self._trainers.items():
            trainer.set_signals(signals.get(key, ()))

    def slowdown(self) -> Slowdown | None:
        """How much longer its steps take than they used to, by most of its ranks here whose steps are known.

        Where they do not, its throughput may have fallen all the same, by most of the ranks whose logs tell that.
        """
        if self._settings.slow_share <= 0:
            return None
        trainers = self._trainers.values()
        steps = _of_most([one.slowdown for one in trainers if one.step_times.settled])
        return steps or _of_most([one.less_work for one in trainers if one.work_times.settled])

    def pace(self, now: float) -> StepPace | None:
        """The pace of its steps, by the middle one of its ranks here whose steps are timed."""
        known = sorted(
            (step_s, trainer.timed.advanced_at)
            for trainer in self._trainers.values()
            if trainer.timed is not None
            and not trainer.timed.counts_collectives
            and (step_s := trainer.step_times.latest_s) is not None
        )
        if not known:
            return None
        step_s, at = known[len(known) // 2]
        return StepPace(step_s, max(0.0, now - at))

    def ask(self, until: float, steps: bool = False) -> None:
        """Another machine suspects this job: sample all its trainers until then, whatever their CPU activity.

        `steps`: that machine has seen its steps, which all ranks make or none. So these here have started as well.
        """
        self._asked_until = max(self._asked_until, until)
        self._stepped = self._stepped or steps

    def wants(self, now: float) -> tuple[Key, ...]:
        """Which trainers to sample now: none; a suspicious one and those at work while it waits; or all.

        All, once that one is unchanged. If all are at work all the time, one stands for all of them.
        """
        due = self._due(now)
        if not due and now >= self._asked_until:
            self._calm()
            return ()
        self._suspicious_since = now if self._suspicious_since is None else self._suspicious_since
        if now - self._sampled_at < next(pause for until, pause in _PAUSES if now - self._suspicious_since < until):
            return ()
        self._sampled_at = now
        if self._alarmed or now < self._asked_until:
            return tuple(self._trainers)
        if self._probe not in due:
            self._probe = max(due, key=lambda key: (self._trainers[key].baseline.idle, due[key]))
        at_work = [key for key, trainer in self._trainers.items() if key != self._probe and not trainer.baseline.idle]
        return (self._probe, *(at_work if self._trainers[self._probe].baseline.idle else ()))

    def take(self, samples: Mapping[Key, StackSample]) -> None:
        """Adds the stack samples that `wants` asked for."""
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
                self._mark_all_benign(self._trainers.values())
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
            self._mark_all_benign([probe])

    def signs(self, now: float) -> dict[Rank, Sign]:
        """The sign of a stall of each trainer; those without one, or not known yet, are absent."""
        found: dict[Rank, Sign] = {}
        for trainer in self._trainers.values():
            shown = self._shown(trainer)
            if shown is not None and not trainer.gets_on(self._began(trainer, shown)):
                found[trainer.rank] = self._sign(trainer, shown, now)
        return found

    def moving(self, now: float, signs: Mapping[Rank, Sign]) -> frozenset[Rank]:
        """The trainers that make progress: their baseline is known, and they keep to it. One that shows a sign does not."""
        return frozenset(
            trainer.rank
            for trainer in self._trainers.values()
            if trainer.rank not in signs
            and trainer.is_known(self._settings.settle_s)
            and self._rests_s(trainer, now) < max(_MOVES_S, _UNUSUAL * trainer.baseline.usual_s)
        )

    def calm(self, now: float, moving: frozenset[Rank]) -> bool:
        """Whether all its trainers here make progress and none rested between its last samples: nobody wants to know more."""
        wanted = self._suspicious_since is not None or now < self._asked_until
        trainers = self._trainers.values()
        return not wanted and all(one.rank in moving and not one.baseline.idle for one in trainers)

    def _rests_s(self, trainer: Trainer, now: float) -> float:
        """For how long its CPU activity, or its progress, has rested; 0 if neither does."""
        since = trainer.baseline.since
        resting = [max(since, trainer.proof_at)] if since is not None else []
        stalled = trainer.stalled_since
        if stalled is not None and not trainer.gets_on(stalled):
            resting.append(stalled)
        return max((now - one for one in resting), default=0.0)

    def _watched(self, rank: Rank) -> Trainer:
        slowdown = self._settings.slowdown
        return Trainer(rank, Baseline(self._settings.settle_s), StepTimes(slowdown), StepTimes(slowdown))

    def _shown(self, trainer: Trainer, apart_s: float = APART_S) -> StackMotion | None:
        """What its samples show; None while they may still turn out to be a loop, if a progress signal has stalled, too."""
        stalled = trainer.stalled_since is not None
        shown = stack_motion_of(trainer.samples, apart_s, _LOOPS_STALLED if stalled else LOOPS)
        if shown is not None and shown.doing is Doing.WORKING and stalled and len(trainer.samples) < _LOOPS_STALLED:
            return None if at_one_place(trainer.samples) else shown
        return shown

    def _may_loop(self, trainer: Trainer) -> bool:
        """Whether all should be sampled now, so that all are known to loop once this one is."""
        return trainer.surely_stalled and len(trainer.samples) >= _MAY_LOOP and at_one_place(trainer.samples)

    def _mark_all_benign(self, trainers: Iterable[Trainer]) -> None:
        """They are busy and move: their intervals, or the stalls of their signals, are benign."""
        for trainer in trainers:
            trainer.baseline.mark_benign(trainer.samples[-1].at)
            for signal in trainer.signals:
                signal.mark_benign(trainer.samples[-1].at)
            trainer.samples.clear()
        self._probe = None

    def _due(self, now: float) -> dict[Key, float]:
        """The trainers with a suspicious interval or a stalled progress signal, and for how long it lasts."""
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
        # A loop may be work: only a progress signal that has stalled makes it a wait.
        stalled = self._progress_stalled(trainer)
        waits = shown.doing is Doing.LOOPING and stalled and not writes(trainer.samples)
        survived_s = self._settings.factor * self._longest.get(state.place, 0.0)
        if shown.doing in (Doing.STILL, Doing.LOOPING) and self._all_at_lock():
            patience = max(survived_s, self._settings.outside_s)
            return Sign(shown.doing, seconds, seconds >= patience, place, crowding, waits=True)
        if not waits and shown.doing is not Doing.STILL:
            site = call_site([sample for sample in trainer.samples if sample.at >= shown.since])
            loops_in_wait = state.waits and shown.doing is Doing.LOOPING  # as a barrier that polls does
            return Sign(shown.doing, seconds, place=site or place, crowding=crowding, waits=loops_in_wait)
        doing = self._at_its_line(trainer, now) if shown.doing is Doing.STILL else shown.doing
        if doing is not shown.doing:  # it works there, which may be a loop that does not end
            patience = max(survived_s, 2 * self._settings.start_s * crowding)
            may_poll = doing is Doing.LOOPING and not trainer.baseline.busy
            if may_poll and stalled:
                patience = self._tolerated_s(trainer, survived_s, True)
            return Sign(doing, seconds, seconds >= patience, call_site(trainer.samples) or place, crowding)
        if state.activity is Activity.STOPPED:  # no start and no crowd of threads takes long in that state
            return Sign(shown.doing, seconds, seconds >= self._settings.patience_s, place, crowding, stopped=True)
        patience = self._tolerated_s(trainer, survived_s, waits)
        return Sign(shown.doing, seconds, seconds >= patience, place, crowding, waits=state.waits)

    def _at_its_line(self, trainer: Trainer, now: float) -> Doing:
        """What it does at its one line, by what the kernel counts."""
        # a loop that polls is active, too, while the job's own progress has stalled
        polls = self._progress_stalled(trainer) and not trainer.baseline.busy
        doing = meanwhile(trainer.samples, CpuActivity.IDLE if polls else trainer.baseline.mode, self.gpus)
        outside = waits_outside(trainer.samples[-1].state)
        fed = outside and now - trainer.baseline.woken_at <= self._settings.outside_s
        return Doing.LOOPING if doing is Doing.STILL and fed else doing

    def _all_at_lock(self) -> bool:
        """Whether all of this machine's ranks wait for a lock file: one that does not may have it, and work for all."""
        trainers = self._trainers.values()
        return all(one.samples and one.samples[-1].state.operation == LOCK_FILE for one in trainers)

    def _progress_stalled(self, trainer: Trainer) -> bool:
        """Whether a signal of its own has stalled, or an authoritative one of another rank: a step is made by all or by none."""
        return trainer.stalled_since is not None or any(each.surely_stalled for each in self._trainers.values())

    def _tolerated_s(self, trainer: Trainer, survived_s: float, polls: bool) -> float:
        """For how many seconds a stall is tolerated; `polls`: it loops while the job's progress stalls."""
        settings, baseline, stalled = self._settings, trainer.baseline, self._progress_stalled(trainer)
        patience = max(settings.patience_s, survived_s)
        if waits_outside(trainer.samples[-1].state):
            patience = max(patience, settings.outside_s)
        if trainer.samples[-1].state.operation == HELD:  # the user of the debugger knows
            patience = max(patience, settings.start_s)
        if baseline.busy:  # it spins or computes: that takes longer under CPU contention
            patience *= baseline.crowding
        # Nor is one line of Python surely a stall while the thread is active: what it calls may compute, which
        # takes longer under CPU contention.
        sure = trainer.surely_stalled or (stalled and trainer.stalled_since is None)
        if (polls or (baseline.since is None and stalled)) and not sure:
            patience = max(patience, settings.loop_s * baseline.crowding)
            if polls and baseline.busy:  # as an evaluation does, while no step lines come
                patience = max(patience, settings.start_s)
        # In a job that makes progress, rare samples meet it at one line each time, in a wait as well as at work.
        known = self._stepped or trainer.is_known(settings.settle_s)
        if (baseline.since is None and not stalled) or not known or self._joins():
            patience = max(patience, settings.start_s)
        return patience

    def _joins(self) -> bool:
        """Whether ranks are joining each other: imports from a slow share look like a baseline, and the first waits are long.

        A job whose own progress was seen has joined.
        """
        trainers = self._trainers.values()
        if self._stepped or any(
            each.authoritative and each.known_s >= self._settings.settle_s for one in trainers for each in one.signals
        ):
            return False
        return any(one.samples and one.samples[-1].state.activity is Activity.RENDEZVOUS for one in trainers)

    def _began(self, trainer: Trainer, shown: StackMotion) -> float:
        """Since when it does this: since its CPU activity or progress stopped, unless a later sample saw it elsewhere."""
        still, loops = shown.doing is Doing.STILL, shown.doing is Doing.LOOPING
        cpu_activity = trainer.baseline.since if still else None
        stall = trainer.stalled_since if still or loops else None
        moved = trainer.samples[0].at < shown.since and not (stall is not None and at_one_place(trainer.samples))
        return shown.since if moved else min(since for since in (cpu_activity, stall, shown.since) if since is not None)

    def _learn(self, trainer: Trainer, doing: Doing = Doing.STILL) -> None:
        """Its stall has ended, so it was benign: the next one at its call site is tolerated for longer."""
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
        """The same for a loop, which only progress signals can have made suspicious."""
        if trainer.signals:
            self._learn(trainer, Doing.LOOPING)


def _of_most(slowdowns: Sequence[Slowdown | None]) -> Slowdown | None:
    """The middle one, where most of them tell any."""
    found = sorted((slow for slow in slowdowns if slow is not None), key=lambda slow: slow.step_s / slow.usual_s)
    return found[len(found) // 2] if 2 * len(found) > len(slowdowns) else None
