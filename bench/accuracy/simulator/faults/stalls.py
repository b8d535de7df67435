"""Ways in which one host stops going on, as its frames, its native frames and its kernel state show them.

Frames and states are those of field.md section 12 and real-stacks.md section 3; recorded ones of gloo jobs where any.
"""

from dataclasses import dataclass

from accuracy.simulator.program import frames
from hangdog_models.stack import Frame, Reason


@dataclass(frozen=True)
class Stall:
    """`anchor`: the kind of host work in which it happens, empty for anywhere in computing.

    `calls` are the Python frames inside of which it sits, `native` the C frames below, innermost last. `moving`: its
    lines change between two looks. `holder`: frames of another thread that holds the interpreter's lock instead.
    `unseen`: how often, of 1, the stack cannot be taken at all, and `reason` why. `syscall` as in /proc. `own_work`: code of the
    rank's own, or what it asked for outside of the job: whoever stands there holds the job up, and its machine is sound.
    """

    name: str
    anchor: str = ""
    calls: tuple[Frame, ...] = ()
    native: tuple[str, ...] = ()
    active: bool = False
    gil: bool = False
    state: str = "S"
    wchan: tuple[str, ...] = ("futex_do_wait",)
    syscall: str = "202"
    moving: bool = False
    holder: tuple[Frame, ...] = ()
    unseen: float = 0.0
    reason: Reason = Reason.UNINTERRUPTIBLE
    own_work: bool = False


_LOCKED = ("lock_PyThread_acquire_lock", "PyThread_acquire_lock_timed", "__new_sem_wait_slow64")

HOST = {
    stall.name: stall
    for stall in (
        Stall(
            "dataloader", "loader",
            frames("_try_get_data torch/utils/data/dataloader.py:1131", "get queue.py:180", "wait threading.py:331"),
            _LOCKED,
        ),
        Stall(
            "dataloader workers", "loader",
            frames("_try_get_data torch/utils/data/dataloader.py:1131", "get multiprocessing/queues.py:113",
                   "poll multiprocessing/connection.py:257", "_poll multiprocessing/connection.py:424",
                   "wait multiprocessing/connection.py:931", "select selectors.py:415"),
            ("select_poll_poll", "__poll"), wchan=("do_poll", "poll_schedule_timeout"), syscall="7",
        ),
        Stall("garbage collection", native=("_PyObject_GC_NewVar", "gc_collect_generations", "gc_collect_main", "subtract_refs"),
              active=True, gil=True, state="R", wchan=("0",), syscall="running", own_work=True),
        Stall(
            "lock", "",
            frames("write_metrics metrics.py:61", "info logging/__init__.py:1489", "_log logging/__init__.py:1634",
                   "handle logging/__init__.py:1644", "callHandlers logging/__init__.py:1706",
                   "handle logging/__init__.py:976", "acquire logging/__init__.py:927"),
            _LOCKED,
            own_work=True,
        ),
        Stall("interpreter lock", "", (), ("PyEval_RestoreThread", "take_gil", "pthread_cond_timedwait"),
              holder=frames("_bootstrap threading.py:1002", "_bootstrap_inner threading.py:1045", "run threading.py:982",
                            "decode_shard shard_decoder.py:118"), own_work=True),
        Stall("storage", "loader",
              frames("fetch torch/utils/data/_utils/fetch.py:52", "__getitem__ indexed_dataset.py:214", "get indexed_dataset.py:188"),
              ("_io_FileIO_readinto", "__read"), state="D",
              wchan=("rpc_wait_bit_killable", "nfs_wait_on_request", "request_wait_answer", "cl_sync_io_wait"),
              syscall="0", unseen=0.7),
        Stall("checkpoint writer", "save", (), ("PyTorchStreamWriter::writeRecord", "__libc_write"), state="D",
              wchan=("jbd2_log_wait_commit", "balance_dirty_pages", "nfs_start_io_write"), syscall="1", unseen=0.5),
        Stall("compile", "",
              frames("_fn torch/_dynamo/eval_frame.py:574", "run triton/runtime/jit.py:623", "__getattribute__ triton/compiler/compiler.py:382",
                     "_init_handles triton/compiler/compiler.py:390"),
              ("loadBinary", "cuModuleLoadData", "0x7f2a8c1f2b10"), active=True, state="R", wchan=("0",), syscall="running"),
        Stall("network call", "",
              frames("report tracking.py:52", "post requests/api.py:115", "request requests/sessions.py:589", "send requests/adapters.py:667",
                     "urlopen urllib3/connectionpool.py:787", "getresponse http/client.py:1395", "begin http/client.py:325",
                     "_read_status http/client.py:286", "readinto socket.py:718"),
              ("sock_recv_into", "__libc_recv"), wchan=("wait_woken", "sk_wait_data"), syscall="45", own_work=True),
        Stall("native deadlock", "", frames("encode_batch fast_tokenizer.py:73"),
              ("flush_native_buffers", "pthread_mutex_lock", "__lll_lock_wait"), own_work=True),
        Stall("endless compute", "", frames("pack_sequences packing.py:88", "best_fit packing.py:41"), (), active=True, gil=True,
              state="R", wchan=("0",), syscall="running", moving=True, own_work=True),
        Stall("subprocess", "",
              frames("refresh_credentials cluster_auth.py:37", "run subprocess.py:548", "communicate subprocess.py:1209",
                     "_communicate subprocess.py:2115", "select selectors.py:415"),
              ("select_poll_poll", "__poll"), wchan=("do_poll",), syscall="7", own_work=True),
        Stall("driver call", "", (), ("cudaMalloc", "0x7f2a8d0301c4", "ioctl"), state="D",
              wchan=("rwsem_down_write_slowpath", "uvm_ioctl", "os_acquire_rwlock_write"), syscall="16", unseen=0.6),
    )
}  # fmt: skip

#: Stalls in the service that many share: each on many machines at once.
SERVICES = {
    "storage storm": Stall(
        "storage storm", "save", (), ("PyTorchStreamWriter::writeRecord", "__libc_write"), state="D",
        wchan=("nfs_start_io_write", "rpc_wait_bit_killable"), syscall="1", unseen=0.6,
    ),
    "data service": Stall(
        "data service", "loader",
        frames("fetch torch/utils/data/_utils/fetch.py:52", "__getitem__ remote_dataset.py:96", "read_range object_store.py:140",
               "urlopen urllib3/connectionpool.py:787", "getresponse http/client.py:1395", "_read_status http/client.py:286",
               "readinto socket.py:718"),
        ("sock_recv_into", "__libc_recv"), wchan=("wait_woken",), syscall="45",
    ),
    "store": Stall("store", "start", (), ("c10d::TCPStore::get", "c10d::TCPStore::doWait", "__libc_recv"), wchan=("wait_woken",), syscall="45"),
    "name service": Stall(
        "name service", "loader",
        frames("fetch torch/utils/data/_utils/fetch.py:52", "__getitem__ remote_dataset.py:96", "connect object_store.py:61",
               "create_connection socket.py:839", "getaddrinfo socket.py:962"),
        ("getaddrinfo", "__res_context_query", "__poll"), wchan=("do_poll",), syscall="7",
    ),
}  # fmt: skip
