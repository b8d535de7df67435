"""What all ranks do at once, each for itself and for as long as it takes: validation, checkpoints, sleeps, compilers, long steps."""

from math import inf

from accuracy.simulator.phases.phase import Part, Phase, Who, compiling, runs, sleeps, writes
from accuracy.simulator.program import frames

_CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1553", "_call_impl torch/nn/modules/module.py:1562")
_BARRIER = ("wrapper torch/distributed/c10d_logger.py:83", "barrier torch/distributed/distributed_c10d.py:3943")
_REDUCE = ("wrapper torch/distributed/c10d_logger.py:83", "all_reduce torch/distributed/distributed_c10d.py:2501")
_WORKERS = ("__iter__ torch/utils/data/dataloader.py:439", "_get_iterator torch/utils/data/dataloader.py:387")

TOGETHER = (
    Phase(
        "validation of all ranks", Who.ALL, (20.0, 1200.0), frames("validate loop.py:120"),
        (
            Part(1.0, (
                sleeps(0.02, "run_shard hooks/validation.py:31", "__next__ torch/utils/data/dataloader.py:630", "_next_data torch/utils/data/dataloader.py:1327",
                       "_get_data torch/utils/data/dataloader.py:1293", "_try_get_data torch/utils/data/dataloader.py:1131", "get queue.py:180", "wait threading.py:331"),
                runs(0.05, "run_shard hooks/validation.py:34", *_CALL, "forward models/encoder.py:212", *_CALL, "forward torch/nn/modules/linear.py:117"),
                runs(0.04, "run_shard hooks/validation.py:34", *_CALL, "forward models/encoder.py:216", *_CALL, "forward torch/nn/modules/normalization.py:217"),
                runs(0.02, "run_shard hooks/validation.py:38", "update metrics/ranking.py:44", lines=6),
            )),
        ),
        frames("validate loop.py:126", *_REDUCE),
    ),
    Phase(
        "checkpoint of all ranks", Who.ALL, (5.0, 600.0), frames("save_shards utils/saving.py:130"),
        (
            Part(0.85, (
                runs(0.15, "save torch/serialization.py:651", "_save torch/serialization.py:886", "cpu torch/storage.py:267", gil=False),
                writes(1.5, "save torch/serialization.py:651", "_save torch/serialization.py:888", wchan="rpc_wait_bit_killable"),
            )),
            Part(1.0, (writes(15.0, "_flush utils/saving.py:67", wchan="nfs_wait_on_request", syscall="74"),)),
        ),
        frames("save_shards utils/saving.py:138", *_BARRIER),
        service=True,
    ),
    Phase(
        "warm-up sleep of all ranks", Who.ALL, (10.0, 300.0), frames("wait_for_fabric launch/warmup.py:12"),
        (Part(1.0, (sleeps(inf, wchan="hrtimer_nanosleep", syscall="230"),)),),
        frames("wait_for_fabric launch/warmup.py:15", *_BARRIER),
        spread=0.05,
        start=True,
    ),
    Phase(
        "compile of all ranks", Who.ALL, (20.0, 900.0), frames("warm_up loop.py:40", "_fn torch/_dynamo/eval_frame.py:433"),
        compiling(0.5),
        start=True,
    ),
    Phase(
        "long step of all optimizers", Who.ALL, (5.0, 120.0), frames("train_step loop.py:98", "step offload/cpu_adam.py:61"),
        (
            Part(1.0, (
                runs(3.0, "adam_update offload/cpu_adam.py:88", native=("Adam_Optimizer::Step_8", "GOMP_parallel")),
                runs(0.5, "copy_back offload/cpu_adam.py:93", "copy_ torch/_tensor.py:980", gil=False),
            )),
        ),
    ),
    Phase(
        "workers of a new epoch", Who.ALL, (5.0, 180.0), frames("begin_epoch loop.py:55"),
        (
            Part(0.5, (
                runs(0.3, *_WORKERS, "__init__ torch/utils/data/dataloader.py:1040", "start multiprocessing/process.py:121", "_launch multiprocessing/popen_fork.py:66"),
                runs(0.1, "shuffle data/sampler.py:77", lines=5),
            )),
            Part(1.0, (
                sleeps(5.0, "__next__ torch/utils/data/dataloader.py:630", "_next_data torch/utils/data/dataloader.py:1327", "_get_data torch/utils/data/dataloader.py:1293",
                       "_try_get_data torch/utils/data/dataloader.py:1131", "get queue.py:180", "wait threading.py:331", child="dataloader-0"),
            )),
        ),
    ),
)  # fmt: skip
