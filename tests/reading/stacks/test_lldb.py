"""What lldb prints of all threads: `bt all`, `thread backtrace all`, and what it shows when it attaches.

The forms are those of pytorch/pytorch#149153 and llvm/llvm-project#134339 (Linux), Komodo/KomodoEdit#2424 (macOS) and
memray's attach script (bloomberg/memray#745); names and numbers are made up.
"""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import capture_failure, stack_text
from hangdog_models.reading.stacks.debuggers import gdb, lldb
from hangdog_models.reading.stacks.dumped_process import UNNAMED
from hangdog_models.stack import Frame, Reason
from hangdog_models.training import training_thread
from support.refused import refused

#: https://github.com/pytorch/pytorch/issues/149153, https://github.com/llvm/llvm-project/pull/134339
LINUX = """* thread #1, name = 'python', stop reason = signal SIGSTOP
  * frame #0: 0x00007f0000000010 libc.so.6`syscall + 29
    frame #1: 0x00007f0000000020 libstdc++.so.6`std::futex::wait_until(this=<unavailable>, at=(__r = 7)) at futex.cc:217:18 [opt]
    frame #2: 0x00007f0000000030 libtorch_cuda.so`c10d::Group::abort(std::string const&, bool) + 664
    frame #3: 0x00007f0000000040 libc.so.6`___cond_wait [inlined] __cond_wait_common(abstime=0x0) at cond_wait.c:504:10
    frame #4: 0x00007f0000000050 python`main + 33
    frame #5: 0x00007f0000000060
  thread #2, name = 'cuda-EvtHandlr', stop reason = signal SIGSTOP
    frame #0: 0x00007f0000000070 libc.so.6`__poll(fds=0x7f, nfds=3) at poll.c:29:10
    frame #1: 0x00007f0000000080 libc.so.6`start_thread + 9
"""
#: https://github.com/Komodo/KomodoEdit/issues/2424
MACOS = """(lldb) thread backtrace all
* thread #1, queue = 'com.apple.main-thread', stop reason = signal SIGSTOP
  * frame #0: 0x00000001800000a0 libsystem_kernel.dylib`__psynch_cvwait + 8
    frame #1: 0x00000001800000b0 libsystem_pthread.dylib`_pthread_cond_wait + 1228
    frame #2: 0x0000000102000000 libtorch_cpu.dylib`gloo::Buffer::waitRecv(long long) + 44
  thread #2
    frame #0: 0x00000001800000c0 libsystem_kernel.dylib`kevent + 8
    frame #1: 0x00000001800000d0 libsystem_pthread.dylib`thread_start + 8
"""
#: https://github.com/bloomberg/memray/issues/745: what lldb shows of each thread when it stops a process
STOPPED = """(lldb) process attach --pid 71
Process 71 stopped
* thread #1, name = 'python', stop reason = signal SIGSTOP
    frame #0: 0x00007f0000000010 libc.so.6`syscall + 29
libc.so.6`syscall:
->  0x7f0000000010 <+29>: cmpq   $-0x1000, %rax            ; imm = 0xF000
    0x7f0000000016 <+35>: jae    0x7f0000000020            ; <+45>
  thread #2, name = 'cuda-EvtHandlr', stop reason = signal SIGSTOP
    frame #0: 0x00007f0000000070
Architecture set to: x86_64-unknown-linux-gnu.
"""


def test_each_thread_has_its_frames_from_the_outermost_to_the_innermost() -> None:
    assert stack_text.form_of(LINUX) == "the text of lldb" and not gdb.recognises(LINUX)
    (process,) = lldb.read(LINUX)
    assert process.native and process.pid is None
    main, other = process.threads
    assert [frame.function for frame in main.frames] == [
        "??", "main", "__cond_wait_common", "c10d::Group::abort(std::string const&, bool)", "std::futex::wait_until", "syscall",
    ]  # fmt: skip
    assert main.frames[-2] == Frame("std::futex::wait_until", "futex.cc", 217, "libstdc++.so.6")
    assert main.frames[0] == Frame("??", "", 0, "??") and all(frame.native for frame in main.frames)
    assert [(frame.function, frame.line) for frame in other.frames] == [("start_thread", 0), ("__poll", 29)]
    assert other.name == "cuda-EvtHandlr"
    assert training_thread(process.threads, process.pid) is main


def test_the_queue_tells_the_main_thread_of_macos() -> None:
    (process,) = stack_text.read(MACOS)
    main = training_thread(process.threads, process.pid)
    assert main is not None and main.frames[-1].function == "__psynch_cvwait"
    assert main.frames[0] == Frame("gloo::Buffer::waitRecv(long long)", "", 0, "libtorch_cpu.dylib")
    assert process.threads[1].name == UNNAMED


def test_what_lldb_shows_when_it_stops_a_process_counts_less_than_its_stacks() -> None:
    (stopped,) = lldb.read(STOPPED)
    assert stopped.pid == 71 and [len(thread.frames) for thread in stopped.threads] == [1, 1]
    (process,) = lldb.read(STOPPED + "(lldb) bt all\n" + LINUX + "(lldb) continue\nProcess 71 resuming\n" + STOPPED)
    assert process.pid == 71 and [len(thread.frames) for thread in process.threads] == [6, 2]


def test_a_later_stack_of_a_thread_counts() -> None:
    again = "(lldb) bt\n* thread #1, name = 'python'\n  * frame #0: 0x01 a.so`f + 1\n    frame #1: 0x02 a.so`main + 2\n"
    (process,) = lldb.read(STOPPED + LINUX + again)
    assert [frame.function for frame in process.threads[0].frames] == ["main", "f"]


def test_several_processes_in_one_text_are_told_apart() -> None:
    second = STOPPED.replace("71", "72") + LINUX
    assert [process.pid for process in lldb.read(STOPPED + LINUX + "Process 71 detached\n" + second)] == [71, 72]
    assert [process.pid for process in lldb.read(STOPPED + LINUX + second)] == [71, 72]
    assert len(lldb.read(LINUX + LINUX)) == 2  # nothing but the numbers of the threads tells it


def test_the_first_thread_of_a_core_may_be_another_than_the_main_thread() -> None:
    core = """* thread #1, name = 'python', stop reason = signal SIGABRT
  * frame #0: 0x00007f0000000010 libc.so.6`abort + 29
    frame #1: 0x00007f0000000020 libc.so.6`start_thread + 9
    frame #2: 0x00007f0000000030 libc.so.6`clone + 63
  thread #2, name = 'python', stop reason = signal 0
    frame #0: 0x00007f0000000040 libc.so.6`poll + 29
"""
    (process,) = lldb.read(core)
    assert training_thread(process.threads, process.pid) is None


def test_an_old_lldb_writes_the_id_of_each_task() -> None:
    text = "* thread #1: tid = 0x1a, 0x01 a.so`f, queue = 'com.apple.main-thread'\n  * frame #0: 0x01 a.so`f + 1\n"
    (process,) = lldb.read(text + "  thread #2: tid = 31, name = 'x'\n    frame #0: 0x02 a.so`g at a.c:3\n")
    assert [(thread.tid, thread.name) for thread in process.threads] == [(26, "MainThread"), (31, "x")]
    assert process.threads[1].frames == (Frame("g", "a.c", 3, "a.so"),)


def test_stacks_below_a_header_of_a_rank_are_of_that_rank() -> None:
    text = f"=== rank 3 ===\n{LINUX}\n=== rank 4 ===\n{LINUX}"
    assert [process.ranks for process in stack_text.read(text)] == [(3,), (4,)]


def test_what_is_no_listing_is_refused() -> None:
    assert not lldb.recognises("the last frame #0: 0x01 a.so`f + 1\nthread #1 was idle\n")
    with refused("no-stack", UnreadableEvidence, "lldb"):
        lldb.read("hello\n")


@pytest.mark.parametrize(("limits", "says"), [(Limits(threads=1), "threads"), (Limits(frames=3), "frames")])
def test_limits_are_named(limits: Limits, says: str) -> None:
    with refused("too-many", UnreadableEvidence, says):
        lldb.read(LINUX, limits)


def test_an_attach_that_fails_tells_why() -> None:
    words = "(lldb) process attach --pid 71\nerror: attach failed: Operation not permitted\n"
    assert capture_failure.recognises(words) and capture_failure.reason_of(words) is Reason.NOT_PERMITTED
