"""The report of histories of `hangdog run`: when a job trained, what each restart came to, whom evictions hit."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog.main import main
from hangdog_models.operations.evictions import CONVICTED, UNKNOWN
from hangdog_models.operations.report import OperationsReport
from hangdog_models.operations.restart_chains import ChainEnd, chains
from hangdog_models.operations.run_histories import report
from hangdog_models.recovery.journal import written
from hangdog_models.recovery.recovery_history import (
    Began,
    Entry,
    Finished,
    OutageOpened,
    Progressed,
    RecoveryRung,
    RecoveryStep,
    Steady,
    StepDone,
    Stepped,
    Troubled,
)
from hangdog_models.recovery.trouble import Cause, Trouble

GUILTY = Trouble(Cause.MACHINE, "verdict machine, 97%", (("b",),))
UNSURE = Trouble(Cause.UNKNOWN, "the job ended on a with status 1")


def step(at: float, act: RecoveryRung, *machines: str) -> Stepped:
    return Stepped(at, int(at), RecoveryStep(act, ("because",), machines))


#: It starts for 10 s, trains until 100, hangs, is noticed at 120, goes on at 160; later it fails twice until a person is
#: called at 600, who comes back at 800; from 850 it trains to its end at 1000.
STORY: tuple[Entry, ...] = (
    OutageOpened(0.0, "r"), Began(2.0, ("a", "b"), "t"), Progressed(10.0),
    Troubled(120.0, 100.0, GUILTY), step(121.0, RecoveryRung.EVICT, "b"), StepDone(122.0, 121, True), Began(130.0, ("a", "c"), "u"),
    Progressed(160.0), Steady(300.0),
    Troubled(500.0, 480.0, UNSURE), step(501.0, RecoveryRung.DIAGNOSE), StepDone(520.0, 501, True, "", ("c",)),
    step(521.0, RecoveryRung.EVICT, "c"), StepDone(522.0, 521, True), Began(530.0, ("a", "d"), "v"),
    Troubled(560.0, 530.0, UNSURE), step(561.0, RecoveryRung.REATTEMPT), Began(570.0, ("a", "d"), "w"),
    Troubled(590.0, 570.0, UNSURE), step(600.0, RecoveryRung.HUMAN),
    OutageOpened(800.0, "r"), Began(810.0, ("a", "d"), "x"), Progressed(850.0), Finished(1000.0),
)  # fmt: skip


def value(of: OperationsReport, key: str) -> tuple[float | None, int]:
    (one,) = [one for one in of.figures if one.key == key]
    return None if one.value is None else round(one.value, 9), one.count


def counts(of: OperationsReport, key: str) -> dict[str, int]:
    (one,) = [one for one in of.tallies if one.key == key]
    return {label: count for label, count in one.counts if count}


def test_every_figure_of_a_story_made_by_hand() -> None:
    told = report([STORY], 0.0, 2000.0)
    assert value(told, "mttd") == (20.0, 2)
    assert value(told, "mttr") == (195.0, 2)  # 40 s, and 350 s until the person's restart trained
    lost = 10 + (160 - 100) + (850 - 480)
    assert value(told, "ettr") == (round((1000 - lost) / 1000, 9), 1)
    assert (
        value(told, "retries") == (0.5, 2)
        and value(told, "manual") == (1.0, 1)
        and value(told, "interval") == (40.0, 1)
    )
    assert counts(told, "incidents") == {"machine": 1, "unknown": 1}
    assert counts(told, "chains") == {"trains again": 1, "failed": 1}
    assert counts(told, "rightness") == {CONVICTED: 1, UNKNOWN: 1}
    assert [(one.machine, one.convicted) for one in told.machines.listed] == [("c", 1), ("b", 1)]


def test_what_lies_between_two_supervisors_is_neither_trained_nor_lost() -> None:
    away: Sequence[Entry] = (
        OutageOpened(0.0, "r"), Began(0.0, ("a",), "t"), Steady(100.0), OutageOpened(9000.0, "r"), Began(9010.0, ("a",), "u"),
        Finished(9100.0),
    )  # fmt: skip
    assert value(report([away], 0.0, 1e5), "ettr") == (190 / 200, 1)
    assert [(one.manual, one.end) for one in chains(away)] == [(True, ChainEnd.TRAINS)]


def test_a_persons_restart_that_fails_is_one_and_a_chain_of_hangdogs_follows() -> None:
    history = (
        *STORY[:-2], Troubled(820.0, 811.0, UNSURE), step(821.0, RecoveryRung.REATTEMPT), Began(822.0, ("a", "d"), "y"),
    )  # fmt: skip
    assert [(one.manual, len(one.restarts), one.end) for one in chains(history)[2:]] == [
        (True, 1, ChainEnd.FAILED),
        (False, 1, ChainEnd.OPEN),
    ]


def test_a_chain_that_the_supervisors_end_cut_short_is_not_decided() -> None:
    history = (
        OutageOpened(0.0, "r"), Began(0.0, ("a",), "t"), Troubled(90.0, 80.0, UNSURE), step(91.0, RecoveryRung.REATTEMPT),
        Began(92.0, ("a",), "u"), OutageOpened(200.0, "r"), Began(210.0, ("a",), "v"), Finished(300.0),
    )  # fmt: skip
    assert [(one.manual, one.end) for one in chains(history)] == [(False, ChainEnd.OPEN), (True, ChainEnd.TRAINS)]


def test_a_supervisor_that_ended_before_the_job_trained_lost_what_it_saw_and_no_more() -> None:
    never: Sequence[Entry] = (
        OutageOpened(0.0, "r"),
        OutageOpened(9000.0, "r"),
        Began(9010.0, ("a",), "u"),
        Finished(9100.0),
    )
    assert value(report([never], 0.0, 1e5), "ettr") == (90 / 100, 1)
    steps: Sequence[Entry] = (never[0], Began(5.0, ("a",), "t"), *never[1:3], Progressed(9020.0), never[3])
    assert value(report([steps], 0.0, 1e5), "ettr") == (round(80 / 105, 9), 1)


def test_what_tests_convicted_and_what_was_evicted_later_in_the_episode_is_one_case() -> None:
    history = (
        OutageOpened(0.0, "r"), Began(0.0, ("a", "b"), "t"), Troubled(100.0, 90.0, UNSURE), step(101.0, RecoveryRung.DIAGNOSE),
        StepDone(110.0, 101, True, "", ("b",)), step(111.0, RecoveryRung.REATTEMPT), Began(112.0, ("a", "b"), "u"),
        Troubled(150.0, 140.0, UNSURE), step(151.0, RecoveryRung.EVICT, "b"), Began(152.0, ("a", "c"), "v"), Finished(200.0),
    )  # fmt: skip
    told = report([history], 0.0, 1e4)
    assert counts(told, "rightness") == {CONVICTED: 1}
    assert [(one.machine, one.convicted) for one in told.machines.listed] == [("b", 1)]


def test_an_update_is_no_failure_but_costs_time() -> None:
    history = (
        OutageOpened(0.0, "r"),
        Began(0.0, ("a",), "t"),
        step(100.0, RecoveryRung.UPDATE),
        Began(120.0, ("a",), "u"),
        Finished(200.0),
    )
    told = report([history], 0.0, 1e4)
    assert value(told, "mttd") == (None, 0) and value(told, "ettr") == (0.9, 1)
    assert not counts(told, "chains")


@settings(max_examples=40)
@given(st.permutations(range(4)), st.floats(0, 1200))
def test_the_order_of_histories_does_not_matter_and_two_periods_add_up(order: list[int], between: float) -> None:
    moved = [tuple(read_at(entry, 10.0 * number) for entry in STORY[: 24 - number]) for number in range(4)]
    whole = report(moved, 0.0, 2000.0)
    assert report([moved[number] for number in order], 0.0, 2000.0) == whole
    first, second = report(moved, 0.0, between), report(moved, between, 2000.0)
    for tally, one, other in zip(whole.tallies, first.tallies, second.tallies, strict=True):
        assert tally.total == one.total + other.total
    shares = [value(part, "ettr")[0] for part in (first, second, whole)]
    assert all(share is None or 0.0 <= share <= 1.0 for share in shares)


def read_at(entry: Entry, later: float) -> Entry:
    moved = replace(entry, at=entry.at + later)
    return replace(moved, since=moved.since + later) if isinstance(moved, Troubled) else moved


def test_the_command_reads_histories_without_a_server(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    now = 1_700_000_000.0
    whole = "".join(f"{written(read_at(entry, now))}\n" for entry in STORY)
    file.write_text(whole + '{"entry": "stea')  # being written just now
    told = CliRunner().invoke(main, ["report", "--since", "99999d", "--history", str(file), "--history", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert re.search(r"56\.0% +1 run ", told.stdout), told.stdout
    assert "jobs, told by hangdog run" in told.stdout and re.search(
        r"run r +56\.0% +16\.7 min +7\.3 min +2 +4", told.stdout
    ), told.stdout
    assert all(len(line.rstrip()) <= 80 for line in told.stdout.splitlines())
    file.write_text(whole + "{}\n")
    refused = CliRunner().invoke(main, ["report", "--history", str(file)], standalone_mode=True)
    assert refused.exit_code == 65 and "line 25" in refused.stderr and "[damaged-history]" in refused.stderr
    for moment in ("NaN", "1e999", "1" + "0" * 400):
        file.write_text(whole + f'{{"entry": "steady", "at": {moment}}}\n')
        refused = CliRunner().invoke(main, ["report", "--history", str(file)])
        assert refused.exit_code == 65 and "[damaged-history]" in refused.stderr, refused.output
    gone = CliRunner().invoke(main, ["report", "--history", str(tmp_path / "gone")])
    assert gone.exit_code == 64 and "[unreadable-file]" in gone.stderr
