"""Tracebacks of programs that somebody interrupted: whose they are, chains, cut ones, launchers and workers."""

import pytest

from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import interrupted, stack_text, stacks_in_log

TRACEBACK = """Traceback (most recent call last):
  File "/srv/train.py", line 9, in <module>
    main()
  File "/srv/train.py", line {line}, in main
    {function}()
    ^^^^
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 4159, in {function}
    raise KeyboardInterrupt
KeyboardInterrupt
"""
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback(function: str = "barrier", end: str = "KeyboardInterrupt", line: int = 5) -> str:
    return TRACEBACK.format(function=function, line=line).removesuffix("KeyboardInterrupt\n") + (end and f"{end}\n")


def prefixed(prefix: str, text: str) -> list[str]:
    return [prefix + line for line in text.splitlines()]


def told(text: str, rank: int | None = None) -> list[tuple[object, str]]:
    """For each process: its ranks, its rank on the machine or its pid, and the innermost function of its main thread."""
    found: list[tuple[object, str]] = []
    for process in interrupted.read(text, None if rank is None else Rank(rank)):
        (thread,) = process.threads
        assert thread.name == "MainThread"
        whose = process.ranks or (process.local if process.local is not None else process.pid)
        found.append((whose, thread.frames[-1].function))
    return found


def test_the_frames_come_outermost_first_without_the_folder_of_packages() -> None:
    ((thread,),) = (process.threads for process in interrupted.read(traceback()))
    assert [(frame.function, frame.file, frame.line) for frame in thread.frames] == [
        ("<module>", "/srv/train.py", 9),
        ("main", "/srv/train.py", 5),
        ("barrier", "torch/distributed/distributed_c10d.py", 4159),
    ]


@pytest.mark.parametrize(
    ("prefix", "whose"),
    [
        ("[rank{}]: ", [(0,), (1,)]),
        ("2026-01-02T03:04:05.123456Z [rank{}]: ", [(0,), (1,)]),
        ("{}: ", [(0,), (1,)]),
        ("[1,{}]<stderr>:", [(0,), (1,)]),
        ("[default{}]:", [0, 1]),
        ("(RayTrainWorker pid=7{}, ip=10.0.0.1) ", [70, 71]),
    ],
)
def test_ranks_whose_lines_are_mixed_are_kept_apart(prefix: str, whose: list[object]) -> None:
    texts = [prefixed(prefix.format(rank), traceback(f"f{rank}")) for rank in range(2)]
    mixed = "\n".join(line for lines in zip(*texts, strict=True) for line in lines)
    assert told(mixed) == [(one, f"f{rank}") for rank, one in enumerate(whose)]
    assert told("^C" + mixed) == told(mixed)


@pytest.mark.parametrize("before", ["^C", "^C^C", "^C\n", "step 3\n2026-01-02 03:04:05 "])
def test_what_stands_before_the_first_line_changes_nothing(before: str) -> None:
    assert told(before + traceback()) == [(None, "barrier")]


@pytest.mark.parametrize("bar", ["  3%|#   | 3/100 [00:01<00:41,  2.35it/s]", "loss 3.1 ", "epoch 3/9 ..."])
@pytest.mark.parametrize("key", ["", "^C"])
def test_output_without_a_line_end_before_the_traceback_is_of_nobody(bar: str, key: str) -> None:
    assert told(bar + key + traceback()) == [(None, "barrier")]


@pytest.mark.parametrize("before", ["^C", "^C\n", "^C[rank3]: "])
def test_a_traceback_whose_end_is_cut_off_counts_where_the_key_was_shown(before: str) -> None:
    lines = traceback(end="")
    if "rank" in before:
        lines = "\n".join(prefixed("[rank3]: ", lines)).removeprefix("[rank3]: ")
    assert [function for _, function in told(before + lines)] == ["barrier"]
    assert told(lines) == []


@pytest.mark.parametrize("end", ["ValueError: a bad batch", "_queue.Empty", "torch.distributed.DistBackendError: x"])
def test_a_traceback_that_ends_in_an_exception_shows_no_stack(end: str) -> None:
    assert told(traceback(end=end)) == []
    assert told(traceback(end=end) + "KeyboardInterrupt\n") == []
    assert told("^C" + traceback(end=end)) == []


def test_of_a_chain_the_first_one_that_was_interrupted_counts() -> None:
    closing = traceback("close", "RuntimeError: closed")
    assert told(traceback("wait") + HANDLING + closing) == [(None, "wait")]
    assert told(traceback("wait") + HANDLING + traceback("close")) == [(None, "wait")]
    assert told(traceback("poll", "_queue.Empty") + HANDLING + traceback("wait")) == [(None, "wait")]
    assert told("^C" + traceback("wait") + HANDLING + traceback("close", "")) == [(None, "wait")]
    assert told("^C" + traceback("wait", "") + HANDLING + traceback("close")) == [(None, "wait")]


def test_the_frames_above_the_one_that_handled_an_interrupt_stand_in_the_rest_of_the_chain() -> None:
    inner = (
        'Traceback (most recent call last):\n  File "s.py", line 2, in close\n  File "s.py", line 3, in wait\n{end}\n'
    )
    outer = 'Traceback (most recent call last):\n  File "t.py", line 9, in <module>\n  File "s.py", line 5, in close\n{end}\n'
    chain = inner.format(end="KeyboardInterrupt") + HANDLING + outer.format(end="OSError: x")
    ((thread,),) = (process.threads for process in interrupted.read(chain))
    assert [(frame.function, frame.line) for frame in thread.frames] == [("<module>", 9), ("close", 2), ("wait", 3)]


@pytest.mark.parametrize(
    "before", ["Exception ignored in: <function f at 0x7f>\n", "Error in atexit._run_exitfuncs:\n"]
)
def test_a_second_interrupt_while_the_program_ends_says_nothing(before: str) -> None:
    assert told(before + traceback("join")) == []
    assert told(traceback("wait") + before + traceback("join")) == [(None, "wait")]


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("torch/distributed/elastic/agent/server/api.py", "_invoke_run"),
        ("torch/multiprocessing/spawn.py", "join"),
        ("torch/utils/data/_utils/worker.py", "_worker_loop"),
        ("accelerate/commands/launch.py", "simple_launcher"),
    ],
)
def test_launchers_and_workers_of_loaders_are_no_ranks(file: str, function: str) -> None:
    frame = f'  File "/opt/lib/python3.12/site-packages/{file}", line 3, in {function}\n    f()\n'
    assert told(traceback("select").replace("  File", frame + "  File", 1)) == []


def test_a_rank_whose_main_function_reports_its_errors_to_the_launcher_is_one() -> None:
    frame = (
        '  File "/l/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 3, in wrapper\n'
    )
    assert told(traceback().replace("  File", frame + "  File", 1)) == [(None, "barrier")]


def test_what_nothing_tells_apart_may_be_several_processes() -> None:
    assert told(traceback("f") + traceback("g")) == [(None, "f"), (None, "g")]
    assert told(traceback("f") + traceback("g"), rank=3) == [(None, "g")]
    ranks = "\n".join(prefixed("[rank3]: ", traceback("f") + traceback("g")))
    assert told(ranks) == [((3,), "g")]
    task = "\n".join(prefixed("3: ", traceback("f") + traceback("g")))
    assert told(task) == [(None, "f"), (None, "g")]


def test_mixed_lines_that_nothing_tells_apart_are_no_stack() -> None:
    first, second = traceback("f").splitlines(), traceback("g").splitlines()
    assert told("\n".join(line for lines in zip(first, second, strict=True) for line in lines)) == []


@pytest.mark.parametrize(
    "source", ["except KeyboardInterrupt:", "raise KeyboardInterrupt", "raise ValueError", "ValueError"]
)
@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_lines_of_sources_are_no_ends(source: str, prefix: str) -> None:
    text = traceback("f").replace("    f()\n", f"    {source}\n")
    assert [function for _, function in told("\n".join(prefixed(prefix, text)))] == ["f"]


def test_a_cut_traceback_that_another_one_follows_may_be_mixed_with_it() -> None:
    assert told("^C" + traceback("f", "") + traceback("g", "ValueError: x")) == []


def test_lines_of_the_file_s_own_rank_are_of_one_process_with_or_without_a_prefix() -> None:
    text = "\n".join(prefixed("[rank3]: ", traceback("f"))) + "\n" + traceback("g")
    assert told(text, rank=3) == [(None, "g")]
    assert told(text, rank=4) == [((3,), "f"), (None, "g")]


def test_a_dump_of_all_threads_counts_before_the_traceback_of_the_same_process() -> None:
    dump = 'Thread 0x0f (most recent call first):\n  File "t.py", line 8 in save\n  File "t.py", line 9 in <module>\n'
    log = "\n".join(prefixed("[rank0]: ", dump + traceback("f")) + prefixed("[rank1]: ", traceback("g")))
    found = {process.ranks: process.threads[-1].frames[-1].function for process in stacks_in_log.read(log)}
    assert found == {(0,): "save", (1,): "g"}


def test_below_headers_of_ranks() -> None:
    text = "".join(f"=== Rank {rank} ===\n{traceback(f'f{rank}')}\n" for rank in range(2))
    assert stack_text.form_of(text) == "stacks of ranks"
    found = {process.ranks: process.threads[0].frames[-1].function for process in stack_text.read(text)}
    assert found == {(0,): "f0", (1,): "f1"}


def test_what_is_past_a_limit_is_passed_over() -> None:
    ((thread,),) = (process.threads for process in interrupted.read(traceback(), None, Limits(frames=2)))
    assert [frame.function for frame in thread.frames] == ["<module>", "main"]
