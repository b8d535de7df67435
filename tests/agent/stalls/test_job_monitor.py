"""The watch over pulses and stacks: what makes wonder, what makes sure, and what is innocent."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hangdog_agent.discovery.cpu_activity import CpuActivity, CpuSample, mode
from hangdog_agent.stalls.baseline import Baseline
from hangdog_agent.stalls.job_monitor import JobMonitor, Key
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample, stack_motion_of
from hangdog_models.diagnosis.observe import activity
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import Doing, Sign
from support.cases.stories import trace

RULES = packaged()
SETTINGS = StallSettings(settle_s=10.0, suspicious_s=3.0, patience_s=5.0, factor=3.0, start_s=300.0)
#: Seconds on a core, waiting for one, and wake-ups, of each second spent like this; a crowd is two who want each core.
SPENT = {
    "lively": (0.4, 0.0, 30), "silent": (0.0, 0.0, 0), "pinned": (0.99, 0.0, 5), "dozing": (0.001, 0.002, 10),
    "pinned in a crowd": (0.33, 0.66, 5),
}  # fmt: skip


class Machine:
    """Eight trainers of one job, played second by second."""

    def __init__(self, settings: StallSettings = SETTINGS) -> None:
        self.monitor = JobMonitor(settings)
        self.now = 100.0
        self.counters = {(pid, 1): CpuSample(self.now, 0.0, 0.0, 0) for pid in range(8)}
        self.glanced: list[Key] = []
        self.held: set[int] = set()
        #: Seconds between two beats while the job is calm, and when the next one is.
        self.calm_s, self.due = 1.0, self.now

    def live(
        self, seconds: int, how: str, stacks: dict[int, tuple[str, int]] | None = None, lively: Iterable[int] = ()
    ) -> None:
        """Lets time pass. `stacks`: rank to (stack, lines it moves each second); the others stand in `backward`."""
        for _ in range(seconds):
            self.now += 1.0
            beats = {}
            for key, before in self.counters.items():
                ran, queued, wakes = SPENT["lively" if key[0] in lively else how]
                after = CpuSample(self.now, before.ran_s + ran, before.queued_s + queued, before.wakes + wakes)
                self.counters[key] = after
                beats[key] = (Rank(key[0]), after)
            if self.now < self.due:
                continue
            self.monitor.add_cpu_samples(beats)
            wanted = self.monitor.wants(self.now)
            self.glanced += wanted
            self.monitor.take({key: self.glance(key, stacks or {}, how == "dozing") for key in wanted})
            self.due = self.now + (self.calm_s if self.monitor.calm(self.now, moving(self)) else 1.0)

    def glance(self, key: Key, stacks: dict[int, tuple[str, int]], dozes: bool) -> StackSample:
        stack, lines = stacks.get(key[0], ("backward", 0))
        state = activity.read(
            trace(key[0], stack, shift=int(self.now) * lines, state="t" if key[0] in self.held else "S"), RULES
        )
        counted = self.counters[key]
        return StackSample(self.now, state, ran_s=counted.ran_s, wakes=counted.wakes, dozes=dozes)

    def signs(self) -> dict[Rank, Sign]:
        return self.monitor.signs(self.now)


def test_modes() -> None:
    start = CpuSample(0.0, 0.0, 0.0, 0)
    assert mode(start, CpuSample(1.0, 0.3, 0.1, 20)) is CpuActivity.ACTIVE
    assert mode(start, CpuSample(1.0, 0.001, 0.0, 1)) is CpuActivity.IDLE
    assert (
        mode(start, CpuSample(1.0, 0.001, 0.0, 100)) is CpuActivity.ACTIVE
    )  # polls, as a loop with a short sleep does
    assert (
        mode(start, CpuSample(1.0, 0.2, 0.78, 50)) is CpuActivity.BUSY
    )  # wants to run all the time, on cores that are taken


def test_who_looks_for_a_lock_file_ten_times_a_second_is_as_good_as_silent() -> None:
    for ran_s, silent in ((0.001, True), (0.01, False)):
        baseline = Baseline(settle_s=1.0)
        for second in range(4):
            baseline.add(CpuSample(float(second), second * ran_s, 0.0, second * 10))
        assert baseline.idle is silent and (baseline.since is not None) is silent


def test_a_lively_job_is_never_glanced_at() -> None:
    machine = Machine()
    machine.live(600, "lively")
    assert machine.glanced == [] and machine.signs() == {}


def test_a_standstill_is_overdue_within_seconds() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.live(2, "silent")
    assert machine.glanced == []
    machine.live(2, "silent")
    assert len(set(machine.glanced)) == 1  # one stands for all, until it is seen to stand still
    machine.live(5, "silent")
    signs = machine.signs()
    assert len(signs) == 8 and {sign.doing for sign in signs.values()} == {Doing.STILL}
    assert all(sign.overdue and sign.seconds == 9.0 for sign in signs.values())
    machine.live(1, "lively")
    assert machine.signs() == {}


def test_who_spins_in_a_wait_stands_still_too() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.live(10, "pinned")
    assert all(sign.overdue for sign in machine.signs().values()) and len(machine.signs()) == 8


def test_who_computes_all_the_time_is_glanced_at_rarely_and_shows_nothing() -> None:
    machine = Machine()
    machine.live(30, "lively")
    computing = {rank: ("user" if rank % 2 else "other", 1) for rank in range(8)}
    machine.live(300, "pinned", computing)
    assert not any(sign.overdue for sign in machine.signs().values())
    assert len(machine.glanced) < 300


@pytest.mark.parametrize("every_s", [13, 1000])
def test_an_upload_is_borne_while_something_of_it_is_taken(every_s: int) -> None:
    """Where buffers are large its thread is woken once in many seconds; where nothing is taken it is suspected after a minute."""
    machine = Machine()
    machine.live(30, "lively")
    overdue = []
    for second in range(180):
        counted = machine.counters[3, 1]
        machine.counters[3, 1] = replace(counted, wakes=counted.wakes + (second % every_s == 0))
        machine.live(1, "silent", {3: ("upload", 0)})
        overdue.append(Rank(3) in machine.signs() and machine.signs()[Rank(3)].overdue)
    assert any(overdue) is (every_s == 1000)
    assert overdue.index(True) in range(55, 70) if every_s == 1000 else machine.signs()[Rank(3)].doing is Doing.LOOPING


def test_before_a_rank_has_a_rhythm_it_may_wait_for_minutes() -> None:
    machine = Machine()
    machine.live(5, "lively")
    machine.live(200, "silent")
    assert machine.signs() and not any(sign.overdue for sign in machine.signs().values())
    machine.live(120, "silent")
    assert all(sign.overdue for sign in machine.signs().values())


def test_a_job_whose_steps_another_machine_saw_has_started_here_as_well() -> None:
    machine = Machine()
    machine.live(5, "lively")
    machine.live(20, "silent")
    assert machine.signs() and not any(sign.overdue for sign in machine.signs().values())
    machine.monitor.ask(machine.now + 30.0, steps=True)
    machine.live(8, "silent")
    assert all(sign.overdue for sign in machine.signs().values())


def test_a_job_that_begins_anew_is_starting_whatever_its_last_run_had_done() -> None:
    machine = Machine()
    machine.live(5, "lively")
    machine.monitor.ask(machine.now + 5.0, steps=True)
    machine.live(5, "lively")
    machine.counters = {(pid, 2): CpuSample(machine.now, 0.0, 0.0, 0) for pid in range(8)}
    machine.live(5, "lively")
    machine.live(60, "silent")
    assert machine.signs() and not any(sign.overdue for sign in machine.signs().values())


def test_a_wait_that_was_innocent_is_borne_at_its_place_and_not_at_others() -> None:
    machine = Machine()
    everybody = dict.fromkeys(range(8), ("barrier", 0))
    machine.live(30, "lively")
    machine.live(20, "silent", everybody)
    assert all(sign.overdue for sign in machine.signs().values())
    machine.live(1, "silent", dict.fromkeys(range(8), ("user", 0)))  # it went on
    machine.live(60, "lively")
    machine.live(30, "silent", everybody)
    assert machine.signs() and not any(sign.overdue for sign in machine.signs().values())
    machine.live(60, "lively")
    machine.live(40, "silent")
    assert all(sign.overdue for sign in machine.signs().values())


def test_one_at_work_beside_waiting_ones_is_told_apart() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.live(9, "silent", {3: ("user", 1)}, lively=[3])
    assert machine.signs()[Rank(3)].doing is Doing.WORKING
    assert [rank for rank, sign in machine.signs().items() if sign.overdue] == [0, 1, 2, 4, 5, 6, 7]
    machine.live(4, "silent", {3: ("user", 1)}, lively=[3])
    assert machine.signs()[Rank(3)].doing is Doing.LOOPING


def test_who_is_asked_for_elsewhere_is_glanced_at_though_lively() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.monitor.ask(machine.now + 12.0)
    machine.live(11, "lively", dict.fromkeys(range(8), ("user", 1)))
    assert {sign.doing for sign in machine.signs().values()} == {Doing.LOOPING}
    machine.live(10, "lively")
    assert machine.signs() == {}


@pytest.mark.parametrize(
    ("stacks", "moved", "doing"),
    [
        (["backward"] * 4, 0, Doing.STILL),
        (["user"] * 4, 1, Doing.WORKING),
        (["user"] * 8, 1, Doing.LOOPING),
        (["user", "other", "backward", "other"], 0, Doing.WORKING),
        (["user", "other", "backward", "backward", "backward", "backward"], 0, Doing.STILL),
        (["write"] * 4, 0, Doing.WRITING),
    ],
)
def test_postures(stacks: list[str], moved: int, doing: Doing) -> None:
    glances = [
        StackSample(float(at), activity.read(trace(0, stack, shift=moved * at), RULES), 1000 * at)
        for at, stack in enumerate(stacks)
    ]
    shown = stack_motion_of(glances)
    assert shown is not None and shown.doing is doing
    assert stack_motion_of(glances[:2]) is None


def test_after_an_alarm_that_was_none_one_stands_for_all_again() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.live(12, "pinned")
    assert all(sign.overdue for sign in machine.signs().values())
    machine.glanced.clear()
    for second in range(600):  # always busy, here now and there then
        machine.live(1, "pinned", {rank: (("user", "other")[(rank + second) % 2], 1) for rank in range(8)})
    assert not any(sign.overdue for sign in machine.signs().values())
    assert len(machine.glanced) < 600 / 15 * 8 / 2, "half of what it would take to go on glancing at everybody"


def test_who_runs_all_the_time_is_borne_for_longer_on_crowded_cores_and_who_sleeps_is_not() -> None:
    for how, overdue in (("silent", True), ("pinned", True), ("pinned in a crowd", False)):
        machine = Machine()
        machine.live(30, "lively")
        machine.live(14, how)
        assert machine.signs() and all(sign.overdue is overdue for sign in machine.signs().values())


def test_who_sleeps_between_two_tries_is_borne_no_longer_on_crowded_cores() -> None:
    machine, polls = Machine(), dict.fromkeys(range(8), ("user", 0))
    machine.live(30, "lively")
    machine.live(int(2 * SETTINGS.start_s) + 20, "dozing", polls)
    signs = machine.signs().values()
    assert {sign.doing for sign in signs} == {Doing.LOOPING}
    assert all(sign.overdue and sign.crowding == 1.0 for sign in signs)


def test_who_is_held_by_a_debugger_is_borne_for_minutes_not_for_ever() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.held = {3}
    machine.live(200, "silent")
    assert [rank for rank, sign in machine.signs().items() if not sign.overdue] == [3]
    machine.live(120, "silent")
    assert all(sign.overdue for sign in machine.signs().values())


def test_crowded_cores_are_told_from_free_ones_by_who_waits_for_one() -> None:
    baseline = Baseline(settle_s=1.0)
    assert baseline.crowding == 1.0
    for second in range(12):
        baseline.add(CpuSample(float(second), 0.3 * second, 0.6 * second, 10 * second))
    assert baseline.crowding == pytest.approx(3.0)
    for second in range(12, 24):  # asleep nearly all the time, and late once in a while
        baseline.add(CpuSample(float(second), 3.3 + 0.001 * second, 6.6 + 0.05 * second, 10 * second))
    assert baseline.crowding == 1.0
    for second in range(24, 36):
        baseline.add(CpuSample(float(second), 3.4, 7.8 + second, 10 * second))
    assert baseline.crowding == 4.0, "for ever is too long"


@pytest.mark.parametrize("beat_s", [1.0, 3.0])
def test_crowded_cores_are_forgotten_in_the_same_seconds_however_rarely_they_are_sampled(beat_s: float) -> None:
    baseline = Baseline(settle_s=1.0)
    times = [beat_s * beat for beat in range(round(24 / beat_s))]
    for at in times:
        baseline.add(CpuSample(at, 0.3 * at, 0.6 * at, int(10 * at)))
    last = times[-1]
    for second in range(1, 12):  # it is sampled every second from the moment it is in doubt
        baseline.add(CpuSample(last + second, 0.3 * last + second, 0.6 * last, int(10 * last) + second))
        if second == 4:
            assert baseline.crowding > 1.1, "half of what counts was crowded"
    assert baseline.crowding == 1.0


def moving(machine: Machine) -> frozenset[Rank]:
    return machine.monitor.moving(machine.now, machine.signs())


def test_a_job_that_just_started_is_not_seen_to_move_yet() -> None:
    machine = Machine()
    machine.live(5, "lively")
    assert moving(machine) == frozenset()
    machine.live(10, "lively")
    assert moving(machine) == frozenset(map(Rank, range(8)))


def test_a_pause_of_some_seconds_is_no_standstill_and_a_long_one_moves_nobody() -> None:
    machine = Machine()
    machine.live(30, "lively")
    machine.live(2, "silent")
    assert len(moving(machine)) == 8
    machine.live(7, "silent")
    assert machine.signs() and moving(machine) == frozenset(), "who shows a standstill is not seen to move"
    machine.live(1, "lively")
    assert len(moving(machine)) == 8


def test_who_spins_from_the_start_is_never_seen_to_move() -> None:
    machine = Machine()
    machine.live(60, "pinned")
    assert moving(machine) == frozenset()


def test_a_job_is_calm_while_all_its_ranks_move_and_nobody_asks() -> None:
    machine = Machine()

    def calm() -> bool:
        return machine.monitor.calm(machine.now, moving(machine))

    machine.live(5, "lively")
    assert not calm(), "nothing is known of it yet"
    machine.live(25, "lively")
    assert calm()
    machine.live(1, "silent", lively=range(1, 8))
    assert not calm(), "one rank rests"
    machine.live(1, "lively")
    assert calm()
    machine.monitor.ask(machine.now + 5)
    machine.live(1, "lively")
    assert not calm(), "another machine suspects it"
    machine.live(10, "lively")
    assert calm()


@pytest.mark.parametrize("lively", range(30, 34))
def test_a_calm_job_that_stalls_is_overdue_two_seconds_later_at_most(lively: int) -> None:
    needed = {}
    for calm_s in (1.0, 3.0):
        machine = Machine()
        machine.calm_s = calm_s
        machine.live(lively, "lively")
        while not any(sign.overdue for sign in machine.signs().values()):
            machine.live(1, "silent")
        needed[calm_s] = machine.now
    assert needed[1.0] <= needed[3.0] <= needed[1.0] + 2
