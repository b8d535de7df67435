"""A job that starts, or starts again: how long what its ranks do is borne, by the agent's watch and the server's together."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from hangdog_agent.discovery.cpu_activity import CpuSample
from hangdog_agent.stalls.job_monitor import JobMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe import activity
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import RECHECK_S
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob
from support.cases.reasons import words_of
from support.cases.stories import C10D, job, trace, twice

RULES, SETTINGS = packaged(), StallSettings()
#: Stacks of a start, outermost first: torch 2.13.
JOINS = ["<module> train.py", f"init_process_group {C10D}", f"_store_based_barrier {C10D}"]
READS = ["<module> train.py", "main train.py", "read_config settings.py"]
IMPORTS = ["<module> train.py", "_find_and_load <frozen importlib._bootstrap>"]
LOCKED = [
    "<module> train.py",
    "load torch/utils/cpp_extension.py",
    "_jit_compile torch/utils/cpp_extension.py",
    "wait torch/utils/file_baton.py",
]
BUILDS = [*LOCKED[:3], "_run_ninja_build torch/utils/cpp_extension.py", "communicate subprocess.py"]
TRAINS = ["<module> train.py", "step train.py", f"all_reduce {C10D}"]
#: Seconds on a core and wake-ups of each second spent like this, and whether it slept for a time that it set itself.
SPENT = {
    "lively": (0.4, 30, False), "silent": (0.0, 0, False), "pinned": (0.99, 5, False), "looks": (0.001, 10, True),
    "stopped": (0.0, 0, False),
}  # fmt: skip

#: What a rank does: its stack, how it spends its time, and whether it moves within its innermost function.
Does = tuple[Sequence[str], str, bool]
Story = Callable[[int, float], Does]
JOINING: Does = (JOINS, "silent", False)


class Start:
    """The ranks of one machine, second by second; each life of a rank is a process of its own."""

    def __init__(self, ranks: Sequence[int] = range(4)) -> None:
        self.monitor, self.tracker, self.now = JobMonitor(SETTINGS), StallTracker(), 100.0
        self.life = 0
        self.begin(ranks)

    def begin(self, ranks: Sequence[int]) -> None:
        """All are started (again)."""
        self.life += 1
        self.spent: dict[tuple[int, int], tuple[float, int]] = {(rank, self.life): (0.0, 0) for rank in ranks}
        self.local = AnnouncedJob("llama", tuple(Rank(rank) for rank in ranks), 4)

    def suspected_after(self, story: Story, seconds: int, helped: int | None = None) -> int | None:
        """After how many seconds of this the job is suspected; None if it is not meanwhile. `helped`: its children compile."""
        for second in range(1, seconds + 1):
            self.now += 1.0
            beats: dict[tuple[int, int], tuple[Rank, CpuSample | None]] = {}
            for key, (ran, wakes) in self.spent.items():
                more = SPENT[story(key[0], second)[1]]
                self.spent[key] = (ran + more[0], wakes + more[1])
                beats[key] = (Rank(key[0]), CpuSample(self.now, self.spent[key][0], 0.0, self.spent[key][1]))
            self.monitor.add_cpu_samples(beats)
            if self.tracker.doubted():
                self.monitor.ask(self.now + RECHECK_S)
            wanted = self.monitor.wants(self.now)
            self.monitor.take({key: self._sample(key, story(key[0], second), helped) for key in wanted})
            signs = self.monitor.signs(self.now)
            self.tracker.note("a", {"llama": signs} if signs else {}, self.now)
            if self.tracker.suspicion("llama", {"a": self.local}, self.now) is not None:
                return second
        return None

    def _sample(self, key: tuple[int, int], does: Does, helped: int | None) -> StackSample:
        stack, how, moves = does
        runs = how == "pinned"
        state = "R" if runs else "T" if how == "stopped" else "S"
        seen = trace(key[0], stack, state=state, shift=int(self.now) * moves, active=runs)
        ran, wakes = self.spent[key]
        children = 0.9 * self.now if key[0] == helped else 0.0
        return StackSample(self.now, activity.read(seen, RULES), 0, ran, wakes, SPENT[how][2], children)


def all_but(rank: int, does: Does) -> Story:
    """The others wait for one that does something before it joins."""
    return lambda one, _: does if one == rank else JOINING


BEFORE: Mapping[str, Does] = {
    "asleep": (READS, "silent", False),
    "at work": (READS, "pinned", True),
    "spinning": (READS, "pinned", False),
    "stale lock": (LOCKED, "looks", False),
}


@pytest.mark.parametrize("what", BEFORE)
def test_a_rank_that_never_joins_is_suspected_after_the_time_that_joining_may_take(what: str) -> None:
    after = Start().suspected_after(all_but(3, BEFORE[what]), 700)
    assert after is not None and SETTINGS.start_s <= after <= SETTINGS.start_s + 10


@pytest.mark.parametrize("what", BEFORE)
def test_likewise_after_an_elastic_restart_though_the_job_had_a_rhythm(what: str) -> None:
    on = Start()
    assert on.suspected_after(lambda *_: (TRAINS, "lively", True), 60) is None
    on.begin(range(4))
    assert on.suspected_after(all_but(1, BEFORE[what]), int(SETTINGS.start_s) - 5) is None
    assert on.suspected_after(all_but(1, BEFORE[what]), 20) is not None


def test_a_rank_whose_process_is_not_there_is_waited_for_no_longer_and_named() -> None:
    on = Start()
    assert on.suspected_after(lambda *_: (TRAINS, "lively", True), 60) is None
    on.begin([0, 1, 2])
    after = on.suspected_after(lambda *_: JOINING, 700)
    assert after is not None and SETTINGS.start_s <= after <= SETTINGS.start_s + 10
    found = diagnose(twice([trace(rank, JOINS, state="S") for rank in range(3)]), job(world=4, per_machine=1))
    assert found.coverage.missing == (3,) and found.suspects[0].ranks == (3,)
    assert "dump of rank 3" in words_of(found.because, "collect-awaited-ranks")


def test_a_start_that_takes_minutes_is_no_standstill() -> None:
    """Imports from a busy share, a wait and some work in turn, look like the rhythm of a job that trains."""
    on = Start()
    assert on.suspected_after(lambda *_: (IMPORTS, "lively", True), 100) is None
    assert on.suspected_after(all_but(2, BEFORE["asleep"]), 250) is None
    assert on.suspected_after(lambda *_: (TRAINS, "lively", True), 60) is None
    assert on.suspected_after(lambda *_: (TRAINS, "silent", False), 20) is not None, "now it trains, and is known"


def test_how_long_a_start_took_says_nothing_of_the_rhythm_of_training() -> None:
    on = Start()
    assert on.suspected_after(lambda *_: (IMPORTS, "pinned", True), 90) is None
    assert on.suspected_after(lambda *_: (READS, "silent", False), 60) is None
    assert on.suspected_after(lambda *_: (TRAINS, "lively", True), 60) is None
    after = on.suspected_after(lambda *_: (TRAINS, "silent", False), 30)
    assert after is not None and after <= 12


def test_a_lock_that_a_killed_build_left_is_suspected_where_all_wait_for_it() -> None:
    """Where none of a machine's ranks builds, nobody does but on another machine, whose ranks show it."""
    after = Start().suspected_after(lambda *_: (LOCKED, "looks", False), 700)
    assert after is not None and SETTINGS.outside_s <= after <= SETTINGS.outside_s + 10


def test_a_build_of_some_minutes_is_waited_for() -> None:
    def story(rank: int, _: float) -> Does:
        return (BUILDS, "silent", False) if rank == 0 else (LOCKED, "looks", False)

    assert Start().suspected_after(story, int(2 * SETTINGS.start_s) - 10, helped=0) is None


#: Ranks that spin in their waits, as those of MPI do: the CPU activity is the same at work, and no rule knows the call.
SPINS = ["<module> train.py", "train train.py", "average_gradients train.py"]


@pytest.mark.parametrize(("how", "within"), [("stopped", 20), ("silent", None)])
def test_a_stopped_rank_is_suspected_in_seconds_though_the_others_spin_and_no_baseline_is_known(
    how: str, within: int | None
) -> None:
    on = Start()
    assert on.suspected_after(lambda *_: (SPINS, "pinned", True), 60) is None
    after = on.suspected_after(lambda rank, _: (SPINS, how, False) if rank == 2 else (SPINS, "pinned", False), 120)
    assert after is None if within is None else after is not None and after <= within


def test_a_stopped_rank_is_no_stall_while_others_get_on() -> None:
    def story(rank: int, second: float) -> Does:
        at_work: Does = (READS if int(second) % 3 else SPINS, "pinned", True)
        return (SPINS, "stopped", False) if rank == 2 else at_work

    on = Start()
    assert on.suspected_after(lambda *_: (SPINS, "pinned", True), 60) is None
    assert on.suspected_after(story, 60) is None
