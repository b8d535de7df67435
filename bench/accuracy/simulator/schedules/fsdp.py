"""FSDP2 as torchtitan drives it, alone or with tensor parallelism by DTensor."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer

TITAN = "torchtitan/train.py"
STATE = "torch/distributed/fsdp/_fully_shard/_fsdp_state.py"
GROUP = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
COLLECTIVES = "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"
FUNCTIONAL = "torch/distributed/_functional_collectives.py"
TENSOR = "torch/distributed/tensor"
CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1751", "_call_impl torch/nn/modules/module.py:1857")
MODEL = ("forward_backward_step torchtitan/train.py:410", *CALL, "forward torchtitan/models/llama3/model/model.py:425")
BACKWARD = (
    "forward_backward_step torchtitan/train.py:418", "backward torch/_tensor.py:648",
    "backward torch/autograd/__init__.py:353", "_engine_run_backward torch/autograd/graph.py:824",
)  # fmt: skip
NEXT_BATCH = (
    "batch_generator torchtitan/train.py:375", "__next__ torch/utils/data/dataloader.py:733",
    "_next_data torch/utils/data/dataloader.py:1491", "_get_data torch/utils/data/dataloader.py:1453",
)  # fmt: skip
#: Elements of one layer's parameters; of one layer's activations under tensor parallelism.
LAYER, ACTIVATION = 50_000_000, 4096 * 8192
#: A layer, forward, in kernels and seconds; a rank holds the whole depth of the model, so these stand for several layers.
KERNELS, LAYER_S = 120, 0.012


def write(job: Job, role: Role) -> Writer:
    writer = Writer(role.slots)
    with writer.inside(
        f"<module> {TITAN}:613", "main torchtitan/train.py:590",
        "wrapper torch/distributed/elastic/multiprocessing/errors/__init__.py:362",
    ):  # fmt: skip
        for step in job.plan:
            writer.mark()
            if step == "eval":
                with writer.inside(f"train {TITAN}:552", "validate torchtitan/components/validate.py:160"):
                    _forward(writer, job, compiles=False)
                    _loss(writer)
            elif step == "save":
                _save(writer, role)
            else:
                _step(writer, job, compiles=step == "start")
    return writer


def _step(writer: Writer, job: Job, *, compiles: bool) -> None:
    with writer.inside(f"train {TITAN}:531", f"train_step {TITAN}:448"):
        for _ in range(job.microbatches):
            writer.host("loader", 1e-3, *NEXT_BATCH)
            _forward(writer, job, compiles=compiles)
            _backward(writer, job)
    with writer.inside(f"train {TITAN}:531", f"train_step {TITAN}:462"):
        with writer.inside("clip_grad_norm_ torchtitan/distributed/utils.py:301"):
            # The norm is a DTensor over all shards: full_tensor() sums it and waits where it is used.
            with writer.inside(f"full_tensor {TENSOR}/_api.py:640", f"redistribute {TENSOR}/_redistribute.py:290",
                               f"all_reduce {FUNCTIONAL}:172"):  # fmt: skip
                writer.collective(
                    "dp", "all_reduce", 1, 1e-4, mode=Mode.ASYNC, handle="norm", dtype="Float", native=True
                )
            writer.wait(
                "norm",
                f"full_tensor {TENSOR}/_api.py:640",
                f"_maybe_resolve_wait {FUNCTIONAL}:131",
                f"wait_tensor {FUNCTIONAL}:140",
            )
        writer.kernels(40, 3e-3, "step torchtitan/components/optimizer.py:104", "step torch/optim/adamw.py:243")
        _loss(writer)


def _loss(writer: Writer) -> None:
    with writer.inside("dist_mean torchtitan/distributed/utils.py:88"):
        with writer.inside("_dist_reduce torchtitan/distributed/utils.py:79", f"all_reduce {FUNCTIONAL}:172"):
            writer.collective("dp", "all_reduce", 1, 1e-4, mode=Mode.SYNC, dtype="Float", native=True)
        writer.read("_dist_reduce torchtitan/distributed/utils.py:79")


def _forward(writer: Writer, job: Job, *, compiles: bool) -> None:
    with writer.inside(*MODEL):
        for _ in range(job.layers):
            with writer.inside(
                "_wrapped_call_impl torch/nn/modules/module.py:1751", "_call_impl torch/nn/modules/module.py:1816",
                "fsdp_hook_wrapper torch/distributed/fsdp/_fully_shard/_fsdp_state.py:62", f"_pre_forward {STATE}:239",
                f"pre_forward {GROUP}:337",
            ):  # fmt: skip
                _gather(writer)
            if compiles:
                writer.compiles(15.0, *CALL, "_fn torch/_dynamo/eval_frame.py:736")
                compiles = False
            writer.kernels(KERNELS, LAYER_S, *CALL, "forward torchtitan/models/llama3/model/model.py:310")
            _tensor(writer, "forward")


def _gather(writer: Writer) -> None:
    with writer.inside(f"unshard {GROUP}:285", f"foreach_all_gather {COLLECTIVES}:185"):
        writer.collective("dp", "all_gather_into_tensor", LAYER, 2e-3, mode=Mode.ASYNC, handle="gather")
    writer.wait("gather", f"wait_for_unshard {GROUP}:311", f"foreach_all_gather_copy_out {COLLECTIVES}:265")


def _tensor(writer: Writer, way: str) -> None:
    with writer.inside(
        f"{way} torchtitan/models/llama3/model/model.py:215", f"redistribute {TENSOR}/_api.py:560",
        f"redistribute_local_tensor {TENSOR}/_redistribute.py:205", f"reduce_scatter_tensor {FUNCTIONAL}:309",
    ):  # fmt: skip
        writer.collective("tp", "reduce_scatter_tensor", ACTIVATION, 2e-4, mode=Mode.SYNC, native=True)


def _backward(writer: Writer, job: Job) -> None:
    with writer.inside(*BACKWARD), writer.autograd():
        for _ in range(job.layers):
            with writer.inside(f"_pre_backward {STATE}:303", f"pre_backward {GROUP}:379"):
                _gather(writer)
            _tensor(writer, "backward")
            writer.kernels(
                2 * KERNELS,
                2 * LAYER_S,
                "apply torch/autograd/function.py:311",
                "backward flash_attn/flash_attn_interface.py:884",
            )
            with writer.inside(
                "apply torch/autograd/function.py:311", f"backward {GROUP}:736", f"post_backward {GROUP}:445",
                f"foreach_reduce {COLLECTIVES}:453",
            ):  # fmt: skip
                writer.collective(
                    "dp", "reduce_scatter_tensor", LAYER, 2e-3, mode=Mode.ASYNC, handle="reduce", dtype="Float"
                )
    with writer.inside(*BACKWARD):
        writer.wait("reduce", f"_root_post_backward_final_callback {STATE}:322", f"finalize_backward {GROUP}:481")


def _save(writer: Writer, role: Role) -> None:
    """Distributed checkpoint: the plan is a collective on the host, the writing is each rank's own."""
    dcp = "torch/distributed/checkpoint"
    with writer.inside(
        f"train {TITAN}:548", "save torchtitan/components/checkpoint.py:461", f"inner_fn {dcp}/logger.py:83",
        f"wrapper {dcp}/utils.py:465", f"save {dcp}/state_dict_saver.py:176", f"_save_state_dict {dcp}/state_dict_saver.py:350",
    ):  # fmt: skip
        with writer.inside(f"reduce_scatter {dcp}/utils.py:193"):
            writer.collective("world", "gather_object", 1, 1e-3, mode=Mode.HOST)
        with writer.inside(f"write_data {dcp}/filesystem.py:760", f"_write_data {dcp}/filesystem.py:800"):
            writer.saves(
                4.0, f"_write_files_from_queue {dcp}/filesystem.py:430", f"_write_item {dcp}/filesystem.py:380"
            )
        with writer.inside(f"all_reduce {dcp}/utils.py:240"):
            writer.collective("world", "gather_object", 1, 1e-3, mode=Mode.HOST)
