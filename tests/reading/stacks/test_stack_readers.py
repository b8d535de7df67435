"""The stack readers on what the tools print: order of frames, marks, names, and what must never be kept."""

import json

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import pyspy, pyspy_text, pystack
from hangdog_models.reading.stacks.debuggers import gdb
from hangdog_models.stack import Frame
from support.refused import refused

FRAME: dict[str, object] = {
    "name": "recv",
    "filename": "/a/b/c.py",
    "short_filename": "b/c.py",
    "module": None,
    "line": 7,
    "locals": None,
}


def dump(*frames: dict[str, object], **thread: object) -> str:
    about = {
        "pid": 4,
        "thread_id": 140,
        "thread_name": "MainThread",
        "os_thread_id": 4,
        "active": False,
        "owns_gil": True,
    }
    return json.dumps([{**about, **thread, "frames": list(frames)}])


def test_json_frames_come_outermost_first() -> None:
    inner = {
        "name": "poll",
        "filename": "/lib/libc.so.6",
        "short_filename": "libc.so.6",
        "module": "/lib/libc.so.6",
        "line": 0,
    }
    (thread,) = pyspy.threads_from_json(dump(inner, FRAME))
    assert thread.frames == (Frame("recv", "b/c.py", 7), Frame("poll", "libc.so.6", 0, "/lib/libc.so.6"))
    assert [frame.native for frame in thread.frames] == [False, True]
    assert (thread.name, thread.tid, thread.active, thread.gil) == ("MainThread", 4, False, True)


@pytest.mark.parametrize(
    ("whole", "short", "file"),
    [
        ("/venv/lib/python3.11/site-packages/megatron/core/a.py", "core/a.py", "megatron/core/a.py"),
        ("/usr/lib/python3/dist-packages/torch/a.py", "torch/a.py", "torch/a.py"),
        ("/srv/train/a.py", "a.py", "a.py"),
    ],
)
def test_the_name_of_a_namespace_package_is_kept(whole: str, short: str, file: str) -> None:
    (thread,) = pyspy.threads_from_json(dump({**FRAME, "filename": whole, "short_filename": short}))
    assert thread.frames[0].file == file
    (process,) = pyspy_text.read(f'Thread 4 (idle): "MainThread"\n    recv ({whole}:7)\n')
    assert process.threads[0].frames[0].file == (file if "-packages" in whole else whole)


def test_json_without_a_short_name_keeps_the_full_one_and_unknown_keys_are_tolerated() -> None:
    (thread,) = pyspy.threads_from_json(dump({"name": "f", "filename": "/x/y.py", "colour": "red"}, mood="bad"))
    assert thread.frames == (Frame("f", "/x/y.py", 0),)


def test_json_of_old_and_odd_versions_leaves_unknown_what_it_does_not_say() -> None:
    text = dump(FRAME, thread_name=None, os_thread_id=None, active=None, owns_gil=None)
    (thread,) = pyspy.threads_from_json(text)
    assert (thread.name, thread.tid, thread.active, thread.gil) == (None, 140, None, None)


def test_json_of_several_processes_is_taken_apart() -> None:
    two = json.loads(dump(FRAME)) + json.loads(dump(FRAME, pid=9)) + json.loads(dump(FRAME, thread_name="other"))
    assert [(process.pid, len(process.threads)) for process in pyspy.read(two)] == [(4, 2), (9, 1)]


def test_names_are_free_of_what_a_terminal_obeys_and_of_lone_surrogates() -> None:
    (thread,) = pyspy.threads_from_json(dump({**FRAME, "name": "a\x1b[2Jb\n\ud800"}))
    assert thread.frames[0].function == r"a\x1b[2Jb\n\ud800"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (dump(FRAME)[:-20], "damaged-json"),
        ("[" * 200 + "]" * 200, "too-deep"),
        ("[" * 100_000, "too-deep"),
        ("{}", "damaged-stack-dump"),
        ("[]", "damaged-stack-dump"),
        ('[{"frames": 3}]', "damaged-stack-dump"),
        ('[{"frames": [{"line": 3}]}]', "damaged-stack-dump"),
        ("9" * 5000, "damaged-json"),
    ],
)
def test_json_that_is_no_dump_is_refused_in_words(text: str, code: str) -> None:
    with refused(code, UnreadableEvidence):
        pyspy.threads_from_json(text)


@pytest.mark.parametrize(
    ("limits", "code", "limit"),
    [
        (Limits(frames=2), "too-many", "limit frames"),
        (Limits(threads=0), "too-many", "limit threads"),
        (Limits(values=5), "too-many", "limit values"),
        (Limits(depth=1), "too-deep", "limit depth"),
        (Limits(file_bytes=10), "too-large", "limit file_bytes"),
    ],
)
def test_every_limit_is_named_when_it_is_reached(limits: Limits, code: str, limit: str) -> None:
    with refused(code, UnreadableEvidence, limit):
        pyspy.threads_from_json(dump(FRAME, FRAME, FRAME), limits)


def test_a_long_name_is_cut() -> None:
    (thread,) = pyspy.threads_from_json(dump({**FRAME, "name": "x" * 10_000}), Limits(text=100))
    assert thread.frames[0].function == "x" * 100


PYSPY = """\
Process 575: python train.py --rank 3
Python v3.12.3 (/usr/bin/python3.12)

Thread 575 (active+gil): "MainThread"
    std::function<void (int)>::call (libc.so.6 (deleted))
    synchronize (torch/cuda/streams.py:227)
        Locals:
            password: "hunter2 (x.py:3)"
    <lambda> (my (own) folder/train.py:12)
    <module> (<string>:1)
Thread 0x7FA000001740 (idle)
    wait (threading.py:359)
Process 600: python worker.py
Python v3.12.3 (/usr/bin/python3.12)
Parent Process 575: python train.py

Thread 600 (active): "MainThread"
    read (file.py:3)
"""


def test_text_of_py_spy_holds_several_processes() -> None:
    first, second = pyspy_text.read(PYSPY)
    assert (first.pid, first.command, second.pid) == (575, "python train.py --rank 3", 600)
    main, other = first.threads
    assert main.frames == (
        Frame("<module>", "<string>", 1),
        Frame("<lambda>", "my (own) folder/train.py", 12),
        Frame("synchronize", "torch/cuda/streams.py", 227),
        Frame("std::function<void (int)>::call", "libc.so.6", 0, "libc.so.6"),
    )
    assert (main.name, main.active, main.gil) == ("MainThread", True, True)
    assert (other.name, other.tid, other.active, other.gil) == (None, 0x7FA000001740, False, None)
    assert second.threads[0].gil is False


def test_text_of_py_spy_never_keeps_locals() -> None:
    assert "hunter2" not in repr(pyspy_text.read(PYSPY))


def test_text_of_py_spy_without_its_head_and_with_colours_is_still_read() -> None:
    cut = PYSPY.split("\n", 3)[3].replace("synchronize", "\x1b[32msynchronize\x1b[0m")
    assert pyspy_text.recognises(cut)
    assert pyspy_text.read(cut)[0].threads[0].frames[2].function == "synchronize"


PYSTACK = """\
Traceback for thread 80 (pt_gloo_runloop) [] (most recent call last):
    (C) File "???", line 0, in ??? (/usr/lib/libstdc++.so.6)
    (C) File "???", line 0, in c10d::ProcessGroupGloo::runLoop(int) (/opt/site-packages/torch/lib/libtorch_cpu.so)

Traceback for thread 77 (python) [Has the GIL,Garbage collecting] (most recent call last):
    (C) File "???", line 0, in _start (/opt/bin/python3.11)
    (Python) File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 168, in backward
        token = "hunter2"
    (C) File "Modules/main.c", line 710, in pymain_main (inlined) (/opt/lib/libpython3.11.so.1.0)
"""


def test_text_of_pystack() -> None:
    (process,) = pystack.read(PYSTACK)
    worker, main = process.threads
    assert process.pid == 77
    assert (main.name, main.tid, main.gil, main.active) == ("python", 77, True, None)
    assert worker.gil is None
    assert worker.frames[0] == Frame("??", "", 0, "/usr/lib/libstdc++.so.6")
    assert main.frames[1] == Frame("backward", "torch/_tensor.py", 168)
    assert main.frames[2] == Frame("pymain_main", "Modules/main.c", 710, "/opt/lib/libpython3.11.so.1.0")
    assert "hunter2" not in repr(process)


GDB = """\
[New LWP 5]
Thread 2 (Thread 0x7f0 (LWP 40614) "ib-async"):
#0  0x00007f000000151d in read () at ../sysdeps/unix/syscall-template.S:84
#1  std::condition_variable::wait_until<std::chrono::duration<long> >(std::mutex&, foo(int)::{lambda()#1}) (lock=...,
    now=0x5) at /gcc/condition_variable:158
#2  0x00007f00000ff in torch::autograd::Engine::thread_main(std::shared_ptr<torch::GraphTask> const&) () from /lib/libtorch.so

Thread 1 (Thread 0x7f1 (LWP 40600)):
#0  0x00007f000035db60 in ?? () from /lib64/libcuda.so.1
#1  0x00007f0000000000 in log (text=0x1 "my :) password") at log.c:3
"""


def test_text_of_gdb() -> None:
    (process,) = gdb.read(GDB)
    assert process.pid == 40600
    worker, main = process.threads
    assert (worker.name, worker.tid, main.name) == ("ib-async", 40614, None)
    engine, wait, read = worker.frames
    assert engine.function == "torch::autograd::Engine::thread_main(std::shared_ptr<torch::GraphTask> const&)"
    assert engine.module == "/lib/libtorch.so"
    assert wait.function.startswith("std::condition_variable::wait_until<") and "lock=" not in wait.function
    assert (wait.file, wait.line) == ("/gcc/condition_variable", 158)
    assert read == Frame("read", "../sysdeps/unix/syscall-template.S", 84, "../sysdeps/unix/syscall-template.S")
    assert main.frames[0].function == "log"
    assert "password" not in repr(process)
    assert all(frame.native for thread in process.threads for frame in thread.frames)


BACKTRACE = """(gdb) bt
#0  0x00007f326f3d9740 in syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38
#1  0x00007f3268a1672e in net::Waiter::wait(net::Timeout,
    std::function<void ()>) () from /opt/lib/libnet.so
#2  0x00007f326ef18133 in main ()
"""


def functions(text: str) -> list[tuple[int | None, str | None, list[str]]]:
    """For each thread: the pid of its process, its name and its functions, outermost first."""
    return [
        (process.pid, thread.name, [frame.function for frame in thread.frames])
        for process in gdb.read(text)
        for thread in process.threads
    ]


@pytest.mark.parametrize("around", ["{}", "[New LWP 8]\n[Thread debugging using libthread_db enabled]\n{}"])
def test_text_of_one_backtrace_of_gdb_is_of_the_main_thread(around: str) -> None:
    text = around.format(BACKTRACE)
    assert gdb.recognises(text)
    assert functions(text) == [
        (None, "MainThread", ["main", "net::Waiter::wait(net::Timeout, std::function<void ()>)", "syscall"])
    ]
    assert functions(text + "[Inferior 1 (process 7) detached]\n")[0][0] == 7


def test_the_prompt_stands_before_the_first_frame_where_commands_came_through_a_pipe() -> None:
    text = BACKTRACE.replace("bt\n", "")
    assert text.startswith("(gdb) #0 ") and gdb.recognises(text) and functions(text) == functions(BACKTRACE)


def test_each_backtrace_is_of_a_process_of_its_own_unless_another_thread_was_chosen() -> None:
    assert [pid for pid, *_ in functions(BACKTRACE + BACKTRACE)] == [None, None]
    chosen = "[Switching to thread 9 (Thread 0x7f1 (LWP 12))]\n#0  0x01 in poll ()\n(gdb) #0  0x01 in poll ()\n#1  0x02 in clone ()\n"
    (main, other) = functions(BACKTRACE + chosen)
    assert main[1] == "MainThread" and other == (None, None, ["clone", "poll"])


def test_a_backtrace_of_a_thread_that_is_not_the_first_gives_no_main_thread() -> None:
    text = BACKTRACE.replace("main ()", "clone3 ()")
    assert gdb.recognises(text) and functions(text)[0][1] == "unnamed"


@pytest.mark.parametrize(
    "text",
    [
        "#0 building with default (docker)\n#1 [internal] load (Dockerfile)\n",
        "#0  building with default\n#1  [internal] load metadata\n",
        "    #0 0x7f32 in malloc (/usr/lib/libasan.so+0x10)\n    #1 0x55 in main /srv/a.c:3:4\n",
        "#0  0x01 in f ()\n",
        "#0  0x01 in f ()\n#2  0x01 in g ()\n",
        "step 3\n" * 9 + BACKTRACE,
        "#0 Frame 0x7f, for file /srv/t.py, line 3, in f (x=1)\n#1 Frame 0x7f, for file /srv/t.py, line 3, in f (x=1)\n",
    ],
    ids=["builder", "builder, wide", "sanitizer", "one frame", "a gap", "in a log", "py-bt-full"],
)  # fmt: skip
def test_numbered_lines_of_others_are_no_backtrace(text: str) -> None:
    assert not gdb.recognises(text)


def test_each_text_is_recognised_by_its_own_reader_only() -> None:
    readers = (pyspy_text, pystack, gdb)
    for text, own in ((PYSPY, pyspy_text), (PYSTACK, pystack), (GDB, gdb)):
        assert [reader for reader in readers if reader.recognises(text)] == [own]


@pytest.mark.parametrize(
    ("header", "name", "active"),
    [
        ('Thread (idle): "MainThread"', "MainThread", False),
        ('Thread (active) "MainThread"', "MainThread", True),
        ('Thread 7 (active+gil) "loader"', "loader", True),
        ("Thread (idle)", None, False),
    ],
)
def test_text_of_py_spy_whose_threads_lost_their_ids(header: str, name: str | None, active: bool) -> None:
    text = f"{header}\n    wait (queue.py:3)\n    serve (worker.py:7)\n"
    assert pyspy_text.recognises(text)
    ((thread,),) = (process.threads for process in pyspy_text.read(text))
    assert (thread.name, thread.active, len(thread.frames)) == (name, active, 2)


@pytest.mark.parametrize(
    "remark", ["  <- hangs here", " <-- stuck (for ever)", "\t# waits for the server", " // see f(x)", " \u2190 here", " <=== (!)"]
)  # fmt: skip
def test_what_people_write_behind_a_frame_is_none_of_it(remark: str) -> None:
    text = f'Thread 7 (idle): "MainThread"\n    close (store.py:6){remark}\n    main (t.py:7)\n'
    ((thread,),) = (process.threads for process in pyspy_text.read(text))
    assert thread.frames == (Frame("main", "t.py", 7), Frame("close", "store.py", 6))


@pytest.mark.parametrize(
    "name", ["std::operator<< <char>", "f(int)::{lambda()#1}", "operator->", "std::operator<= <int>"]
)
def test_a_symbol_that_looks_like_a_remark_is_whole(name: str) -> None:
    ((thread,),) = (p.threads for p in pyspy_text.read(f"Thread 7 (idle)\n    {name} (libx.so)\n"))
    assert thread.frames[0].function == name


def test_a_text_without_threads_is_refused() -> None:
    for read in (pyspy_text.read, pystack.read, gdb.read):
        with refused("no-stack", UnreadableEvidence):
            read("Thread of thought\n")


def test_a_thread_id_with_leading_zeros_is_a_number() -> None:
    (process,) = pyspy_text.read('Process 7: python\nThread 007 (active): "MainThread"\n    f (a.py:3)\n')
    assert process.threads[0].tid == 7
