"""What a process sleeps for in the kernel: its own timer, storage, a device driver, another process, or a program that starts."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Reason
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
    """What a process in state D does, by its wait channel and its stack (outermost frame first); else None.

    Only `/proc/PID/wchan` may be known of it: nobody sleeps in the client of a network file system but for storage.
    """
    if state is None or (state.state != "D" and (state.state or not remote_storage(state))):
        return None
    if state.wchan.startswith(_DRIVERS):
        return Activity.DEVICE_SYNC
    starting = any((frame.file.rpartition("/")[2], frame.function) in _STARTS for frame in frames)
    if state.wchan.startswith(_STARTING) or (starting and not state.wchan.startswith(NETWORK_FILE_SYSTEMS)):
        return None
    return Activity.STORAGE


class KernelWait(StrEnum):
    """What a process in interruptible sleep waits for, where its wait channel tells; each reads well after "waiting for"."""

    PIPE = "another process at a pipe"
    CHILD = "a child process"
    FILE_LOCK = "a file lock"
    SOCKET = "a peer on a socket"
    LOCAL_SOCKET = "another process of its machine"
    SIGNAL = "a signal"
    TERMINAL = "input from a terminal"
    MESSAGE = "a message or semaphore of another process"


#: Waits for a process that another program, or its own, has started.
OF_ANOTHER_PROCESS = (KernelWait.PIPE, KernelWait.LOCAL_SOCKET, KernelWait.MESSAGE)
#: The functions of Linux 5 and 6 in which each wait sleeps: compared by prefix, for compilers append suffixes. Those of the
#: recordings in tests/recordings/blocked were seen on 6.18, and the others never. A lock inside of a process (futex) and a wait
#: for several descriptors (poll) are not here: many things are waited for in both.
_SLEEPS: Mapping[KernelWait, tuple[str, ...]] = {
    KernelWait.PIPE: ("pipe_read", "pipe_write", "pipe_wait", "anon_pipe_", "fifo_pipe_", "fifo_open", "wait_for_partner"),
    KernelWait.CHILD: ("do_wait.", "do_wait\0", "kernel_wait4", "do_wait4"),
    KernelWait.FILE_LOCK: ("locks_lock_inode_wait", "flock_lock_inode_wait", "posix_lock_inode_wait", "fcntl_setlk", "do_lock_file_wait"),
    KernelWait.SOCKET: (
        "inet_csk_accept", "inet_accept", "inet_stream_connect", "__inet_stream_connect", "inet_wait_for_connect", "sk_wait_data",
        "sk_stream_wait_", "tcp_", "__skb_wait_for_more_packets",
    ),
    KernelWait.LOCAL_SOCKET: ("unix_",),
    KernelWait.SIGNAL: ("sigsuspend", "do_sigtimedwait", "__do_sys_pause", "__x64_sys_pause", "__arm64_sys_pause", "sys_pause"),
    KernelWait.TERMINAL: ("n_tty_read", "tty_read"),
    KernelWait.MESSAGE: ("do_semtimedop", "__do_semtimedop", "do_msgrcv", "do_msgsnd", "wq_sleep", "inotify_read", "eventfd_read"),
}  # fmt: skip


def awaited(state: ProcessState | None) -> KernelWait | None:
    """What a process in state S waits for, if its wait channel tells; its state may be unknown."""
    if state is None or state.state not in ("S", "") or not state.wchan:
        return None
    ended = state.wchan + "\0"
    return next((what for what, sleeps in _SLEEPS.items() if ended.startswith(sleeps)), None)


#: Where a process of a frozen cgroup sleeps by its wait channel. The freezer of cgroup v1 (`docker pause` on older systems)
#: leaves it in the call it was in, in state D: a timer, a lock or a poll sleeps so for no other reason.
_FROZEN = ("do_freezer_trap", "__refrigerator", "refrigerator")
_NEVER_BY_ITSELF = (
    "hrtimer_nanosleep", "do_nanosleep", "futex_wait", "__futex_wait", "futex_do_wait", "poll_schedule_timeout", "do_poll",
    "do_sys_poll", "do_select", "do_epoll_wait", "ep_poll",
)  # fmt: skip


def frozen(trace: ProcessTrace) -> bool:
    """Whether the freezer of its cgroup holds a process.

    State and wait channel are read one after the other. So state D counts only where the capture saw it from its beginning to
    its end.
    """
    state = trace.state
    if state is None:
        return False
    throughout = trace.missing is not None and trace.missing.reason is Reason.UNINTERRUPTIBLE
    return state.wchan.startswith(_FROZEN + (_NEVER_BY_ITSELF if throughout and state.state == "D" else ()))


def remote_storage(state: ProcessState | None) -> bool:
    """Whether it sleeps in the client of a network file system."""
    return state is not None and state.wchan.startswith(NETWORK_FILE_SYSTEMS)


def writing(state: ProcessState | None) -> str:
    """The wait channel of a process in state D, if writers sleep there on a sound disk, too; else empty."""
    return state.wchan if state is not None and state.state == "D" and state.wchan.startswith(_WRITING) else ""


def dozes(state: ProcessState | None, frames: Sequence[Frame]) -> bool:
    """Whether it sleeps by a timer that it set itself, by its wait channel or its innermost native frame."""
    if state is not None and _TIMED in state.wchan:
        return True
    return bool(frames) and frames[-1].native and _TIMED in frames[-1].function
