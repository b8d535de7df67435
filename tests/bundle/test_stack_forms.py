"""Every form of stacks goes the whole way: one look at a job that hangs, as people have it, names the rank that holds it up."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import hangdog
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle
from hangdog_models.ranks import format_ranks
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER, Reason
from hangdog_models.verdict import Kind, Verdict

Fill = Callable[[dict[str, bytes]], Path]

#: A job of four ranks on one machine: rank 2 reads data that never comes, the others wait in the reduction of gradients.
RECORDED = Path(__file__).parents[1] / "reading" / "stacks" / "recorded"
TIMER = (RECORDED / "torchrun-timer.log").read_text(encoding="utf-8")
TIMER_LOG = {"a.log": TIMER.encode()}
GUILTY = "2"


def culprit(verdict: Verdict) -> str:
    assert verdict.kind in (Kind.MACHINE, Kind.SLOW), verdict.because
    return format_ranks(verdict.suspects[0].ranks)


def relabelled(label: str) -> bytes:
    """The log of the job as another launcher labels its lines; `{}` is the rank."""
    return re.sub(r"^\[default(\d)\]:", lambda found: label.format(found[1]), TIMER, flags=re.MULTILINE).encode()


@pytest.mark.parametrize(
    "label",
    [
        "[default{}]:", "[rank{}]:", "{}: ", "[1,{}]<stderr>:", "2026-01-02T03:04:05.678Z [rank{}]: ",
        "[pod/train-0/pytorch] [rank{}]:", "[gpu-a:{}]:",
    ],
)  # fmt: skip
def test_a_log_of_the_whole_job_with_dumps_of_all_ranks(fill: Fill, label: str) -> None:
    verdict = hangdog.triage(fill({"slurm-4711.out": relabelled(label)}))
    assert culprit(verdict) == GUILTY
    # it has no loader processes: it reads its shard by the program's own code, which no rule knows
    assert {cluster.activity for cluster in verdict.clusters} == {"collective", "unknown"}


def test_a_log_of_each_rank(fill: Fill) -> None:
    own = {rank: [line for line in TIMER.splitlines() if line.startswith(f"[default{rank}]:")] for rank in range(4)}
    files = {f"rank{rank}.log": "\n".join(line.partition(":")[2] for line in lines) for rank, lines in own.items()}
    assert culprit(hangdog.triage(fill({name: text.encode() for name, text in files.items()}))) == GUILTY


def test_one_file_alone() -> None:
    assert culprit(hangdog.triage(RECORDED / "torchrun-timer.log")) == GUILTY


@pytest.mark.parametrize("folder", ["eu-stack", "kernel", "py-spy-record"])
def test_a_file_of_each_rank_by_another_tool(folder: str) -> None:
    assert culprit(hangdog.triage(RECORDED / folder)) == GUILTY


def merged(header: str) -> bytes:
    reduces = "  <module> (t.py:9)\n  reduce (t.py:5)\n  all_reduce (torch/distributed/distributed_c10d.py:3252)\n"
    loads = "  <module> (t.py:9)\n  __next__ (torch/utils/data/dataloader.py:700)\n  _next_data (torch/utils/data/dataloader.py:757)\n"
    return f"{header.format('0-1, 3')}\n{reduces}\n{header.format('2')}\n{loads}".encode()


@pytest.mark.parametrize("header", ["ranks {}:", "16 ranks: [{}]", "[{}] (3 processes)"])
def test_a_merged_listing(fill: Fill, header: str) -> None:
    assert culprit(hangdog.triage(fill({"stacks.txt": merged(header)}))) == GUILTY


def test_the_debug_server_s_page_names_the_machine_too(fill: Fill) -> None:
    own = {rank: [line for line in TIMER.splitlines() if line.startswith(f"[default{rank}]:")] for rank in range(4)}
    page = "".join(
        f"=== Rank {rank}: http://gpu-{'ab'[rank // 2]}:41/handler/dump_traceback? ===\n"
        + "\n".join(line.partition(":")[2] for line in lines) + "\n"
        for rank, lines in own.items()
    )  # fmt: skip
    verdict = hangdog.triage(fill({"stacks_20260102_030405.txt": page.encode()}))
    assert culprit(verdict) == GUILTY
    assert verdict.suspects[0].machines == ("gpu-b",)


def snapshot_of(fill: Fill, files: dict[str, bytes]) -> Snapshot:
    return open_bundle(fill(files))[0]


def test_a_log_keeps_its_lines_beside_its_stacks(fill: Fill) -> None:
    watchdog = "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
    snapshot = snapshot_of(fill, {"job.log": watchdog.encode() + relabelled("[rank{}]:")})
    assert [record.rank for record in snapshot.counters] == [1]
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0, 1, 2, 3]
    assert snapshot.account.files_read == 1 and not snapshot.account.unreadable


def test_a_file_that_is_called_after_a_rank_comes_before_a_log_that_speaks_of_it(fill: Fill) -> None:
    pyspy = b'Process 71: python t.py\nThread 71 (idle): "MainThread"\n    elsewhere (t.py:3)\n'
    snapshot = snapshot_of(fill, {"job.log": relabelled("[rank{}]:"), "rank2.txt": pyspy})
    trace = next(trace for trace in snapshot.rounds[0].traces if trace.rank == 2)
    assert trace.pid == 71
    (note,) = snapshot.account.notes
    assert note.startswith("job.log: rank 2 ") and "rank2.txt" in note
    assert not snapshot.account.unreadable


def test_ranks_on_the_machine_are_the_job_s_only_where_nothing_tells_of_another_machine(fill: Fill) -> None:
    log = relabelled("[default{}]:")
    alone = snapshot_of(fill, {"a.log": log})
    assert [trace.rank for trace in alone.rounds[0].traces] == [0, 1, 2, 3]
    (note,) = alone.account.notes
    assert note.startswith("a.log: ") and "ranks 0-3 " in note
    placed = snapshot_of(fill, {"job.toml": b"[topology]\ndp = 8\ngpus_per_node = 4\n", "machine-node-1/a.log": log})
    assert [trace.rank for trace in placed.rounds[0].traces] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    "other",
    [
        {"b.log": relabelled("[default{}]:")},
        {"job.toml": b"[job]\nworld_size = 8\n"},
        {"rank9.txt": b'Thread 7 (idle): "MainThread"\n    f (t.py:3)\n'},
        {"b.log": b"[rank9]:[E] CUDA error: uncorrectable ECC error encountered\n"},
    ],
    ids=["another log", "more ranks", "another rank", "a log that speaks of another rank"],
)
def test_ranks_on_a_machine_of_several_stay_without_a_rank(fill: Fill, other: dict[str, bytes]) -> None:
    """Where nothing else has a rank either they are numbered, and a note says that these are no ranks."""
    try:
        snapshot = snapshot_of(fill, TIMER_LOG | other)
    except UnreadableBundle as error:
        assert error.code == "no-evidence"
        return
    ranks = {trace.rank for round_ in snapshot.rounds for trace in round_.traces}
    numbered = any(note.startswith("nothing tells the ranks") for note in snapshot.account.notes)
    assert numbered is ("b.log" in other and b"[default" in other["b.log"])
    assert numbered or ranks <= {9}


INTERRUPTED = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/srv/t.py", line 9, in <module>
[rank{rank}]:     {function}()
[rank{rank}]:   File "/lib/site-packages/torch/{file}", line 700, in {function}
[rank{rank}]:     wait()
[rank{rank}]: KeyboardInterrupt
"""


def test_a_log_of_a_job_that_somebody_interrupted(fill: Fill) -> None:
    reduces = [
        INTERRUPTED.format(rank=rank, function="barrier", file="distributed/distributed_c10d.py") for rank in (0, 1, 3)
    ]
    loads = INTERRUPTED.format(rank=2, function="_next_data", file="utils/data/dataloader.py")
    bundle = fill({"job.log": ("step 3\n^C" + "".join([*reduces, loads])).encode()})
    verdict = hangdog.triage(bundle, stalled_s=1800.0)
    assert culprit(verdict) == GUILTY
    assert [finding.code for finding in open_bundle(bundle)[0].findings] == ["interrupted"] * 4


def test_a_log_without_a_rank_stays_a_log_where_its_program_was_interrupted(fill: Fill) -> None:
    log = b'^CTraceback (most recent call last):\n  File "/srv/t.py", line 9, in <module>\n    f()\n'
    assert snapshot_of(fill, {"a.log": log}).account.files_read == 1


@pytest.mark.parametrize(("key", "end"), [("^C", ""), ("", "KeyboardInterrupt\n")])
def test_a_log_of_a_rank_that_somebody_interrupted(fill: Fill, key: str, end: str) -> None:
    log = f'{key}Traceback (most recent call last):\n  File "/srv/t.py", line 9, in <module>\n    f()\n{end}'
    ((trace,),) = (round_.traces for round_ in snapshot_of(fill, {"rank0.log": log.encode()}).rounds)
    assert trace.missing is None and trace.threads[0].frames[-1].function == "<module>"


def test_copied_stacks_of_one_process_in_a_file_of_its_rank(fill: Fill) -> None:
    texts = {
        "rank0.txt": "#0  syscall () at ../sysdeps/syscall.S:38\n#1  0x01 in net::wait (this=0x7f) from /opt/libnet.so\n",
        "rank1.txt": 'Thread (idle): "MainThread"\n    put (store.py:3)   <- hangs here\n    main (t.py:9)\n',
        "rank2.txt": "    put (store.py:3)\n    save (t.py:5)\n    main (t.py:9)\n",
    }
    (round_,) = snapshot_of(fill, {name: text.encode() for name, text in texts.items()}).rounds
    innermost = [trace.threads[0].frames[-1].function for trace in round_.traces if trace.missing is None]
    assert innermost == ["syscall", "put", "put"]


def test_a_dump_without_its_main_thread_is_never_read_as_a_rank_that_runs(fill: Fill) -> None:
    helper = b'Thread 0x0f (most recent call first):\n  File "/lib/python3.12/threading.py", line 3 in _bootstrap\n'
    snapshot = snapshot_of(fill, {"rank0.log": helper})
    (trace,) = snapshot.rounds[0].traces
    assert (trace.role, trace.missing is not None and trace.missing.reason) == (TRAINER, Reason.NO_EVIDENCE)
