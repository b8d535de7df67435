"""Native stacks of gdb join the Python stacks of the same process, and of no other."""

from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.reading.stacks.merge_native import merge_native
from hangdog_models.stack import Frame, Thread

TRAIN, LOSS = Frame("train", "train.py", 3), Frame("loss", "loss.py", 9)
LOOP, MAIN = Frame("_PyEval_EvalFrameDefault", "", 0, "libpython"), Frame("Py_BytesMain", "", 0, "libpython")
ITEM, SYNC = Frame("item", "", 0, "libtorch"), Frame("cudaStreamSynchronize", "", 0, "libcudart")
PYTHON = DumpedProcess(7, (Thread("MainThread", 7, (TRAIN, LOSS)), Thread("loader", 9, (TRAIN,))))


def native(*threads: Thread, pid: int | None = 7) -> DumpedProcess:
    return DumpedProcess(pid, threads)


def test_what_the_innermost_python_frame_called_is_put_below_it() -> None:
    both = merge_native(PYTHON, native(Thread(None, 8, (SYNC,)), Thread(None, 7, (MAIN, LOOP, LOOP, ITEM, SYNC))))
    assert both is not None
    main, loader, helper = both.threads
    assert main == Thread("MainThread", 7, (TRAIN, LOSS, ITEM, SYNC))
    assert loader == PYTHON.threads[1]
    assert helper == Thread("native", 8, (SYNC,))  # a name, so that nobody takes it for the main thread


def test_a_stack_without_the_interpreter_adds_nothing() -> None:
    both = merge_native(PYTHON, native(Thread(None, 7, (MAIN, ITEM))))
    assert both == PYTHON


def test_a_stack_that_has_native_frames_already_is_left_alone() -> None:
    python = DumpedProcess(7, (Thread("MainThread", 7, (TRAIN, ITEM)),))
    assert merge_native(python, native(Thread(None, 7, (LOOP, SYNC)))) == python


def test_nothing_is_joined_unless_both_name_the_same_process_and_threads() -> None:
    assert merge_native(PYTHON, native(Thread(None, 8, (SYNC,)), pid=8)) is None
    assert merge_native(PYTHON, native(Thread(None, 8, (SYNC,)), pid=None)) is None
    assert (
        merge_native(DumpedProcess(7, (Thread(None, 140_000, (TRAIN,)),)), native(Thread(None, 7, (LOOP, SYNC))))
        is None
    )
    twice = Thread(None, 7, (LOOP, SYNC))
    assert merge_native(PYTHON, native(twice, twice)) is None
