"""What is drawn on the server: bands as wide as their ranks, a strip as high as the ranks that move, words that say the same."""

import re
from dataclasses import replace

from hangdog_models.ranks import Rank, runs_of
from hangdog_models.views.pictures.icicle import Box
from hangdog_models.views.pictures.waiting_funnel import Band, Funnel
from hangdog_models.views.stack_tree import Call
from hangdog_models.views.waits_view import Known
from hangdog_server.cluster.job_activity import RankMotion
from hangdog_server.web.incident_page import incident_page
from hangdog_server.web.pictures.activity_strip import RANKS, activity_strip
from hangdog_server.web.pictures.funnel_bands import LEAST, funnel_bands
from hangdog_server.web.pictures.icicle_data import NAME, icicle_data
from support.cases.stalled import judged, stalled

ALL = RankMotion(8, 0)


def band(ranks: int, known: Known = Known.FRAMES, steps: int = 1) -> Band:
    return Band(steps, "tp", "all_reduce", known, ((100, 99 + ranks),))


def widths(shape: str) -> list[float]:
    """How wide a piece is at its top and at its foot."""
    points = [float(one.split(",")[0]) for one in re.findall(r'points="([^"]*)"', shape)[0].split()]
    return [points[1] - points[0], points[3] - points[4]]


def test_a_band_is_as_wide_as_its_ranks_and_joins_the_one_above() -> None:
    found = funnel_bands(Funnel(((0, 0),), (band(10), band(40, Known.COUNTERS, 2), band(1, Known.GUESSED, 3))))
    assert [widths(one["shape"]) for one in found] == [[LEAST, 25.0], [25.0, 100.0], [100.0, LEAST]]
    assert ["frames" in found[0]["shape"], "counters" in found[1]["shape"], "guessed" in found[2]["shape"]] == [
        True
    ] * 3
    assert [one["known"] for one in found] == [Known.FRAMES, Known.COUNTERS, Known.GUESSED]


def test_a_page_shows_the_funnel_above_its_table_and_none_where_nobody_waits() -> None:
    verdict, scene = judged(*stalled(64))
    page = incident_page(verdict, scene)
    assert page.index('<ol class="funnel">') < page.index('<div class="around">')
    assert page.count('<svg class="band') == 1 + len(scene.funnel.bands)
    assert '<ol class="funnel">' not in incident_page(verdict, replace(scene, funnel=Funnel()))


def test_a_box_says_each_name_once_in_one_printable_line() -> None:
    wild = Call("f\u202e\n" + "x" * 1000, "</script>", False)
    one = Box((wild, wild), "torch", -1, runs_of([Rank(1), Rank(2)]), True, False)
    data = icicle_data([one, replace(one, parent=0, alone=True)])
    assert data["boxes"] == [[-1, 2, 1, "torch", [0, 0], "1-2"], [0, 2, 2, "torch", [0, 0], "1-2"]]
    ((name, file),) = data["names"]
    assert len(name) <= NAME and name.isprintable() and file == "</script>"


def test_ranks_that_do_not_move_stand_out_and_bins_alike_are_one_shape() -> None:
    shown = activity_strip([None, ALL, ALL, RankMotion(4, 4), RankMotion(0, 8), None])
    shapes = re.findall(r'<rect class="(\w+)" x="(\d+)" y="([\d.]+)" width="(\d+)" height="([\d.]+)"', shown)
    assert shapes == [
        ("moves", "1", "0.0", "2", f"{RANKS:.1f}"),
        ("moves", "3", "13.0", "1", "13.0"), ("stands", "3", "0.0", "1", "13.0"),
        ("stands", "4", "0.0", "1", f"{RANKS:.1f}"),
    ]  # fmt: skip
    assert "8 of 8 ranks " in shown and " 50 s" in shown and "polyline" not in shown


def test_one_rank_of_many_that_stands_is_seen() -> None:
    shown = activity_strip([RankMotion(131071, 1)])
    assert re.search(r'class="stands"[^>]* height="2.0"', shown) and "1 of 131,072 ranks " in shown


def test_the_time_of_a_step_is_a_line_where_it_is_known() -> None:
    step = replace(ALL, step_s=2.0)
    shown = activity_strip([step, replace(ALL, step_s=4.0), None, ALL, step])
    assert re.findall(r'<polyline class="steps" points="([^"]*)"', shown) == [
        "0,35.0 1,35.0 1,30.0 2,30.0",
        "4,35.0 5,35.0",
    ]
    assert "none of its 8 " in shown and "step takes 2.0 s" in shown
    assert "step took 2.0 s" in activity_strip([step, RankMotion(0, 8)])


def test_a_job_that_nobody_watched_has_no_strip() -> None:
    assert activity_strip([]) == activity_strip([None] * 9) == ""
