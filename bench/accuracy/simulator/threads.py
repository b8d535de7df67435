"""The threads beside the main one in a trainer, which wait for work all day (real-stacks.md section 8)."""

from accuracy.simulator.job import Job
from accuracy.simulator.process import Process
from accuracy.simulator.program import frames
from hangdog_models.stack import Thread

_START = frames("_bootstrap threading.py:973", "_bootstrap_inner threading.py:1016", "run threading.py:953")
_FEEDER = (*_START, *frames("_feed multiprocessing/queues.py:231", "wait threading.py:320"))
_PIN = (*_START, *frames(
    "_pin_memory_loop torch/utils/data/_utils/pin_memory.py:53", "do_one_step torch/utils/data/_utils/pin_memory.py:29",
    "get multiprocessing/queues.py:113", "poll multiprocessing/connection.py:257", "_poll multiprocessing/connection.py:424",
    "wait multiprocessing/connection.py:931", "select selectors.py:416",
))  # fmt: skip
_TQDM = (*_START[:2], *frames("run tqdm/_monitor.py:60", "wait threading.py:607", "wait threading.py:324"))
_INDUCTOR = (*_START, *frames("_read_thread torch/_inductor/compile_worker/subproc_pool.py:195",
                              "_recv_msg torch/_inductor/compile_worker/subproc_pool.py:61"))  # fmt: skip
_WRITER = (*_START[:2], *frames(
    "run tensorboard/summary/writer/event_file_writer.py:244", "_run tensorboard/summary/writer/event_file_writer.py:269",
    "get queue.py:180", "wait threading.py:324",
))  # fmt: skip


def thread_id(pid: int, number: int) -> int:
    return pid + 100_000 * (number + 2)


def helpers(job: Job, process: Process, pid: int) -> list[Thread]:
    """Loader threads where the rank loads (a role, not a fault), a monitor, the compiler's reader, a log writer."""
    rank = process.rank
    stage = job.topology.stage(job.topology.groups["world"][0][rank]) or 0
    tensor = process.groups.get("tp")
    loads = not job.framework.startswith("megatron") or (
        stage in (0, job.stages - 1) and (tensor is None or tensor.index[rank] == 0)
    )
    wanted = [("Thread-1", _TQDM)]
    if loads:
        wanted += [("QueueFeederThread", _FEEDER), ("QueueFeederThread", _FEEDER), ("Thread-2", _PIN)]
    if job.framework in ("megatron", "fsdp"):
        wanted.append(("Thread-3", _INDUCTOR))
    if rank == job.topology.world_size - 1 if job.framework.startswith("megatron") else rank == 0:
        wanted.append(("Thread-4", _WRITER))
    return [Thread(name, thread_id(pid, 2 + at), stack, False, False) for at, (name, stack) in enumerate(wanted)]
