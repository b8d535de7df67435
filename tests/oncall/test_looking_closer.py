"""`hangdog ranks`, `stacks`, `diff` and `tree` upon a bundle: what a person reads, what a program reads, what hostile evidence does."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hangdog.commands.triage import diff, ranks, stacks, tree
from hangdog.evidence.cases import Evidence, evidence
from hangdog.evidence.write_bundle import files
from hangdog.main import main
from hangdog.output.raw_stacks import frame_fitted
from hangdog.output.terminal import console_for
from hangdog_models.diagnosis.observe.activity import main_thread
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Layout
from hangdog_models.verdict import Suspect
from hangdog_models.views import stack_tree as merged_tree
from hangdog_models.views import unique_stacks
from hangdog_models.views.one_rank import RankView, alike, of_rank
from hangdog_models.views.stack_diff import Alike, side_by_side
from hangdog_models.views.waits_view import around
from hangdog_proto.client.server_address import ServerAddress
from hangdog_server.incidents.replay import Replayed
from support.cases.goldens import differing
from support.cases.stalled import LOADER, REDUCE, stalled
from support.cases.strategies import TEXT

GOLDEN = Path(__file__).parent / "golden"
#: 72 ranks of nine machines: rank 5 waits for its data loader, rank 69 could not be captured.
LAYOUT = Layout(sizes={"tp": 8, "dp": 1, "pp": 9}, ranks_per_machine=8)
NOBODY = ServerAddress("127.0.0.1:1")
#: What a sick machine may call a function: an order to the terminal, text that runs backwards, 100 kB.
HOSTILE = ("\x1b]0;owned\x07\x1b[2J", "\u202egpj.exe", "x" * 100_000, "two\nlines\r", "[bold red]markup[/]")


def written(folder: Path, snapshot: Snapshot, layout: Layout = LAYOUT) -> Path:
    for path, data in files(Replayed(snapshot, layout, ())):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("bundles") / "hang-of-noon", stalled(72, stages=9)[0])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks, each in functions, files and threads of hostile names, on machines of hostile names."""
    (first,) = stalled(1, 1, 1)[0].rounds[:1]

    def trace(rank: int) -> ProcessTrace:
        frames = tuple(Frame(name, f"{HOSTILE[rank]}.py", 1) for name in HOSTILE)
        threads = (Thread("MainThread", 100 + rank, frames), Thread(HOSTILE[rank], 9, frames))
        return ProcessTrace(Rank(rank), pid=100 + rank, threads=threads)

    said = replace(stalled(1, 1, 1)[0], rounds=(replace(first, traces=tuple(map(trace, range(4)))),), counters=())
    machines = {HOSTILE[rank][:4000]: (Rank(rank),) for rank in range(4)}
    return written(tmp_path_factory.mktemp("bundles") / "hostile", said, Layout(world_size=4, machines=machines))


def run(*arguments: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


def told(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--format", "json").stdout)


def show_ranks(found: Evidence, console: Console) -> None:
    ranks.show(found, found.verdict(), console)


def show_rank(found: Evidence, console: Console) -> None:
    case = found.case()
    (near,) = around(case, (Suspect((Rank(5),), (), 0.0, ()),)) if found.world_size > 5 else around(
        case, (Suspect((Rank(2),), (), 0.0, ()),)
    )  # fmt: skip
    ranks.show_one(found, case, found.verdict(case), near, Rank(5 if found.world_size > 5 else 2), console)


def show_stacks(found: Evidence, console: Console) -> None:
    rank = 5 if found.world_size > 5 else 2
    stacks.show(found, rank, found.processes_of(rank), console)


def show_diff(found: Evidence, console: Console) -> None:
    pair = (5, 0) if found.world_size > 5 else (2, 1)
    left, right = (found.stack(rank).trace.threads[0].frames for rank in pair)
    diff.show(found, pair, side_by_side(left, right), console)


def show_tree(found: Evidence, console: Console) -> None:
    nodes = merged_tree.merged(unique_stacks.of(found.snapshot.rounds).trainers())
    tree.show(found, nodes, False, console)


SHOWN: dict[str, Callable[[Evidence, Console], None]] = {
    "ranks": show_ranks,
    "rank": show_rank,
    "stacks": show_stacks,
    "diff": show_diff,
    "tree": show_tree,
}


@cache
def opened(bundle: Path) -> Evidence:
    """Read once; without the path of this machine, which golden files must not have."""
    return replace(evidence(str(bundle), NOBODY), name="./hang-of-noon")


def text(bundle: Path, what: str, width: int = 80) -> str:
    out = StringIO()
    SHOWN[what](opened(bundle), Console(file=out, width=width, highlight=False, markup=False, emoji=False))
    return out.getvalue()


@pytest.mark.parametrize("what", SHOWN)
def test_the_text_is_the_golden_one_in_80_columns(bundle: Path, what: str) -> None:
    assert not differing(GOLDEN / f"{what}.txt", text(bundle, what))


@pytest.mark.parametrize("width", [20, 80])
@pytest.mark.parametrize("what", SHOWN)
def test_hostile_names_are_shown_harmlessly_and_within_the_console(hostile: Path, what: str, width: int) -> None:
    shown = text(hostile, what, width)
    assert len(shown) < 30_000, "names are cut"
    for line in shown.split("\n"):
        assert line.isprintable() and cell_len(line) <= width, line
    if width == 80:
        assert "\\x1b" in shown or "\\u202e" in shown or "[bold red]" in shown, "and told as what they are"


@pytest.mark.parametrize(
    "command", [["ranks"], ["ranks", "--rank", "2"], ["stacks", "2"], ["diff", "2", "1"], ["tree"]]
)
def test_hostile_names_reach_neither_a_pipe_nor_json_raw(hostile: Path, command: list[str]) -> None:
    name, *rest = command
    for form in ("text", "json"):
        shown = run(name, hostile, *rest, "--format", form).stdout
        assert all(line.isprintable() for line in shown.split("\n"))


def test_the_ranks_of_each_cluster_as_json(bundle: Path) -> None:
    document = told("ranks", bundle)
    assert (document["schema"], document["incident"], document["bundle"]) == ("hangdog.ranks/1", None, str(bundle))
    assert {one["ranks"]: one["activity"] for one in document["clusters"]}["5"] == "dataloader"
    assert max(document["clusters"], key=lambda one: float(one["suspicion"]))["ranks"] == "5"
    everybody = [rank for one in document["clusters"] for rank in parse_ranks(one["ranks"])]
    assert sorted(everybody) == [rank for rank in range(72) if rank != 69], "each that was seen once"


def test_where_one_rank_stands_as_json(bundle: Path) -> None:
    document = told("ranks", bundle, "--rank", "5")
    assert (document["schema"], document["machine"], document["groups"]["tp"]) == ("hangdog.rank/1", "node-0", "0-7")
    assert document["suspicion"] > 0.9 and document["because"] and len(document["looks"]) == 2
    assert document["waits_for"] == [] and {one["dim"] for one in document["waited_for_by"]} >= {"pp"}
    unseen = run("ranks", bundle, "--rank", "69").stdout
    assert "not captured: timed out: py-spy: no answer within 8 s" in unseen


def test_the_stacks_of_a_rank_as_json_and_of_one_look(bundle: Path) -> None:
    document = told("stacks", bundle, "5")
    (trainer,) = document["processes"]
    assert (document["schema"], trainer["role"], trainer["look"], trainer["pid"]) == (
        "hangdog.stacks/1",
        "trainer",
        1,
        4005,
    )
    main_one, helper = trainer["threads"]
    assert (main_one["trains"], helper["trains"], helper["name"]) == (True, False, "pin_memory")
    assert [frame["function"] for frame in main_one["frames"]] == [*(frame.function for frame in LOADER), "poll"]
    (first,) = told("stacks", bundle, "5", "--look", "0")["processes"]
    assert [frame["line"] for frame in first["threads"][0]["frames"]] == [frame.line for frame in LOADER]


def test_what_is_known_of_a_rank_that_was_not_captured(bundle: Path) -> None:
    assert "! timed out: py-spy: no answer within 8 s" in run("stacks", bundle, "69").stdout
    refused = run("diff", bundle, "5", "69", status=65)
    assert "rank 69" in refused.stderr and "timed out" in refused.stderr and "hangdog stacks" in refused.stderr
    assert "[no-evidence-of-rank]" in refused.stderr


def test_the_difference_and_the_tree_as_json(bundle: Path) -> None:
    document = told("diff", bundle, "5", "13")
    signs = [row["alike"] for row in document["rows"]]
    assert (document["schema"], document["machines"], signs[:4]) == (
        "hangdog.diff/1",
        ["node-0", "node-1"],
        ["same"] * 4,
    )
    assert {"left only", "right only"} <= set(signs)
    assert "both stand at the same lines" in run("diff", bundle, "8", "9").stdout
    document = told("tree", bundle)
    root, *others = document["calls"]
    assert (document["schema"], root["caller"], root["ranks"]) == ("hangdog.tree/1", None, "0-68,70-71")
    assert [one["ranks"] for one in others if one["function"] == "get_batch"] == ["5"]
    assert len(run("tree", bundle, "--all").stdout.splitlines()) > len(run("tree", bundle).stdout.splitlines())


@pytest.mark.parametrize(
    ("command", "status", "code", "value"),
    [
        (["stacks", "{}", "72"], 64, "no-such-rank", "72"),
        (["ranks", "{}", "--rank", "72"], 64, "no-such-rank", "72"),
        (["diff", "{}", "0", "72"], 64, "no-such-rank", "0-71"),
        (["stacks", "{}", "5", "--look", "2"], 64, "no-such-round", "0, 1"),
        (["tree", "{}/nowhere"], 64, "no-such-path", "nowhere"),
        (["tree", "nowhere.zip"], 64, "no-such-path", "nowhere"),
        (["tree", "{}/round-0/empty"], 65, "no-evidence", "round-0/empty"),
        (["stacks", "{}", "many"], 64, "wrong-arguments", "'many'"),
        (["tree", "0a", "--server", "127.0.0.1:1"], 69, "server-unreachable", "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_what_to_do(
    bundle: Path, tmp_path: Path, command: list[str], status: int, code: str, value: str
) -> None:
    (bundle / "round-0" / "empty").mkdir(exist_ok=True)
    refused = run(*(part.format(bundle) for part in command), status=status)
    assert f"[{code}]" in refused.stderr and value in refused.stderr and not refused.stdout


def test_a_folder_that_is_called_like_an_incident_is_meant_by_its_path(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "3fa9").symlink_to(bundle)
    (tmp_path / "noon").symlink_to(bundle)
    assert told("tree", "noon")["bundle"] == "noon" and told("tree", "./3fa9")["bundle"] == "./3fa9"
    run("tree", "3fa9", "--server", "127.0.0.1:1", status=69)


def test_a_terminal_gets_colour_and_a_pipe_does_not(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    found = opened(bundle)
    for show in SHOWN.values():
        terminal, pipe = Terminal(), StringIO()
        show(found, console_for(terminal))
        show(found, console_for(pipe))
        assert "\x1b[" in terminal.getvalue() and "\x1b" not in pipe.getvalue()


FRAMES = st.lists(st.builds(Frame, st.sampled_from("abc"), st.just("x.py"), st.integers(0, 3)), max_size=12)


@settings(max_examples=40)
@given(FRAMES, FRAMES)
def test_side_by_side_neither_stack_loses_or_moves_a_frame(left: list[Frame], right: list[Frame]) -> None:
    rows = side_by_side(left, right)
    assert [row.left for row in rows if row.left] == left
    assert [row.right for row in rows if row.right] == right
    for row in rows:
        if row.left and row.right:
            assert (row.left.function, row.left.file) == (row.right.function, row.right.file)
            assert (row.alike is Alike.SAME) == (row.left == row.right)


def test_a_recursion_is_compared_by_its_ends() -> None:
    deep = [Frame(f"f{number}", "x.py", 1) for number in range(5000)]
    rows = side_by_side(deep, deep[:-1])
    assert len(rows) < 900 and rows[0].left == deep[0] and deep[-1] in [row.left for row in rows]


@settings(max_examples=40)
@given(TEXT, TEXT, st.integers(16, 60))
def test_a_fitted_frame_is_never_wider_and_printable(function: str, file: str, width: int) -> None:
    shown = frame_fitted(Frame(function, file, 7), width)
    assert cell_len(shown) <= width and shown.isprintable()


def test_the_end_of_a_path_is_kept_where_all_of_it_has_no_room() -> None:
    frame = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 17)
    assert frame_fitted(frame, 38) == "all_reduce (…/distributed_c10d.py:17)"


def test_of_several_looks_the_last_one_with_stacks_is_shown() -> None:
    snapshot, _ = stalled(8, 8, 1)
    blind = replace(snapshot.rounds[1], number=2, traces=(ProcessTrace(Rank(5), pid=1),))
    (seen,) = of_rank((*snapshot.rounds, blind), Rank(5))
    assert (seen.look, seen.trace.pid) == (1, 4005)
    (asked,) = of_rank((*snapshot.rounds, blind), Rank(5), 2)
    assert (asked.look, asked.trace.threads) == (2, ())
    assert of_rank(snapshot.rounds, Rank(8)) == ()


def test_threads_that_stand_alike_are_told_together_but_the_one_that_trains() -> None:
    threads = (Thread("a", 2, REDUCE), Thread("b", 3, REDUCE), Thread("c", 4, LOADER), Thread("MainThread", 1, REDUCE))
    trace = ProcessTrace(Rank(0), pid=1, threads=threads)
    together = alike(threads, main_thread(trace))
    assert [[thread.name for thread in group] for group in together] == [["MainThread"], ["a", "b"], ["c"]]


def test_many_threads_of_one_name_are_counted(bundle: Path) -> None:
    pool = tuple(Thread("pool", number, REDUCE, False) for number in range(2, 40))
    trace = ProcessTrace(Rank(0), pid=1, threads=(Thread("MainThread", 1, LOADER), *pool))
    out = StringIO()
    stacks.show(opened(bundle), 0, (RankView(0, trace),), Console(file=out, width=80))
    assert "  pool: asleep (38 alike)\n" in out.getvalue() and out.getvalue().count("all_reduce") == 1
