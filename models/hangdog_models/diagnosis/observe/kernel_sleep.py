"""What the kernel's sleep tells: by a timer of its own, in storage, in a device's driver, or while a program is started."""

from collections.abc import Sequence

from hangdog_models.stack import Frame, ProcessState
from hangdog_models.verdict import Activity

#: Kernel functions in which a sleeper waits for a service on the network: compared by prefix, suffixes vary.
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
#: Those in which a writer sleeps, on a sound disk as well: until pages or the journal are written, or while it is slowed down.
_WRITING = (
    "balance_dirty_pages", "jbd2_", "start_this_handle", "add_transaction_credits", "wait_transaction_locked", "ext4_",
    "io_schedule", "bit_wait_io", "folio_wait_", "wait_on_page_", "__wait_on_buffer", "submit_bio_wait", "blk_mq_get_tag",
    "rq_qos_wait", "wbt_wait", "wb_wait_for_completion", "xlog_", "xfs_", "btrfs_", "wait_current_trans",
)  # fmt: skip
#: In the name of a sleep for a stated time, in the kernel and in the C library.
_TIMED = "nanosleep"
#: Those of the GPU's driver (nvidia.ko, nvidia-uvm.ko): what waits there waits for its own machine's device.
_DRIVERS = ("nvidia", "uvm_", "nv_", "_nv", "os_acquire_")
#: Those in which a parent sleeps until its vfork child has started a program or ended.
_STARTING = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")
#: The same in a stack: what CPython's subprocess starts by vfork (since 3.10), as compilers are.
_STARTS = {("subprocess.py", "Popen._execute_child"), ("subprocess.py", "_execute_child")}


def activity(state: ProcessState | None, frames: Sequence[Frame]) -> Activity | None:
    """What a process in state D is doing by its wait channel and its stack, outermost first; None in any other state."""
    if state is None or state.state != "D":
        return None
    if state.wchan.startswith(_DRIVERS):
        return Activity.DEVICE_SYNC
    starting = any((frame.file.rpartition("/")[2], frame.function) in _STARTS for frame in frames)
    if state.wchan.startswith(_STARTING) or (starting and not state.wchan.startswith(NETWORK_FILE_SYSTEMS)):
        return None
    return Activity.STORAGE


def writing(state: ProcessState | None) -> str:
    """The wait channel of a process in state D that may be a writer's on a sound disk; empty for all others."""
    return state.wchan if state is not None and state.state == "D" and state.wchan.startswith(_WRITING) else ""


def dozes(state: ProcessState | None, frames: Sequence[Frame]) -> bool:
    """Whether it sleeps by a timer that it set itself, by its wait channel or by its innermost native frame."""
    if state is not None and _TIMED in state.wchan:
        return True
    return bool(frames) and frames[-1].native and _TIMED in frames[-1].function
