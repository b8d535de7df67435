"""DistributedDataParallel in a plain training loop: C++ hooks reduce buckets of gradients while backward runs."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer

CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1553", "_call_impl torch/nn/modules/module.py:1562")
DDP = "torch/nn/parallel/distributed.py"
BACKWARD = (
    "train_one_epoch train.py:142", "backward torch/_tensor.py:521", "backward torch/autograd/__init__.py:289",
    "_engine_run_backward torch/autograd/graph.py:769",
)  # fmt: skip
NEXT_BATCH = (
    "__next__ torch/utils/data/dataloader.py:630", "_next_data torch/utils/data/dataloader.py:1327",
    "_get_data torch/utils/data/dataloader.py:1293",
)  # fmt: skip
#: Elements of a bucket: 25 MB of float32, DDP's default.
BUCKET = 6_553_600
KERNELS, LAYER_S = 120, 0.01


def write(job: Job, role: Role) -> Writer:
    writer = Writer(role.slots)
    with writer.inside("<module> train.py:231", "main train.py:214"):
        for step in job.plan:
            writer.mark()
            if step == "eval":
                _evaluate(writer, job)
            elif step == "save":
                if role.writer:  # rank 0 saves for all, the others wait at the barrier
                    with writer.inside("save_checkpoint train.py:88", "save torch/serialization.py:651"):
                        writer.saves(4.0, "_save torch/serialization.py:886")
                with writer.inside("save_checkpoint train.py:91"):
                    writer.collective("world", "barrier", 1, 1e-4, mode=Mode.HOST)
            else:
                _step(writer, job, compiles=step == "start")
    return writer


def _step(writer: Writer, job: Job, *, compiles: bool) -> None:
    writer.host("loader", 1e-3, "train_one_epoch train.py:131", *NEXT_BATCH)
    with writer.inside("train_one_epoch train.py:138", *CALL, f"forward {DDP}:1639"):
        with writer.inside(
            f"_pre_forward {DDP}:1529", f"_sync_buffers {DDP}:2166", f"_distributed_broadcast_coalesced {DDP}:2078"
        ):
            writer.collective("dp", "broadcast", 4096, 5e-5, native=True, dtype="Float")
        if compiles:
            writer.compiles(15.0, f"_run_ddp_forward {DDP}:1457", "_fn torch/_dynamo/eval_frame.py:433")
        for _ in range(job.layers):
            writer.kernels(
                KERNELS, LAYER_S, f"_run_ddp_forward {DDP}:1457", *CALL, "forward torch/nn/modules/linear.py:117"
            )
    with writer.inside(*BACKWARD):
        for layer in range(job.layers):
            writer.kernels(2 * KERNELS, 2 * LAYER_S)
            # Buckets are reduced from C++: Python shows the main thread in backward and nothing of the collective.
            writer.collective(
                "dp", "all_reduce", BUCKET, 1e-3, mode=Mode.ASYNC, handle=f"bucket{layer}", dtype="Float", native=True
            )
        for layer in range(job.layers):
            writer.wait(f"bucket{layer}")
    writer.kernels(20, 2e-3, "train_one_epoch train.py:146", "step torch/optim/adamw.py:216")
    writer.read("train_one_epoch train.py:149")


def _evaluate(writer: Writer, job: Job) -> None:
    with writer.inside("evaluate train.py:171"):
        for _ in range(job.layers):
            writer.host("loader", 1e-3, *NEXT_BATCH)
            writer.kernels(KERNELS, LAYER_S, *CALL, "forward torch/nn/modules/linear.py:117")
    with writer.inside("evaluate train.py:180"):
        writer.collective("dp", "all_reduce", 2, 1e-4, dtype="Double")
    writer.read("evaluate train.py:182")
