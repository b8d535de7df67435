"""The text of a verdict: golden files of what a person reads, and laws that hold for any verdict at any width."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hangdog.output.terminal import console_for, printable
from hangdog.output.verdict_text import print_verdict
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.verdict import (
    Act,
    Activity,
    ClusterView,
    Coverage,
    Eviction,
    EvidenceReport,
    Kind,
    Step,
    StuckGroup,
    Suspect,
    Verdict,
)
from hangdog_models.views.answer_text import percent
from hangdog_models.views.first_line import headline
from support.cases.goldens import differing
from support.cases.reasons import reasons
from support.cases.strategies import verdicts

GOLDEN = Path(__file__).parent / "golden"

GC = Verdict(
    job_id="llama-70b-run7",
    world_size=1024,
    kind=Kind.MACHINE,
    confidence=0.97,
    because=reasons(
        "rank 517 is in gc_collect, outside any collective",
        "63 ranks of its model-parallel group wait on it, directly or through others",
    ),
    suspects=(
        Suspect(parse_ranks("517"), ("node-64",), 0.97, reasons("the only rank that waits for nobody")),
        Suspect(parse_ranks("512-519"), ("node-65",), 0.004, reasons("same leaf switch")),
    ),
    evict=Eviction(("node-64",), 0.97),
    groups=(StuckGroup("pp", parse_ranks("5,133,261,389,517,645,773,901"), "stuck together"),),
    clusters=(
        ClusterView(
            0,
            parse_ranks("0-516,518-1023"),
            Activity.COLLECTIVE,
            "mp",
            "get_grad_norm_fp32",
            (
                "<module> (pretrain_gpt.py)",
                "train (megatron/training/training.py)",
                "train_step (megatron/training/training.py)",
                "step (megatron/core/optimizer/optimizer.py)",
                "get_grad_norm_fp32 (megatron/core/optimizer/clip_grads.py)",
                "all_reduce (torch/distributed/distributed_c10d.py)",
            ),
        ),
        ClusterView(
            1, parse_ranks("517"), Activity.GC, None, "gc_collect", ("collect (megatron/training/training.py)",)
        ),
    ),
    coverage=Coverage(1024, 1023, parse_ranks("17"), {"17": "not permitted: py-spy: Permission denied"}),
    evidence=EvidenceReport(1031, ("photo.jpg",), {"x.json": "not JSON: line 1 column 1"}, ("rank 9 answered twice",)),
    rules="torch@2026-11",
)

BLANK = Verdict(
    job_id="",
    world_size=8,
    kind=Kind.UNDETERMINED,
    confidence=0.0,
    because=reasons("8 ranks are alike and wait in an unknown frame", "collect next: the flight recorder of rank 0"),
    suspects=(),
    evict=Eviction(),
    groups=(),
    clusters=(),
    coverage=Coverage(8, 8, (), {}),
    evidence=EvidenceReport(),
    rules="torch@2026-11",
    next=(
        Step(Act.COLLECT, (), "the flight recorder of rank 0"),
        Step(Act.ASK_PEOPLE, (), "they know whether it may take that long"),
    ),
)

SOFTWARE = replace(
    BLANK,
    kind=Kind.SOFTWARE,
    confidence=0.9961,
    because=reasons("rank 2 sits in all_reduce, ranks 0,1,3 in barrier of the same group"),
    suspects=(Suspect(parse_ranks("2"), ("host-1",), 0.31, reasons("the odd one out")),),
)

HOSTILE = replace(
    GC,
    job_id="\x1b]0;owned\x07job\r\nverdict: none",
    because=reasons("red \x1b[31m text, [bold]markup[/bold], :boom:, \u202eright to left"),
    suspects=(Suspect(parse_ranks("7"), ("no\nde",), 0.5, ()),),
    evict=Eviction(("no\nde",), 0.5),
    evidence=EvidenceReport(0, ("a\x08b",), {"\ud800": "\x00"}, ()),
)

WIDE = replace(
    GC,
    kind=Kind.GROUP,
    suspects=tuple(
        Suspect(tuple(Rank(rank) for rank in range(n, 16384, 128)), (f"node-{n}",), 0.05, ()) for n in range(20)
    ),
    evict=Eviction(tuple(f"node-{n}" for n in range(20)), 0.95),
    groups=tuple(StuckGroup("dp", tuple(Rank(rank) for rank in range(n, 16384, 128)), "all joined") for n in range(9)),
    clusters=tuple(ClusterView(n, (Rank(n),), Activity.P2P, "pp", "recv", ()) for n in range(30)),
    coverage=Coverage(
        16384, 16000, parse_ranks("16000-16383"), {str(n): "no agent answered" for n in range(16000, 16384)}
    ),
)

STORIES = {"machine": GC, "undetermined": BLANK, "software": SOFTWARE, "hostile": HOSTILE, "wide": WIDE}


def text(verdict: Verdict, width: int = 100) -> str:
    out = StringIO()
    print_verdict(verdict, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("story", STORIES)
def test_the_text_is_the_golden_one(story: str) -> None:
    assert not differing(GOLDEN / f"{story}.txt", text(STORIES[story]))


@settings(max_examples=50)
@given(verdicts(), st.integers(20, 200))
def test_no_text_is_wider_than_its_console_or_holds_a_control_character(verdict: Verdict, width: int) -> None:
    for line in text(verdict, width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


@settings(max_examples=50)
@given(verdicts())
def test_the_headline_is_one_line_and_opens_with_the_kind(verdict: Verdict) -> None:
    assert headline(verdict).isprintable()
    assert headline(verdict).startswith(f"{verdict.kind}: ")
    if not verdict.evict.machines:
        assert "Evict nobody" in headline(verdict) or "Don't remove anything yet" in headline(verdict)


@settings(max_examples=50)
@given(verdicts())
def test_every_rank_of_every_suspect_is_there(verdict: Verdict) -> None:
    told = [(int(first), int(last or first)) for first, last in re.findall(r"(\d+)(?:-(\d+))?", text(verdict, 250))]
    for suspect in verdict.suspects:
        for rank in suspect.ranks:
            assert any(first <= rank <= last for first, last in told)


def test_a_terminal_gets_colour_and_a_file_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, pipe = Terminal(), StringIO()
    print_verdict(GC, console_for(terminal))
    print_verdict(GC, console_for(pipe))
    assert "\x1b[1;31mmachine: node-64" in terminal.getvalue()
    assert "\x1b" not in pipe.getvalue()


@pytest.mark.parametrize(
    ("probability", "said"), [(0, "0%"), (0.001, "<1%"), (0.97, "97%"), (0.9999, ">99%"), (1, ">99%")]
)
def test_certainty_is_never_rounded_up_to(probability: float, said: str) -> None:
    assert percent(probability) == said


@given(st.text())
def test_printable_text_is_one_line_that_a_terminal_does_not_obey(raw: str) -> None:
    assert printable(raw).isprintable()
    assert printable("rank 7: naïve 日本") == "rank 7: naïve 日本"
