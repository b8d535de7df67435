"""What one rank does for all while the others wait: evaluations, checkpoints, uploads, requests, and how each gets stuck.

Functions are those of the libraries named in the files (torch 2.4, requests 2.32, s3transfer 0.10, wandb 0.17, datasets 2.20); functions
of training scripts are made up. Seconds are what users report of such phases: from a few to half an hour.
"""

from math import inf

from accuracy.simulator.phases.phase import Part, Phase, Step, Who, compiling, runs, sleeps, writes
from accuracy.simulator.program import frames

_CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1553", "_call_impl torch/nn/modules/module.py:1562")
_BARRIER = ("wrapper torch/distributed/c10d_logger.py:83", "barrier torch/distributed/distributed_c10d.py:3943")
_NEXT = (
    "__next__ torch/utils/data/dataloader.py:630", "_next_data torch/utils/data/dataloader.py:1327",
    "_get_data torch/utils/data/dataloader.py:1293", "_try_get_data torch/utils/data/dataloader.py:1131",
    "get queue.py:180", "wait threading.py:331",
)  # fmt: skip
_REQUEST = (
    "request requests/sessions.py:589", "send requests/sessions.py:703", "send requests/adapters.py:667",
    "urlopen urllib3/connectionpool.py:789", "_make_request urllib3/connectionpool.py:536",
    "getresponse urllib3/connection.py:464", "getresponse http/client.py:1395", "begin http/client.py:325",
    "_read_status http/client.py:286", "readinto socket.py:718", "recv_into ssl.py:1314", "read ssl.py:1166",
)  # fmt: skip
_BACKOFF = (
    "request requests/sessions.py:589", "send requests/sessions.py:703", "send requests/adapters.py:667",
    "urlopen urllib3/connectionpool.py:843", "sleep urllib3/util/retry.py:363", "_sleep_backoff urllib3/util/retry.py:347",
)  # fmt: skip
_POOL_THREAD = (
    "_bootstrap threading.py:1002", "_bootstrap_inner threading.py:1045", "run threading.py:982",
    "_worker concurrent/futures/thread.py:83", "run concurrent/futures/thread.py:58", "_main s3transfer/tasks.py:150",
    "_execute_main s3transfer/tasks.py:174", "_main s3transfer/upload.py:796", "send botocore/httpsession.py:464",
    "urlopen urllib3/connectionpool.py:789", "send http/client.py:1055", "sendall ssl.py:1270", "send ssl.py:1239",
)  # fmt: skip
_LOCK_POLL = ("__enter__ filelock/_api.py:376", "acquire filelock/_api.py:344")


def _answer(seconds: float, *calls: str, wakes: float = 0.5) -> Step:
    """It waits for an answer, which comes in a few pieces at most."""
    return sleeps(seconds, *calls, wakes=wakes, wchan="wait_woken", syscall="0")


def _uploading(calls: tuple[str, ...]) -> Step:
    step = sleeps(60.0, *calls)
    return Step(step.calls, inf, "S", step.wchan, step.syscall, beside=frames(*_POOL_THREAD), helped=0.3)


_FUTURE = (
    "result s3transfer/futures.py:103",
    "result s3transfer/futures.py:264",
    "wait threading.py:629",
    "wait threading.py:327",
)

DUTIES = (
    Phase(
        "evaluation on rank 0", Who.FIRST, (20.0, 1800.0), frames("run_validation hooks/validation.py:58"),
        (
            Part(0.9, (
                sleeps(0.01, "evaluate hooks/validation.py:83", *_NEXT),
                runs(0.03, "evaluate hooks/validation.py:88", *_CALL, "forward models/encoder.py:212", *_CALL, "forward torch/nn/modules/linear.py:117"),
                runs(0.02, "evaluate hooks/validation.py:88", *_CALL, "forward models/encoder.py:216", *_CALL, "forward torch/nn/modules/normalization.py:217"),
                runs(0.02, "evaluate hooks/validation.py:91", "update metrics/ranking.py:44", lines=6),
            )),
            Part(1.0, (runs(0.3, "evaluate hooks/validation.py:97", "compute metrics/ranking.py:81", lines=9),)),
        ),
        frames("run_validation hooks/validation.py:64", *_BARRIER),
        stuck=(
            (sleeps(inf, "evaluate hooks/validation.py:91", "update metrics/ranking.py:47", "get multiprocessing/pool.py:768", "wait multiprocessing/pool.py:765",
                    "wait threading.py:629", "wait threading.py:327"),),
            (runs(0.1, "evaluate hooks/validation.py:94", "decode models/generation.py:133", "prune models/generation.py:171", lines=7),),
        ),
        frameworks=("ddp",),
    ),
    Phase(
        "checkpoint on rank 0", Who.FIRST, (5.0, 900.0), frames("save_state utils/saving.py:41"),
        (
            Part(0.8, (
                runs(0.2, "save torch/serialization.py:651", "_save torch/serialization.py:886", "cpu torch/storage.py:267", gil=False),
                runs(0.4, "save torch/serialization.py:651", "_save torch/serialization.py:888", gil=False, native=("PyTorchStreamWriter::writeRecord", "crc32")),
                writes(1.2, "save torch/serialization.py:651", "_save torch/serialization.py:888", wchan="balance_dirty_pages"),
            )),
            Part(1.0, (writes(30.0, "_flush utils/saving.py:67", wchan="jbd2_log_wait_commit", syscall="74"),)),
        ),
        frames("save_state utils/saving.py:49", *_BARRIER),
        stuck=(
            (sleeps(inf, "save torch/serialization.py:651", "_save torch/serialization.py:888", "write utils/packing.py:29", wchan="pipe_write", syscall="1"),),
        ),
    ),
    Phase(
        "upload after a checkpoint", Who.FIRST, (10.0, 1800.0), frames("publish utils/saving.py:90"),
        (
            Part(0.1, (runs(0.5, "_digest utils/saving.py:104", "file_digest hashlib.py:235", lines=3, gil=False),)),
            Part(1.0, (_uploading(("upload_file boto3/s3/inject.py:145", "upload_file boto3/s3/transfer.py:371", *_FUTURE)),)),
        ),
        frames("publish utils/saving.py:97", *_BARRIER),
        stuck=(
            (sleeps(inf, "upload_file boto3/s3/inject.py:145", "upload_file boto3/s3/transfer.py:371", *_FUTURE),),
            (_answer(inf, "put utils/store.py:31", *_REQUEST, wakes=0.0),),
        ),
        service=True,
    ),
    Phase(
        "logging to a slow service", Who.FIRST, (10.0, 600.0), frames("log_step hooks/tracking.py:37"),
        (
            Part(1.0, (
                runs(0.05, "_encode hooks/tracking.py:52", "dumps json/__init__.py:231", "encode json/encoder.py:200", lines=3),
                _answer(12.0, "_send hooks/tracking.py:61", "post requests/api.py:115", *_REQUEST),
                sleeps(4.0, "_send hooks/tracking.py:66", wchan="hrtimer_nanosleep", syscall="230"),
            )),
        ),
        stuck=(
            (_answer(inf, "_send hooks/tracking.py:61", "post requests/api.py:115", *_REQUEST, wakes=0.0),),
            (
                _answer(20.0, "_send hooks/tracking.py:61", "post requests/api.py:115", *_REQUEST, wakes=0.1),
                sleeps(30.0, "_send hooks/tracking.py:61", "post requests/api.py:115", *_BACKOFF, wchan="hrtimer_nanosleep", syscall="230"),
            ),
        ),
        service=True,
    ),
    Phase(
        "tokenising under a lock", Who.FIRST, (10.0, 1800.0), frames("prepare data/prepare.py:33"),
        (
            Part(0.9, (
                runs(0.25, "map datasets/arrow_dataset.py:602", "_map_single datasets/arrow_dataset.py:3458", "apply_function_on_filtered_inputs datasets/arrow_dataset.py:3321",
                     "encode data/prepare.py:61", "_batch_encode_plus transformers/tokenization_utils_fast.py:539", gil=False, native=("tokenizers::encode_batch",)),
                runs(0.03, "map datasets/arrow_dataset.py:602", "_map_single datasets/arrow_dataset.py:3481", "write_batch datasets/arrow_writer.py:585", lines=4),
            )),
            Part(1.0, (writes(2.0, "map datasets/arrow_dataset.py:602", "finalize datasets/arrow_writer.py:620", wchan="folio_wait_bit_common"),)),
        ),
        meanwhile=(
            sleeps(0.05, *_LOCK_POLL, wchan="hrtimer_nanosleep", syscall="230"),
            runs(0.0004, "__enter__ filelock/_api.py:376", "acquire filelock/_api.py:332", "_acquire filelock/_unix.py:42"),
        ),
        stuck=(
            (sleeps(inf, "map datasets/arrow_dataset.py:602", "map datasets/arrow_dataset.py:3171", "iflatmap_unordered datasets/utils/py_utils.py:713",
                    "get multiprocess/pool.py:768", "wait multiprocess/pool.py:765", "wait threading.py:629", "wait threading.py:327"),),
            (sleeps(inf, "encode data/prepare.py:61", "_batch_encode_plus transformers/tokenization_utils_fast.py:539"),),
        ),
        start=True,
    ),
    Phase(
        "first-batch index on rank 0", Who.FIRST, (10.0, 1200.0), frames("build_index data/packed_dataset.py:140"),
        (
            Part(0.9, (
                runs(0.4, "_build_samples data/packed_dataset.py:188", lines=8),
                runs(0.6, "_shuffle data/packed_dataset.py:203", native=("random_permutation", "PyArray_Take")),
            )),
            Part(1.0, (writes(1.5, "_store data/packed_dataset.py:221", "save numpy/lib/npyio.py:546", wchan="nfs_wait_on_request"),)),
        ),
        frames("build_index data/packed_dataset.py:152", *_BARRIER),
        stuck=(
            (runs(inf, "_build_samples data/packed_dataset.py:188", native=("build_sample_idx",)),),
            (sleeps(inf, "_build_samples data/packed_dataset.py:184", "result concurrent/futures/_base.py:451", "wait threading.py:327"),),
        ),
        start=True,
    ),
    Phase(
        "artefact download by the first rank of each machine", Who.LOCAL, (10.0, 1500.0), frames("fetch_artefact utils/artefacts.py:22"),
        (
            Part(0.85, (
                sleeps(0.2, "_stream utils/artefacts.py:48", "iter_content requests/models.py:820", "stream urllib3/response.py:1057",
                       "read urllib3/response.py:949", "read http/client.py:473", "readinto socket.py:718", "recv_into ssl.py:1314", "read ssl.py:1166",
                       wakes=150.0, wchan="wait_woken", syscall="0"),
                runs(0.01, "_stream utils/artefacts.py:49"),
            )),
            Part(1.0, (
                runs(0.2, "_unpack utils/artefacts.py:71", "extractall tarfile.py:2264", "copyfileobj tarfile.py:254", "read gzip.py:301", lines=4, gil=False),
                writes(0.1, "_unpack utils/artefacts.py:71", "extractall tarfile.py:2264", "copyfileobj tarfile.py:260", wchan="balance_dirty_pages"),
            )),
        ),
        frames("fetch_artefact utils/artefacts.py:30", *_BARRIER),
        spread=0.8,
        stuck=(
            (_answer(inf, "_stream utils/artefacts.py:48", "iter_content requests/models.py:820", "stream urllib3/response.py:1057",
                     "read urllib3/response.py:949", "read http/client.py:473", "readinto socket.py:718", "recv_into ssl.py:1314", "read ssl.py:1166", wakes=0.0),),
        ),
        service=True,
        start=True,
    ),
    Phase(
        "compile of one rank", Who.ONE, (10.0, 600.0), frames("train_step loop.py:77", "_fn torch/_dynamo/eval_frame.py:433"),
        compiling(0.4),
        stuck=(
            (sleeps(1.0, "compile_to_module torch/_inductor/graph.py:1780", "load torch/utils/cpp_extension.py:1310", "_jit_compile torch/utils/cpp_extension.py:1719",
                    "wait torch/utils/file_baton.py:49", wchan="hrtimer_nanosleep", syscall="230"),),
            (sleeps(inf, "compile_to_module torch/_inductor/graph.py:1780", "wait torch/_inductor/async_compile.py:243",
                    "result concurrent/futures/_base.py:451", "wait threading.py:327"),),
        ),
    ),
    Phase(
        "gc pause of one rank", Who.ONE, (2.0, 40.0), frames("train_step loop.py:91", "sweep hooks/memory.py:18"),
        (Part(1.0, (runs(inf, native=("gc_collect_generations", "gc_collect_main", "subtract_refs")),)),),
    ),
)  # fmt: skip
