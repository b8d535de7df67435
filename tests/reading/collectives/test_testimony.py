"""What libraries counted, from its bytes; and what several machines say at one moment, put together."""

import pytest

from hangdog_models.collectives import RankCounters, RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import (
    LibraryCounters,
    flight_record,
    joined,
    ras_report,
    united,
)
from hangdog_models.stack import Missing, Reason
from support.cases.evidence import flight

A, B = "machine-a", "machine-b"
OWNER = {Rank(0): A, Rank(1): A, Rank(2): B, Rank(3): B}


def counters(rank: int, enqueued: int = 5) -> RankCounters:
    return RankCounters(Rank(rank), {"0": enqueued}, {"0": 4}, (), {}, {})


def test_bytes_that_are_no_record_and_no_report() -> None:
    for garbage in (b"", b"\x80\x02}", b"{", b"\xff\xfe", b"[]", b"Traceback"):
        with pytest.raises(UnreadableEvidence):
            flight_record(garbage, Rank(0))
        with pytest.raises(UnreadableEvidence):
            ras_report(garbage)
    assert flight_record(flight(7, 6), Rank(3)).rank == 3


def test_each_rank_is_told_once_by_the_machine_it_runs_on() -> None:
    told = {
        B: {0: LibraryCounters((counters(2), counters(0, enqueued=99)))},
        A: {
            1: LibraryCounters((counters(1), counters(2, enqueued=99))),
            0: LibraryCounters((counters(0), counters(1, enqueued=7))),
        },
    }
    assert joined(told, OWNER).counters == (counters(0), counters(1, enqueued=7), counters(2))


def test_what_is_missing_is_said_once_for_all_it_is_true_of() -> None:
    late = Missing(Reason.TIMED_OUT, "no new dump within 4 s")
    stopped = Missing(Reason.STOPPED, "stopped")
    told = {
        A: {0: LibraryCounters((counters(0),), lacking=((Rank(1), late),), unreadable={"x": "why"})},
        B: {0: LibraryCounters(lacking=((Rank(2), stopped), (Rank(3), late), (None, late)))},
    }
    found = joined(told, OWNER)
    several, one, ras = found.notes
    assert "flight record" in several and several.endswith(f" ranks 1,3: {late.message}")
    assert "flight record" in one and one.endswith(f" rank 2: {stopped.message}")
    assert "NCCL RAS" in ras and ras.endswith(f": {late.message}")
    assert found.unreadable == {"machine-a, x": "why"}


def test_nothing_is_said_of_a_job_in_which_nobody_can_be_asked() -> None:
    nothing = Missing(Reason.NO_EVIDENCE, "not set")
    lacking = tuple((rank, nothing) for rank in (Rank(0), Rank(1), None))
    assert joined({A: {0: LibraryCounters(lacking=lacking)}}, OWNER).notes == ()
    found = joined({A: {0: LibraryCounters(lacking=lacking)}, B: {0: LibraryCounters((counters(2),))}}, OWNER)
    (note,) = found.notes
    assert "flight record" in note and note.endswith(f" ranks 0-1: {nothing.message}")


def member(number: int, status: RasStatus = RasStatus.RUNNING) -> RasMember:
    return RasMember(number, status, "h", 100 + number)


def test_reports_of_one_moment_become_one_whatever_their_order() -> None:
    few = RasReport((RasCommunicator("ab", 4, (member(0),)), RasCommunicator("#0-0", 2)), (), 5.0)
    more = RasReport(
        (RasCommunicator("ab", 4, (member(0), member(1, RasStatus.DEAD))), RasCommunicator("cd", 2)),
        (member(1, RasStatus.DEAD),),
        7.0,
    )
    sound = RasReport((RasCommunicator("#0-0", 8), RasCommunicator("#1-0", 4)), (member(1, RasStatus.DEAD),))
    expected = RasReport((more.communicators[0], more.communicators[1], *sound.communicators), more.lost, 7.0)
    assert united([few, more, sound]) == united([sound, more, few]) == expected
    odd = RasReport((RasCommunicator("ab", 4, (member(1), member(2))),))
    assert united([few, odd]).communicators[0] == united([odd, few]).communicators[0] == odd.communicators[0]
    found = joined(
        {A: {0: LibraryCounters(ras=few), 1: LibraryCounters(ras=more)}, B: {0: LibraryCounters(ras=sound)}}, OWNER
    )
    assert found.ras == (expected,)  # two would look like two moments, between which nothing moved
