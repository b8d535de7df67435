"""The job monitor with progress signals: a rank that polls is noticed, one that makes progress is left alone, one sign alone does nothing."""

import random
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hangdog_agent.discovery.cpu_activity import CpuSample
from hangdog_agent.numbers.log_numbers import followed
from hangdog_agent.stalls.job_monitor import JobMonitor, Key
from hangdog_agent.stalls.progress.profiler_rings import RingSignal
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample
from hangdog_models.diagnosis.observe import activity
from hangdog_models.numbers.number_watch import USUAL
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts, suspect
from support.cases.stories import trace

RULES = packaged()
SETTINGS = StallSettings(settle_s=10.0, suspicious_s=3.0, patience_s=5.0, factor=3.0, start_s=300.0, loop_s=60.0)
#: Seconds on a core, and wake-ups, of each second spent like this.
SPENT = {"lively": (0.4, 30), "silent": (0.0, 0), "pinned": (0.99, 5)}
ALL = range(8)


class Machine:
    """Eight trainers of one job, played second by second. `steps`: each has a step log; else rank 0 alone has one."""

    def __init__(self, steps: Iterable[int] = ALL, beats: bool = True, authoritative: bool = True) -> None:
        self.monitor = JobMonitor(SETTINGS)
        self.now = 100.0
        self.counters = {(pid, 1): (0.0, 0) for pid in ALL}
        self.logs = {(pid, 1): ProgressSignal(SignalKind.LINES, 3.0, authoritative) for pid in steps}
        self.flow = ProgressSignal(SignalKind.BYTES, 3.0)
        self.power = ProgressSignal(SignalKind.POWER, 20.0)
        self.beats = beats
        self.done: dict[Key, float] = {}
        self.glanced: list[Key] = []

    def live(
        self,
        seconds: int,
        how: str = "lively",
        steps: bool | Iterable[int] = True,
        slower: float = 1.0,
        slow: Iterable[int] = ALL,
        flow: bool = True,
        power: bool | None = None,
        stack: str = "user",
        moves: float = 0,
    ) -> None:
        """Lets time pass; what advances meanwhile. `stack` moves so many lines every second; with 0 it stands still."""
        advancing = set(ALL) if steps is True else set(steps or ())
        for _ in range(seconds):
            self.now += 1.0
            for key, log in self.logs.items():
                self.done[key] = self.done.get(key, 0.0) + 3.0 / (slower if key[0] in set(slow) else 1.0)
                log.look(key[0] in advancing, self.now, int(self.done[key]))
            self.flow.look(flow, self.now)
            if power is not None:
                self.power.look(power, self.now)
            beats: dict[Key, tuple[Rank, CpuSample | None]] = {}
            for key, (ran, wakes) in self.counters.items():
                self.counters[key] = ran + SPENT[how][0], wakes + SPENT[how][1]
                beat = CpuSample(self.now, *self.counters[key][:1], 0.0, self.counters[key][1])
                beats[key] = Rank(key[0]), beat if self.beats else None
            self.monitor.add_cpu_samples(beats)
            of_all = [self.flow] if power is None else [self.flow, self.power]
            self.monitor.add_signals({key: [*([self.logs[key]] if key in self.logs else []), *of_all] for key in beats})
            wanted = self.monitor.wants(self.now)
            self.glanced += wanted
            shift = int(self.now * moves)
            self.monitor.take(
                {key: StackSample(self.now, activity.read(trace(key[0], stack, shift=shift), RULES)) for key in wanted}
            )

    def signs(self) -> dict[Rank, Sign]:
        return self.monitor.signs(self.now)

    def overdue(self) -> list[int]:
        return [rank for rank, sign in self.signs().items() if sign.overdue]

    def suspected(self) -> bool:
        signs = self.signs()
        going = (Rank(rank) for rank in ALL if rank not in signs)
        return suspect(signs, going, lambda sign: StallTimeouts().of(sign.doing)) is not None


@pytest.mark.parametrize("moves", [0, 0.3, 1], ids=["at one line", "now and then at another", "in a loop"])
@pytest.mark.parametrize("beats", [True, False], ids=["lively pulses", "no pulses"])
def test_who_polls_is_suspected_in_time(moves: int, beats: bool) -> None:
    machine = Machine(beats=beats)
    machine.live(30)
    assert machine.glanced == []
    machine.live(11, steps=False, flow=False, moves=moves)
    assert machine.overdue() == list(ALL)
    assert machine.suspected()
    assert moves == 0.3 or {sign.doing for sign in machine.signs().values()} == {
        Doing.LOOPING if moves else Doing.STILL
    }
    for _ in range(8):
        machine.live(1, steps=False, flow=False, moves=moves)
        assert machine.suspected(), "and it stays so"
    machine.live(2)
    assert machine.signs() == {}


def test_a_log_of_rank_0_makes_the_others_known_too() -> None:
    machine = Machine(steps=[0])
    machine.live(30)
    machine.live(14, steps=False, flow=False)
    assert machine.suspected()


def test_with_no_steps_that_stall_nobody_notices_who_polls() -> None:
    """The reason for all this: the progress signal does it, and nothing else."""
    machine = Machine(steps=[])
    machine.live(30)
    machine.live(200)
    assert machine.glanced == []


def test_a_stall_is_no_suspicion_where_stacks_move() -> None:
    machine = Machine()
    machine.live(30)
    chance = random.Random(1)
    for _ in range(200):  # it evaluates: here now and there then
        machine.live(1, steps=False, stack=chance.choice(("user", "other", "item")), moves=1)
        assert not machine.overdue()
    assert 0 < len(machine.glanced) < 200


def test_a_stall_that_was_explained_makes_wonder_again_only_after_longer() -> None:
    machine = Machine(steps=[0])
    machine.live(30)
    for second in range(6):
        machine.live(1, steps=False, stack=("user", "other")[second % 2])
    glanced = len(machine.glanced)
    assert glanced
    machine.live(2, steps=False, stack="item")
    assert len(machine.glanced) == glanced


@pytest.mark.parametrize("steps", [[0], ALL], ids=["rank 0 logs", "all log"])
def test_a_job_whose_steps_come_to_take_longer_is_told(steps: Iterable[int]) -> None:
    machine = Machine(steps=steps)
    assert machine.monitor.pace(machine.now) is None
    machine.live(400)
    assert machine.monitor.slowdown() is None
    pace = machine.monitor.pace(machine.now + 5)
    assert pace is not None and pace.step_s == pytest.approx(1 / 3, rel=0.05) and pace.age_s == 5.0
    machine.live(100, slower=1.5)
    slow = machine.monitor.slowdown()
    assert slow is not None and slow.step_s / slow.usual_s == pytest.approx(1.5, rel=0.05)
    slower = machine.monitor.pace(machine.now)
    assert slower is not None and slower.step_s == pytest.approx(0.5, rel=0.05)
    assert machine.glanced == [], "nobody is looked at for that"
    machine.live(100)
    assert machine.monitor.slowdown() is None


class LoggedJob:
    """The log of rank 0, which tells steps and throughput each second; the other ranks log nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.signal = ProgressSignal(SignalKind.LINES, 3.0, authoritative=True)
        self.begin()

    def begin(self) -> None:
        self.numbers = followed(USUAL)

    def live(self, monitor: JobMonitor, seconds: int, rate: float) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.numbers.take(
                f"\x1b[32mstep: {self.now:.0f}  \x1b[34mtps: {rate:,.0f}  \x1b[36mmfu: 31.50%\n", True, self.now
            )
            self.signal.look(True, self.now, self.now)
            self.signal.work = self.numbers.work
            spent = CpuSample(self.now, 0.4 * self.now, 0.0, int(self.now))
            monitor.add_cpu_samples({(pid, 1): (Rank(pid), spent) for pid in ALL})
            monitor.add_signals({(0, 1): (self.signal,)})


def test_one_log_that_says_otherwise_than_most_is_not_believed() -> None:
    machine = Machine()
    machine.live(400)
    machine.live(150, slower=1.5, slow=[3, 4])
    assert machine.monitor.slowdown() is None
    machine.live(150, slower=1.5, slow=range(3, 8))
    assert machine.monitor.slowdown() is not None


@pytest.mark.parametrize(("every", "told"), [(3, True), (1, False)])
def test_a_heartbeat_times_steps_only_where_it_is_seen_to_rest(every: int, told: bool) -> None:
    """One that advances in every look tells how often it is looked at, which is less often on a crowded machine."""
    beat, trainer = (
        ProgressSignal(SignalKind.HEARTBEAT, 3.0, authoritative=True),
        JobMonitor(SETTINGS)._watched(Rank(0)),
    )
    at = 0.0
    for look in range(900):
        at += 1.0 if look < 600 else 1.5
        beat.look(look % every == 0, at)
        trainer.set_signals([beat])
    assert (trainer.step_times.slowdown is not None) is told


@pytest.mark.parametrize("lines", [True, False], ids=["step lines", "none"])
def test_where_no_lines_count_steps_collectives_time_them(lines: bool) -> None:
    """Forty collectives a step; each comes later when the job slows down, and no step time is shown for that."""
    monitor = JobMonitor(SETTINGS)
    key, ring, log = (1, 1), RingSignal(3.0), ProgressSignal(SignalKind.LINES, 3.0, authoritative=True)
    steps = 0.0
    for second in range(500):
        now, steps = float(second), steps + (3.0 if second < 400 else 2.0)
        ring.look(second > 0, now, int(40 * steps))
        log.look(int(steps) % 2 == 0, now, int(steps))
        monitor.add_cpu_samples({key: (Rank(0), CpuSample(now, now, 0.0, second))})
        monitor.add_signals({key: (ring, log) if lines else (ring,)})
    slow = monitor.slowdown()
    assert slow is not None and slow.by_collectives is not lines
    assert slow.step_s / slow.usual_s == pytest.approx(1.5, rel=0.05)
    assert (monitor.pace(now) is not None) is lines
    if lines:
        assert slow.why.startswith("a step takes")
    else:
        assert re.search(r"\bcollective .*\b12\.5 ms, 50 % .*\b8\.33 ms\b", slow.why)


@pytest.mark.parametrize("fall", [0.95, 0.67])
def test_a_job_whose_throughput_falls_is_told_though_its_steps_take_as_long_as_before(fall: float) -> None:
    monitor, log = JobMonitor(SETTINGS), LoggedJob()
    log.live(monitor, 400, 12_000.0)
    assert monitor.slowdown() is None
    log.live(monitor, 100, fall * 12_000.0)
    slow = monitor.slowdown()
    if fall > 0.9:
        assert slow is None
        return
    assert slow is not None and re.match(r"tokens/s .* 33 %.* 12,000 .* 8,040$", slow.why)
    log.live(monitor, 100, 12_000.0)
    assert monitor.slowdown() is None
    log.begin()  # another start of the job writes to the same log: what was usual is not any more
    log.live(monitor, 100, 4_000.0)
    assert monitor.slowdown() is None


def test_who_writes_no_steps_is_never_told_to_be_slower() -> None:
    machine = Machine(authoritative=False)
    machine.live(400)
    machine.live(200, slower=2.0)
    assert machine.monitor.slowdown() is None


def test_a_slowdown_is_switched_off_by_a_setting() -> None:
    machine = Machine()
    machine.monitor = JobMonitor(replace(SETTINGS, slow_share=0.0))
    machine.live(400)
    machine.live(100, slower=1.5)
    assert machine.monitor.slowdown() is None


def test_while_steps_advance_nobody_stands_still() -> None:
    machine = Machine()
    machine.live(30)
    machine.live(300, how="silent")  # the main thread waits for others that train
    assert machine.signs() == {}
    assert machine.glanced == []
    machine.live(8, how="silent", steps=False, flow=False)
    assert machine.overdue() == list(ALL)
    assert all(sign.seconds < 10 for sign in machine.signs().values()), "from the last step on, not from the last pulse"


def test_one_rank_that_gets_on_is_enough() -> None:
    machine = Machine()
    machine.live(30)
    machine.live(60, how="silent", steps=[3])
    assert 3 not in machine.signs()
    assert not machine.suspected()


def test_bytes_alone_do_nothing_and_neither_do_lines_of_unknown_meaning() -> None:
    machine = Machine(authoritative=False)
    machine.live(30)
    machine.live(100, flow=False)
    machine.live(30)
    machine.live(100, steps=False)
    assert machine.glanced == []


def test_bytes_and_lines_of_unknown_meaning_together_make_wonder_and_are_borne_for_longer() -> None:
    machine = Machine(authoritative=False)
    machine.live(30)
    machine.live(50, flow=False, steps=False)
    assert len(set(machine.glanced)) == 8
    assert len(machine.signs()) == 8 and not machine.overdue()
    machine.live(20, flow=False, steps=False)
    assert machine.suspected()


def test_bytes_veto_nothing() -> None:
    machine = Machine(steps=[])
    machine.live(30)
    machine.live(9, how="silent")
    assert machine.suspected()


@pytest.mark.parametrize(("computes", "seconds"), [(True, 60), (False, 14)])
def test_gpus_that_compute_make_a_stall_less_sure(computes: bool, seconds: int) -> None:
    machine = Machine()
    machine.live(30, power=True)
    machine.live(seconds - 1, steps=False, flow=False, power=computes, stack="item")
    assert machine.suspected() is not computes
    machine.live(16, steps=False, flow=False, power=computes, stack="item")
    assert machine.suspected()


def test_a_stall_that_is_not_sure_makes_nobody_else_overdue() -> None:
    machine = Machine(steps=[0])
    machine.live(30, power=True)
    machine.live(30, steps=False, flow=False, power=True, stack="item")
    assert len(machine.signs()) == 8 and not machine.overdue()


def test_who_computes_in_a_loop_all_the_time_is_borne_unless_more_than_steps_has_stalled() -> None:
    machine = Machine()
    machine.live(30)
    machine.live(50, how="pinned", steps=False, moves=1)
    assert not machine.overdue()
    spinning = Machine()
    spinning.live(30)
    spinning.live(16, how="pinned", steps=False, flow=False, moves=1)
    assert spinning.suspected()


def test_a_loop_that_was_innocent_is_borne_at_its_place() -> None:
    machine = Machine()
    machine.live(30)
    machine.live(20, steps=False, flow=False, moves=1)
    assert machine.suspected()
    machine.live(60)
    machine.live(30, steps=False, flow=False, moves=1)
    assert machine.signs() and not machine.overdue()
    machine.live(30, steps=False, flow=False, moves=1)
    assert machine.suspected()


def test_who_writes_in_a_loop_is_not_overdue() -> None:
    machine = Machine()
    machine.live(30)
    machine.live(1, steps=False)
    written = 0
    take = machine.monitor.take

    def writing(glances: dict[Key, StackSample]) -> None:
        nonlocal written
        written += 1
        take({key: StackSample(glance.at, glance.state, written) for key, glance in glances.items()})

    machine.monitor.take = writing  # type: ignore[method-assign, assignment]
    machine.live(60, steps=False, flow=False, stack="write", moves=1)
    assert {sign.doing for sign in machine.signs().values()} == {Doing.LOOPING}
    assert not machine.overdue()


def test_before_the_steps_have_a_rhythm_they_say_nothing() -> None:
    machine = Machine(beats=False)
    machine.live(3)
    machine.live(100, steps=False, flow=False)
    assert machine.glanced == []
    machine = Machine(beats=False)
    machine.live(6)
    machine.live(100, steps=False, flow=False)
    assert machine.signs() and not machine.overdue(), "without a known rhythm a start is borne"
