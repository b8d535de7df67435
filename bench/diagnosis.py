"""How the cost of a diagnosis grows with the job: CPU seconds, and microseconds a rank, for synthetic hangs of growing size.

    python bench/diagnosis.py [RANKS ...]        default: 1024 8192 65536 131072; 1048576 takes a minute

Each job is tp 8 x pp 8 x dp on machines of eight ranks; a hang has one culprit, a storm has one on every machine.
`ratio` is to the row before: with eight times the ranks, about 8 means linear. Making the topology is timed apart.
"""

import argparse
import resource
from collections.abc import Callable
from time import process_time

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Layout, build

TENSOR, STAGES, PER_MACHINE = 8, 8, 8
C10D = "torch/distributed/distributed_c10d.py"
PIPELINE = "megatron/core/pipeline_parallel/p2p_communication.py"


def stack(*calls: tuple[str, str]) -> tuple[Frame, ...]:
    return tuple(
        Frame(function, file, 7) for function, file in (("<module>", "train.py"), ("step", "train.py"), *calls)
    )


REDUCE = stack(("start_grad_sync", "megatron/core/distributed/param_and_grad_buffer.py"), ("all_reduce", C10D))
RECEIVE = stack(("recv_forward", PIPELINE), ("_communicate", PIPELINE))
LOADER = stack(("_next_data", "torch/utils/data/dataloader.py"), ("get", "queue.py"))


def hang(rank: int) -> tuple[Frame, ...]:
    return LOADER if rank == 5 else RECEIVE if rank // TENSOR % STAGES else REDUCE


def storm(rank: int) -> tuple[Frame, ...]:
    return LOADER if rank % PER_MACHINE == 5 else REDUCE


def job(ranks: int, place: Callable[[int], tuple[Frame, ...]]) -> Snapshot:
    traces = tuple(
        ProcessTrace(Rank(rank), pid=rank, threads=(Thread("MainThread", rank, place(rank), False, False),))
        for rank in range(ranks)
    )
    return Snapshot(Job("bench"), (Round(0, traces), Round(1, traces)), 1.0)


def _peak() -> int:
    """The most memory this process ever held, in MiB, with the snapshot that it was given."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", nargs="*", type=int, default=[1024, 8192, 65536, 131072], help="sizes of the job")
    sizes = parser.parse_args().ranks
    print(
        f"{'story':6} {'ranks':>8} {'seconds':>8} {'us/rank':>8} {'ratio':>6} {'topology':>8} {'peak MiB':>8} verdict"
    )
    for story in (hang, storm):
        before = 0.0
        for ranks in sizes:
            sizes_of = {"tp": TENSOR, "dp": ranks // TENSOR // STAGES, "pp": STAGES}
            snapshot = job(ranks, story)
            began = process_time()
            topology, _ = build(Layout(sizes=sizes_of, ranks_per_machine=PER_MACHINE), Rank(ranks - 1))
            built = process_time()
            verdict = diagnose(snapshot, topology)
            took = process_time() - built
            ratio = f"{took / before:6.1f}" if before else "     -"
            print(
                f"{story.__name__:6} {ranks:8} {took:8.2f} {took / ranks * 1e6:8.1f} {ratio} {built - began:8.2f} {_peak():8} {verdict.kind}"
            )
            before = took


if __name__ == "__main__":
    main()
