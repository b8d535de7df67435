"""The incident page as a file: the answer first, everything foreign harmless, bounded, and nothing outside of it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

from hangdog.main import main
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.verdict import Eviction, Kind, Verdict, to_json
from hangdog_models.views import stack_tree, unique_stacks
from hangdog_models.views.answer_text import answer
from hangdog_server.web.incident_page import incident_page
from support.cases.stalled import judged, renamed, stalled
from support.cases.strategies import verdicts

#: What a sick machine or a stranger may call a function.
HOSTILE = {
    "markup": "</script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "attribute": "\" onmouseover='alert(1)' x=\"",
    "template": "{{ 7*7 }}{% raw %}${alert(1)}",
    "terminal": "\x1b]0;owned\x07\x1b[31mred",
    "direction": "safe\u202eexe.egnahc\u2066",
    "nothing": "\x00\x00\ud800\udfff",
    "comment": "<!--<script>",
    "spaces": "</script x='<!-- <script /",
    "separators": "a\u2028b\u2029c\nd\re",
}


class Elements(HTMLParser):
    """The elements of a page, with what stands in each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.inside:
            self.open.append(tag)
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open[-1]][-1] += data


def data_of(page: str) -> dict[str, object]:
    elements = Elements(page)
    scripts = [attributes for tag, attributes in elements.elements if tag == "script"]
    at = next(at for at, attributes in enumerate(scripts) if attributes.get("id") == "data")
    told: dict[str, object] = json.loads(elements.inside["script"][at])
    return told


def check_harmless(page: str) -> None:
    """Nothing but our own script and style, no handler, no address outside, nothing a terminal or a reader's eye obeys."""
    elements = Elements(page)
    scripts = [attributes for tag, attributes in elements.elements if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None]
    assert "<" not in elements.inside["script"][0], "browsers end a script sooner than this parser does"
    for tag, attributes in elements.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "audio", "video"}, tag
        assert not any(name.startswith("on") or name in {"style", "srcdoc", "action"} for name in attributes), (
            attributes
        )
        assert not any(
            (attributes.get(name) or "#").startswith(("http:", "https:", "//", "javascript:"))
            for name in ("src", "href")
        )
    assert all(sign.isprintable() or sign == "\n" for sign in page)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_the_answer_stands_before_everything_else() -> None:
    verdict, shown = judged(*stalled(64))
    page, told = incident_page(verdict, shown), answer(verdict)
    heading = page.index("<h1")
    assert "node-0" in told and verdict.kind is Kind.MACHINE
    assert page.index(told) < page.index("Evict node-0.", heading) < page.index("Map of the ranks")
    assert told in page[heading : page.index("</h1>")] and f"<title>machine: {told}</title>" in page


def test_the_policy_allows_our_own_script_and_style_alone() -> None:
    page = incident_page(*judged(*stalled(8, 2, 2, 2)))
    elements = Elements(page)
    policy = next(str(a["content"]) for tag, a in elements.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for kind, text in (("script", elements.inside["script"][-1]), ("style", elements.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    check_harmless(page)


@pytest.mark.parametrize("name", list(HOSTILE.values()), ids=list(HOSTILE))
def test_hostile_names_are_shown_and_obeyed_by_nobody(name: str) -> None:
    snapshot, topology = stalled(8, 2, 2, 2)
    snapshot = replace(renamed(snapshot, name), job=Job(name))
    topology = replace(topology, machines={f"{machine}{name}": ranks for machine, ranks in topology.machines.items()})
    page = incident_page(*judged(snapshot, topology))
    check_harmless(page)
    data_of(page)


@given(verdicts())
@settings(max_examples=20, deadline=None)
def test_any_verdict_makes_a_harmless_page_without_its_captures(verdict: Verdict) -> None:
    page = incident_page(verdict, None)
    check_harmless(page)
    told = data_of(page)
    assert json.loads(told["exports"]["verdict"]) == to_json(verdict)  # type: ignore[index]


def test_names_of_100_kb_cost_a_line() -> None:
    snapshot, topology = stalled(8, 2, 2, 2)
    page = incident_page(*judged(renamed(snapshot, "f" * 100_000), topology))
    assert len(page) < 120_000


def test_ranks_that_are_all_in_another_place_make_no_page_without_bound() -> None:
    snapshot, topology = stalled(2560)
    own = tuple(
        ProcessTrace(Rank(rank), threads=tuple(
            Thread(f"t{at}", 0, tuple(Frame(f"f{rank}_{at}_{deep}", "x.py", deep) for deep in range(6))) for at in range(4)
        ))
        for rank in range(2560)
    )  # fmt: skip
    verdict, shown = judged(snapshot, topology)
    raw = unique_stacks.of([Round(0, own)])
    shown = replace(shown, kinds=raw, tree=stack_tree.merged(raw.trainers()))
    page = incident_page(verdict, shown)
    assert len(page) < 12 << 20
    told = data_of(page)
    assert len(told["kinds"]) < told["kinds_in_all"] == 2560  # type: ignore[arg-type,operator]


def test_clusters_that_are_left_out_are_counted_and_a_suspects_is_not() -> None:
    verdict, shown = judged(*stalled(1024))
    crowd, waiting, culprit = verdict.clusters
    many = tuple(replace(waiting, id=2 + at, ranks=(Rank(at),)) for at in range(60))
    page = incident_page(replace(verdict, clusters=(crowd, waiting, *many, replace(culprit, id=62))), shown)
    assert "and 23 smaller clusters" in page
    assert len(re.findall(r'<span class="flag">suspect</span></td><td class="num" data-label="ranks">1<', page)) == 1


@pytest.mark.parametrize("kind", [Kind.SOFTWARE, Kind.DEPENDENCY])
def test_a_machine_is_called_suspect_only_where_one_is_blamed(kind: Kind) -> None:
    verdict, shown = judged(*stalled(64))
    page = incident_page(replace(verdict, kind=kind, evict=Eviction()), shown)
    text = page.partition("<main")[2].partition("What happened when")[0]
    assert "uspect" not in text and " at rank 5 on node-0" in text
    assert data_of(page)["word"] == "it shows here"


def test_a_large_job_stays_small() -> None:
    assert len(incident_page(*judged(*stalled(4096)))) < 150_000


def test_triage_writes_the_page_beside_its_answer(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for rank in range(4):
        place = (
            ["fetch (data.py:3)", "main (train.py:9)"]
            if rank == 2
            else ["all_reduce (torch/distributed/distributed_c10d.py:7)", "main (train.py:9)"]
        )
        lines = [
            f"Process {100 + rank}: python train.py",
            "Python v3.11.4",
            "",
            'Thread 0x1 (active): "MainThread"',
            *(f"    {one}" for one in place),
        ]
        (bundle / f"rank{rank}.txt").write_text("\n".join(lines) + "\n")
    file = tmp_path / "report.html"
    plain, told = run("triage", bundle), run("triage", bundle, "--html", file)
    assert (told.exit_code, told.output) == (plain.exit_code, plain.output)
    check_harmless(file.read_text("utf-8"))
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_page_that_cannot_be_written_is_said_after_the_answer(tmp_path: Path) -> None:
    (tmp_path / "rank0.txt").write_text(
        'Process 1: python t.py\nPython v3.11\n\nThread 0x1 (active): "MainThread"\n    main (t.py:1)\n'
    )
    found = run("triage", tmp_path, "--html", "/nowhere/at/all.html")
    assert found.exit_code == 64
    assert "judged by" in found.output
    assert "/nowhere/at/all.html" in found.stderr and "[unwritable-file]" in found.stderr
