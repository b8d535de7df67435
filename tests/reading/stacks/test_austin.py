"""Samples of austin: each thread with the stack in which it spent the most time."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import stack_text
from hangdog_models.reading.stacks.samplers import austin
from hangdog_models.stack import Frame
from support.refused import refused

#: https://github.com/P403n1x87/austin-python, test/data/mp.austin: austin 3.4.1, the last lines of what is shown, in another order
OF_MP = """# austin: 3.4.1
# interval: 1000
# mode: wall
# multiprocess: on
P8374;T8374 1887
P8374;T8374;:INVALID: 2012
P8374;T8374;test/targets/target_mp.py:<module>:46;/usr/lib/python3.8/multiprocessing/process.py:start:121 2232
P8374;T8374;test/targets/target_mp.py:<module>:50;/usr/lib/python3.8/multiprocessing/process.py:join:149;/usr/lib/python3.8/selectors.py:select:415 1645
P8374;T8374;test/targets/target_mp.py:<module>:50;/usr/lib/python3.8/multiprocessing/process.py:join:149;/usr/lib/python3.8/selectors.py:select:415 1588
"""
#: https://github.com/P403n1x87/austin-python, test/data/test.austin: austin 3.4.0
OF_TEST = """# austin: 3.4.0
# interval: 100
# mode: wall
P38365;T38365;<frozen importlib._bootstrap>:_install_external_importers:1207;<frozen importlib._bootstrap_external>:<module>:370 159
"""


def test_the_stack_with_the_most_time_counts() -> None:
    assert stack_text.form_of(OF_MP) == "the samples of austin"
    (process,) = stack_text.read(OF_MP)
    (thread,) = process.threads
    assert (process.pid, thread.name, thread.tid) == (8374, "MainThread", 8374)
    assert thread.frames == (
        Frame("<module>", "test/targets/target_mp.py", 50),
        Frame("join", "/usr/lib/python3.8/multiprocessing/process.py", 149),
        Frame("select", "/usr/lib/python3.8/selectors.py", 415),
    )


def test_frozen_modules_are_files() -> None:
    (process,) = stack_text.read(OF_TEST)
    assert process.threads[0].frames[0] == Frame("_install_external_importers", "<frozen importlib._bootstrap>", 1207)


def test_threads_and_processes_are_told_apart_and_packages_are_short() -> None:
    text = (
        "P7;T0:7;/a/t.py:<module>:1;/a/site-packages/torch/x.py:f:2 5,1,0\n"
        "P7;T0:9;/a/threading.py:_bootstrap:3 5\nP8;T0:8;C:\\a\\t.py:main:4 5\n"
    )
    first, second = austin.read(text)
    assert [(thread.name, thread.tid) for thread in first.threads] == [("MainThread", 7), ("unnamed", 9)]
    assert first.threads[0].frames[1] == Frame("f", "torch/x.py", 2)
    assert (second.pid, second.threads[0].frames) == (8, (Frame("main", "C:\\a\\t.py", 4),))


@pytest.mark.parametrize("text", ["", "# austin: 3.4.0\n", "P7;T7;main 5\n", "a;b 5\n"])
def test_any_other_text_is_none(text: str) -> None:
    assert not austin.recognises(text)


def test_a_text_without_a_stack_is_refused() -> None:
    with refused("no-stack", UnreadableEvidence):
        austin.read("P7;T7 5\n")


@pytest.mark.parametrize("limits", [Limits(threads=1), Limits(frames=1)])
def test_there_are_limits(limits: Limits) -> None:
    with refused("too-many"):
        austin.read("P7;T7;a:b:1;a:c:2 5\nP7;T8;a:b:1 5\n", limits)
