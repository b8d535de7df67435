"""What is made of what agents announce: sessions that begin, fall silent, come back and end, and the standstills in them."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.operations.session_histories import SessionStall
from hangdog_models.stall_timeouts import OVER_S
from hangdog_models.verdict import Kind
from hangdog_server.cluster.session import StallOver
from hangdog_server.cluster.session_tracker import APART_S, PER_HOUR, SessionTracker
from hangdog_server.store.sessions import SessionRow, SessionState

AWAY_S = 60.0


class Cluster:
    """Machines whose agents speak at the moments that the test says; the two clocks are 1,000 s apart."""

    def __init__(self) -> None:
        self.seen, self.now = SessionTracker(AWAY_S), 0.0
        self.connected: set[str] = set()
        self.rows: dict[str, SessionRow] = {}

    def shows(self, machine: str, *jobs: str) -> None:
        self.seen.announced(machine, jobs, machine not in self.connected, self.now + 1000.0, self.now)
        self.connected.add(machine)

    def falls_silent(self, machine: str) -> None:
        self.connected.discard(machine)
        self.seen.lost(machine, self.now + 1000.0, self.now)

    def told(self) -> list[SessionRow]:
        """All sessions as they are stored now, the earliest first."""
        self.seen.settle(self.now)
        for life in self.seen.taken():
            row = life.row(self.now + 1000.0)
            before = self.rows.get(row.id)
            stills = {**dict(before.stills if before else ()), **dict(row.stills)}
            self.rows[row.id] = SessionRow(
                row.id, row.job, row.began, row.until, row.start, row.state, tuple(sorted(stills.items()))
            )
            self.seen.stored(life, row)
        return sorted(self.rows.values(), key=lambda row: (row.began, row.until))

    def lives(self) -> list[tuple[float, float, bool, SessionState]]:
        return [(row.began - 1000.0, row.until - 1000.0, row.start, row.state) for row in self.told()]


def test_a_job_begins_with_its_first_machine_and_ends_with_its_last() -> None:
    on = Cluster()
    on.shows("a")
    on.shows("b")
    on.now = 10.0
    on.shows("a", "llama")
    assert on.lives() == [(10.0, 10.0, True, SessionState.OPEN)]
    on.now = 11.0
    on.shows("b", "llama", "gpt")
    on.now = 100.0
    on.shows("a")
    assert on.lives()[0][3] is SessionState.OPEN
    on.now = 101.0
    on.shows("b", "gpt")
    assert on.lives() == [(10.0, 101.0, True, SessionState.ENDED), (11.0, 100.0, True, SessionState.OPEN)]
    on.now = 130.0
    on.shows("a", "llama")
    assert on.lives()[-1] == (130.0, 130.0, True, SessionState.OPEN), "its restart is a session of its own"


def test_what_runs_when_its_first_agent_comes_was_found() -> None:
    on = Cluster()
    on.shows("a", "llama")
    assert on.lives() == [(0.0, 0.0, False, SessionState.OPEN)]


def test_silence_is_no_end_for_a_while_and_then_nobody_knows() -> None:
    on = Cluster()
    on.shows("a", "llama")
    on.now = 50.0
    on.falls_silent("a")
    on.now = 50.0 + AWAY_S - 1
    assert on.lives() == [(0.0, 50.0, False, SessionState.OPEN)]
    on.shows("a", "llama")
    on.now = 500.0
    on.falls_silent("a")
    on.now = 500.0 + AWAY_S
    assert on.lives() == [(0.0, 500.0, False, SessionState.LOST)], "known until its agent was heard last, and no longer"
    on.now = 900.0
    on.shows("a", "llama")
    assert on.lives()[1] == (900.0, 900.0, False, SessionState.OPEN)


def test_an_agent_that_comes_back_without_the_job_did_not_see_its_end() -> None:
    on = Cluster()
    on.shows("a", "llama")
    on.now = 50.0
    on.falls_silent("a")
    on.now = 55.0
    on.shows("a")
    assert on.lives() == [(0.0, 50.0, False, SessionState.LOST)]


def test_the_end_that_others_saw_is_one_though_a_machine_died() -> None:
    on = Cluster()
    on.shows("a")
    on.shows("b")
    on.shows("a", "llama")
    on.shows("b", "llama")
    on.now = 100.0
    on.falls_silent("b")
    on.now = 120.0
    on.shows("a")
    assert on.lives() == [(0.0, 120.0, True, SessionState.OPEN)], "b may come back with it"
    on.now = 150.0
    on.shows("a", "llama")  # restarted without it
    assert on.lives() == [(0.0, 120.0, True, SessionState.ENDED), (150.0, 150.0, True, SessionState.OPEN)]


def test_a_stream_that_took_the_place_of_a_broken_one_changes_nothing() -> None:
    on = Cluster()
    on.shows("a")
    on.shows("a", "llama")
    on.connected.clear()
    on.now = 9.0
    on.shows("a", "llama")
    assert on.lives() == [(0.0, 9.0, True, SessionState.OPEN)] and len(on.rows) == 1


def test_an_agent_whose_jobs_come_and_go_all_the_time_does_not_fill_the_store() -> None:
    on = Cluster()
    on.shows("a")
    for number in range(PER_HOUR):
        on.shows("a", f"j{number}", "llama") if number % 2 else on.shows("a")
    assert len(on.told()) == PER_HOUR
    on.shows("a", "gpt")
    on.falls_silent("a")
    on.shows("b", "gpt")
    assert [row.job for row in on.told() if row.job == "gpt"] == ["gpt"], "the others are heard"
    on.now = 3600.0
    on.shows("a", "gpt", "qwen")
    assert "qwen" in {row.job for row in on.told()}


def stuck(on: Cluster, kind: Kind | None) -> None:
    on.seen.suspected("llama", 6.0, on.now + 1000.0)
    on.seen.asked("llama")
    on.now += 20.0
    on.seen.suspected("llama", 26.0, on.now + 1000.0)
    on.seen.judged("llama", kind)


def stills(on: Cluster) -> list[SessionStall]:
    return [still for row in on.told() for _, still in row.stills]


def test_a_standstill_is_one_where_the_incident_does_not_deny_it() -> None:
    for kind, real in (
        (Kind.MACHINE, True),
        (Kind.UNDETERMINED, True),
        (None, True),
        (Kind.NONE, False),
        (Kind.SLOW, False),
    ):
        on = Cluster()
        on.shows("a", "llama")
        on.now = 100.0
        assert not on.seen.stands("llama")
        stuck(on, kind)
        assert stills(on) == ([SessionStall(1094.0, 1100.0)] if real else [])
        on.now = 300.0
        on.seen.moves("llama", on.now + 1000.0, on.now)
        on.now += OVER_S
        assert on.seen.stands("llama")
        on.seen.moves("llama", on.now + 1000.0, on.now)
        assert not on.seen.stands("llama")
        assert stills(on) == ([SessionStall(1094.0, 1100.0, 1300.0)] if real else [])


def test_one_that_moves_only_for_a_moment_or_is_killed_is_not_over() -> None:
    on = Cluster()
    on.shows("a", "llama")
    stuck(on, Kind.MACHINE)
    on.seen.moves("llama", on.now + 1000.0, on.now)
    on.now += OVER_S / 2
    on.seen.suspected("llama", 40.0, on.now + 1000.0)
    on.now += OVER_S
    on.seen.moves("llama", on.now + 1000.0, on.now)
    on.shows("a")
    assert [still.over for still in stills(on)] == [None]


def test_a_job_that_is_over_before_its_verdict_stood_still_all_the_same() -> None:
    on = Cluster()
    on.shows("a")
    on.shows("a", "llama")
    on.seen.suspected("llama", 6.0, on.now + 1000.0)
    on.seen.asked("llama")
    on.shows("a")
    assert on.lives()[0][3] is SessionState.ENDED
    on.seen.judged("llama", Kind.MACHINE)
    assert stills(on) == [SessionStall(994.0, 1000.0)]


def test_a_job_that_goes_on_tells_in_which_incidents_it_was_looked_at_and_how_long_it_stood() -> None:
    on = Cluster()
    on.shows("a", "llama")
    assert on.seen.seen("llama")[0] == ""
    for name in ("0a", "0a", "0b"):  # the second one where the store took nothing of the first
        stuck(on, Kind.NONE)
        on.seen.opened("llama", name)
        assert on.seen.seen("llama")[0] == name
    on.seen.moves("llama", on.now + 1000.0, on.now)
    assert not on.seen.went_on()
    on.now += OVER_S
    on.seen.moves("llama", on.now + 1000.0, on.now)
    assert on.seen.went_on() == (StallOver("llama", ("0a", "0b"), 66.0),) and not on.seen.went_on()
    assert on.seen.seen("llama")[0] == "", "the next standstill is another one"


def test_a_job_that_goes_on_while_it_is_looked_at_tells_when_that_is_over() -> None:
    on = Cluster()
    on.shows("a", "llama")
    on.seen.suspected("llama", 6.0, 1000.0)
    on.seen.asked("llama")
    on.seen.opened("llama", "0a")
    for on.now in (1.0, 1.0 + OVER_S):
        on.seen.moves("llama", on.now + 1000.0, on.now)
    assert not on.seen.went_on()
    on.seen.judged("llama", Kind.NONE)
    on.seen.moves("llama", on.now + 1000.0, on.now)
    assert [(one.incidents, one.stood_s) for one in on.seen.went_on()] == [(("0a",), 7.0)]


def test_a_job_that_ends_or_that_was_never_looked_at_tells_nothing() -> None:
    on = Cluster()
    on.shows("a", "llama")
    stuck(on, Kind.NONE)
    on.seen.opened("llama", "0a")
    on.shows("a")
    on.seen.moves("llama", on.now + 1000.0, on.now)
    on.shows("a", "llama")
    on.seen.suspected("llama", 6.0, on.now + 1000.0)
    for _ in range(2):
        on.seen.moves("llama", on.now + 1000.0, on.now)
        on.now += OVER_S
    assert not on.seen.stands("llama") and not on.seen.went_on()


def test_a_suspicion_that_comes_back_after_long_is_looked_at_apart_and_all_tell_in_the_end() -> None:
    on = Cluster()
    on.shows("a", "llama")
    stuck(on, Kind.NONE)
    on.seen.opened("llama", "0a")
    on.now += APART_S
    on.seen.suspected("llama", 6.0, on.now + 1000.0)
    assert on.seen.seen("llama")[0] == ""
    on.seen.opened("llama", "0b")
    for _ in range(2):
        on.seen.moves("llama", on.now + 1000.0, on.now)
        on.now += OVER_S
    assert [one.incidents for one in on.seen.went_on()] == [("0a", "0b")]


def test_what_another_server_wrote_of_is_another_session_from_then_on() -> None:
    on = Cluster()
    on.shows("a")
    on.shows("a", "llama")
    (life,) = on.seen.taken()
    on.now = 70.0
    on.seen.anew(life, on.now + 1000.0)
    assert on.lives() == [(70.0, 70.0, False, SessionState.OPEN)]


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from(["x", "y"])) | st.none(), st.sampled_from([0, 1, 30, 90])),
    max_size=30,
)  # fmt: skip


@settings(max_examples=60)
@given(EVENTS)
def test_whatever_comes_a_job_has_one_open_session_and_they_do_not_overlap(
    events: list[tuple[str, set[str] | None, int]],
) -> None:
    on, here = Cluster(), dict[str, set[str]]()
    for machine, jobs, pause in events:
        if jobs is None:
            on.falls_silent(machine)
            here.pop(machine, None)
        else:
            on.shows(machine, *jobs)
            here[machine] = jobs
        on.now += pause
        on.told()
        assert {life.job for life in on.seen.open()} == set().union(*here.values())
    on.now += AWAY_S
    rows = on.told()
    for job in ("x", "y"):
        mine = [row for row in rows if row.job == job]
        assert all(row.began <= row.until for row in mine)
        assert all(one.until <= other.began for one, other in pairwise(mine))
        open_ = [row for row in mine if row.state is SessionState.OPEN]
        assert len(open_) == any(job in jobs for jobs in here.values())
    for machine in "abc":
        on.shows(machine)
    assert not list(on.seen.open()) and not on.seen._away and not on.seen._jobs and not on.seen._quiet
