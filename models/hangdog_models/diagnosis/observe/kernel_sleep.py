"""What a process sleeps for in the kernel: its own timer, storage, a device driver, or a program that starts."""

from collections.abc import Sequence

from hangdog_models.stack import Frame, ProcessState
from hangdog_models.verdict import Activity

#: Kernel functions in which a process waits for a network file system: compared by prefix, for suffixes vary.
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "rpc_",
    "fuse",
    "request_wait_answer",
    "ceph",
    "lustre",
    "ldlm_",
    "cl_sync",
    "gpfs",
    "cxi",
)
#: Kernel functions in which a writer sleeps, on a sound disk as well: until pages or the journal are written, or while
#: it is throttled.
_WRITING = (
    "balance_dirty_pages", "jbd2_", "start_this_handle", "add_transaction_credits", "wait_transaction_locked", "ext4_",
    "io_schedule", "bit_wait_io", "folio_wait_", "wait_on_page_", "__wait_on_buffer", "submit_bio_wait", "blk_mq_get_tag",
    "rq_qos_wait", "wbt_wait", "wb_wait_for_completion", "xlog_", "xfs_", "btrfs_", "wait_current_trans",
)  # fmt: skip
#: Part of the name of a timed sleep, in the kernel and in the C library.
_TIMED = "nanosleep"
#: Functions of the GPU's driver (nvidia.ko, nvidia-uvm.ko): a process there waits for its own machine's device.
_DRIVERS = ("nvidia", "uvm_", "nv_", "_nv", "os_acquire_")
#: Kernel functions in which a parent sleeps until its vfork child has started a program or ended.
_STARTING = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")
#: The same in a stack: CPython's subprocess starts programs, such as compilers, by vfork (since 3.10).
_STARTS = {("subprocess.py", "Popen._execute_child"), ("subprocess.py", "_execute_child")}


def activity(state: ProcessState | None, frames: Sequence[Frame]) -> Activity | None:
    """What a process in state D does, by its wait channel and its stack (outermost frame first); else None."""
    if state is None or state.state != "D":
        return None
    if state.wchan.startswith(_DRIVERS):
        return Activity.DEVICE_SYNC
    starting = any((frame.file.rpartition("/")[2], frame.function) in _STARTS for frame in frames)
    if state.wchan.startswith(_STARTING) or (starting and not state.wchan.startswith(NETWORK_FILE_SYSTEMS)):
        return None
    return Activity.STORAGE


def writing(state: ProcessState | None) -> str:
    """The wait channel of a process in state D, if writers sleep there on a sound disk, too; else empty."""
    return state.wchan if state is not None and state.state == "D" and state.wchan.startswith(_WRITING) else ""


def dozes(state: ProcessState | None, frames: Sequence[Frame]) -> bool:
    """Whether it sleeps by a timer that it set itself, by its wait channel or its innermost native frame."""
    if state is not None and _TIMED in state.wchan:
        return True
    return bool(frames) and frames[-1].native and _TIMED in frames[-1].function
