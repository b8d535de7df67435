"""How a job moved over the last half hour: in bins, the worst moment of each, bounded, and as its machines say."""

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_server.cluster.job_activity import BIN_S, BINS, JOBS, JobActivity, RankMotion
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob

ALL, HALF = RankMotion(8, 0), RankMotion(4, 4)


def test_a_moment_lies_in_its_bin_and_the_present_one_is_last() -> None:
    kept = JobActivity()
    kept.note([("a", ALL)], 1000.0)
    kept.note([("a", HALF)], 1000.0 + 2 * BIN_S)
    strip = kept.strip("a", 1000.0 + 3 * BIN_S)
    assert len(strip) == BINS and strip[-4:] == (ALL, None, HALF, None) and not any(strip[:-4])
    assert kept.strip("b", 1000.0) == ()


def test_of_a_bin_the_worst_moment_is_kept() -> None:
    kept = JobActivity()
    for motion in (ALL, HALF, ALL):
        kept.note([("a", motion)], 1000.0)
    assert kept.strip("a", 1000.0)[-1] == HALF


def test_what_is_older_than_half_an_hour_is_forgotten() -> None:
    kept = JobActivity()
    kept.note([("a", ALL), ("b", ALL)], 1000.0)
    later = 1000.0 + BINS * BIN_S
    kept.note([("b", HALF)], later)
    assert kept.strip("a", later) == () and [one for one in kept.strip("b", later) if one] == [HALF]


def test_so_many_jobs_are_kept_and_no_more() -> None:
    kept = JobActivity()
    kept.note([(str(number), ALL) for number in range(JOBS + 5)], 1000.0)
    assert kept.strip("4", 1000.0) == () and kept.strip("5", 1000.0) and kept.strip(str(JOBS + 4), 1000.0)


def test_it_is_due_twice_a_bin() -> None:
    kept = JobActivity()
    assert kept.due(0.0)
    kept.note([], 0.0)
    assert not kept.due(BIN_S / 2 - 1) and kept.due(BIN_S / 2)


def test_who_moves_is_who_shows_no_sign_of_a_stall_and_is_heard_of() -> None:
    stalls = StallTracker()
    running = {name: AnnouncedJob("a", (Rank(at), Rank(at + 1))) for at, name in ((0, "x"), (2, "y"), (4, "z"))}
    assert stalls.motion("a", running) == RankMotion(6, 0)
    signs = {Rank(0): Sign(Doing.STILL, 9.0), Rank(1): Sign(Doing.WRITING, 9.0), Rank(5): Sign(Doing.STILL, 9.0)}
    stalls.note("x", {"a": signs}, 1.0)  # rank 5 is not its own
    stalls.note("y", {"a": {Rank(2): Sign(Doing.LOOPING, 9.0)}}, 1.0)
    assert stalls.motion("a", running, {"z"}) == RankMotion(2, 2, 2)
