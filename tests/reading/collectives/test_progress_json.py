"""How far operations have come, as a document: what is written is read back, and what no ring can hold is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog.evidence.content import RingFile, read_contents
from hangdog.evidence.naming import name_of
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import Awaited, CollectiveProgress, Phase
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import progress_json
from hangdog_models.reading.collectives.library_counters import ring_progress
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.limits import DEFAULTS
from support.cases.rings import PROGRESS, communicator, operation, transfer
from support.refused import refused


@given(st.lists(PROGRESS, max_size=3))
def test_what_is_written_is_read_back(communicators: list[CollectiveProgress]) -> None:
    text = json.dumps(progress_json.written(communicators))
    assert progress_json.read(read_json(text)) == tuple(communicators)


def document() -> dict[str, Any]:
    stuck = operation(2, Phase.RUNNING, transfer("to", 1, 3, 2, 1, 0))
    written: dict[str, Any] = json.loads(json.dumps(progress_json.written([communicator(0, 2, 3, stuck)])))
    return written


def test_a_file_is_recognised_by_its_content() -> None:
    (content,) = read_contents(name_of("run/rank3.progress.json"), json.dumps(document()).encode(), DEFAULTS)
    assert isinstance(content, RingFile)
    assert [one.collectives for one in content.communicators] == [3]


def _deeply(text: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Puts a value where a path of names leads."""
    *names, last = text.split("/")

    def change(inside: dict[str, Any]) -> None:
        at: Any = inside["progress"][0]
        for name in names:
            at = at[int(name) if name.isdigit() else name]
        at[last] = value

    return change


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        ("communicator", "xyz", "'xyz'"),
        ("communicator", 7, "communicator"),
        ("communicator", "1" * 40, "rank 0 of 2"),
        ("communicator", "-1", "rank 0 of 2"),
        ("rank", 2, "rank 2 of 2"),
        ("ranks", 2**40, "rank 0 of"),
        ("collectives", -1, "collectives is -1"),
        ("collectives", 1.5, "collectives"),
        ("collectives", None, "collectives"),
        ("idle_s", "long", "idle_s"),
        ("sent", [], "object"),
        ("in_flight", {}, "768"),
        ("in_flight", [{}] * 769, "768"),
        ("in_flight/0/phase", "dancing", "'dancing'"),
        ("in_flight/0/idle_s", -1, "idle_s"),
        ("in_flight/0/call", None, "object"),
        ("in_flight/0/transfers/0/done", 4, "4 steps done of 3"),
    ],
)
def test_what_no_ring_can_hold_is_refused_with_the_reason(where: str, value: object, named: str) -> None:
    changed = document()
    _deeply(where, value)(changed)
    with refused("wrong-schema", UnreadableEvidence, named):
        progress_json.read(changed)


@pytest.mark.parametrize("text", ["[]", '{"schema": "hangdog.progress/2"}', '{"schema": "hangdog.progress/1"}'])
def test_what_is_no_such_document_is_refused(text: str) -> None:
    with pytest.raises(UnreadableEvidence):
        progress_json.read(read_json(text))


def test_bytes_of_a_live_job_that_are_none_are_refused() -> None:
    for data in (b"", b"\xff\xfe", b"{", b'{"a": NaN}', b"[" * 5000):
        with pytest.raises(UnreadableEvidence):
            ring_progress(data, Rank(0))


def test_names_that_cannot_be_shown_are_escaped_and_long_ones_cut() -> None:
    changed = document()
    _deeply("name", "\x1b[2J" + "x" * 5000)(changed)
    (one,) = progress_json.read(changed)
    assert one.name.isprintable() and len(one.name) <= 256


def test_the_example_on_the_page_of_the_profiler_is_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "profiler.md"
    example = page.read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0]
    (one,) = progress_json.read(read_json(example))
    (stuck,) = one.in_flight
    assert (one.communicator, stuck.phase, stuck.transfers[0].awaits) == (
        0x700885418FD77BCF,
        Phase.RUNNING,
        Awaited.DATA,
    )
    assert json.loads(json.dumps(progress_json.written([one]))) == read_json(example)
