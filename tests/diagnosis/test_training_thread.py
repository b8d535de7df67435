"""Which thread of a trainer is judged: the main one, unless a library trains in another."""

from hangdog_models.diagnosis.observe import activity
from hangdog_models.ranks import Rank
from hangdog_models.reading.stacks import pyspy_text
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_models.training import training_thread
from hangdog_models.verdict import Activity

#: py-spy's words of a worker of Ray Train 2.60 whose ranks wait in gloo; recorded in November 2026.
RAY = """Process 8496: ray::RayTrainWorker
Python v3.11.7 (/usr/bin/python3.11)

Thread 8496 (idle): "MainThread"
    Worker.main_loop (ray/_private/worker.py:1069)
    <module> (ray/_private/workers/default_worker.py:323)
Thread 8636 (idle): "MonitoringThread(train_fn_with_final_checkpoint_flush)"
    ThreadRunner._monitor_target (ray/train/v2/_internal/execution/worker_group/thread_runner.py:72)
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
Thread 8638 (idle): "TrainingThread(train_fn_with_final_checkpoint_flush)"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    train (job.py:20)
    construct_train_func.<locals>.train_fn (ray/train/v2/_internal/util.py:89)
    RayTrainWorker.run_train_fn.<locals>.train_fn_with_final_checkpoint_flush (ray/train/v2/_internal/execution/worker_group/worker.py:152)
    ThreadRunner.run.<locals>._run_target (ray/train/v2/_internal/execution/worker_group/thread_runner.py:37)
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
"""
THREADS = pyspy_text.read(RAY)[0].threads


def test_ray_trains_in_a_thread_of_its_own() -> None:
    thread = training_thread(THREADS, 8496)
    assert thread is not None and thread.tid == 8638
    state = ProcessState(8496, "S", "futex_wait_queue", "202")
    standing = activity.read(ProcessTrace(Rank(0), pid=8496, threads=THREADS, state=state), packaged())
    assert standing.activity is Activity.COLLECTIVE and standing.operation == "all_reduce"


def test_native_frames_around_it_do_not_hide_it() -> None:
    native = Frame("clone3", "clone3.S", 0, "libc.so.6")
    threads = [
        Thread(one.name, one.tid, tuple(frame for python in one.frames for frame in (native, native, native, python)))
        for one in THREADS
    ]
    thread = training_thread(threads, 8496)
    assert thread is not None and thread.tid == 8638


def test_before_the_training_function_runs_the_main_thread_stands_for_the_rank() -> None:
    waiting = [thread for thread in THREADS if thread.tid != 8638]
    thread = training_thread(waiting, 8496)
    assert thread is not None and thread.name == "MainThread"


def test_a_thread_is_told_by_its_id_where_no_name_tells_and_by_its_place_where_no_id_does() -> None:
    one, other = Thread(None, 7, ()), Thread(None, 9, ())
    assert training_thread([one, other], 7) is one
    assert training_thread([one, other], None) is other
    assert training_thread([one, Thread("watchdog", 3, ())], None) is None
    assert training_thread([], 7) is None
