"""Equal places read equal, whatever the tool, the Python version and the template arguments."""

import subprocess
import sys

import pytest

from hangdog_models.diagnosis.observe.canonicalise import Signature, canonicalise, native_name
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Frame
from support.cases.stories import frames

RULES = packaged()


def signature(*calls: Frame) -> Signature:
    return canonicalise(calls, RULES)


def test_line_numbers_do_not_split_a_place() -> None:
    assert signature(*frames("loader")).digest == signature(*frames("loader", shift=7)).digest


def test_dropped_frames_are_kept_with_the_rule_that_dropped_them() -> None:
    written = signature(*frames("gather"))
    assert [(frame.name, frame.rule) for frame in written.frames if not frame.kept] == [("_call_impl", "module call")]
    assert all("_call_impl" not in line for line in written.written())


def test_site_packages_differ_between_hosts_and_places_do_not() -> None:
    here = signature(Frame("f", "/opt/conda/lib/python3.10/site-packages/pkg/mod.py", 1))
    there = signature(Frame("f", "/usr/lib/python3/dist-packages/pkg/mod.py", 9))
    assert here.digest == there.digest


def test_native_frames_below_python_do_not_change_the_place() -> None:
    native = (
        Frame("c10d::Work::wait", "libtorch_cpu.so", 0, "/x/libtorch_cpu.so"),
        Frame("0x7f1", "libc.so.6", 0, "libc.so.6"),
    )
    assert signature(*frames("barrier"), *native).digest == signature(*frames("barrier")).digest


def test_identity_is_the_same_in_every_process() -> None:
    program = (
        "from hangdog_models.diagnosis.observe.canonicalise import canonicalise\n"
        "from hangdog_models.rules.ruleset import packaged\n"
        "from hangdog_models.stack import Frame\n"
        "print(canonicalise((Frame('f', 'a.py', 3),), packaged()).digest)"
    )
    once = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert once == signature(Frame("f", "a.py", 4)).digest


@pytest.mark.parametrize(
    ("symbol", "plain"),
    [
        ("c10d::Reducer::finalize_backward", "c10d::Reducer::finalize_backward"),
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
        ("void at::(anonymous namespace)::run<at::{lambda()#1}>(long)", "at::run"),
        ("at::native::_local_scalar_dense_cuda(at::Tensor const&) [clone .isra.0]", "at::native::_local_scalar_dense_cuda"),
        ("pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait"),
        ("poll_schedule_timeout.constprop.0", "poll_schedule_timeout"),
        ("c10d::ProcessGroupNCCL::WorkNCCL::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)", "c10d::ProcessGroupNCCL::WorkNCCL::wait"),
        ("f<(a > b)>::g()", "f::g"),
        ("", ""),
        ("<<<<((((", "<<<<(((("),
    ],
)  # fmt: skip
def test_native_names_lose_their_arguments(symbol: str, plain: str) -> None:
    assert native_name(symbol) == plain


def test_a_monstrous_symbol_is_cut() -> None:
    assert len(native_name("a" * 5000)) <= 200
    assert len(native_name("<" * 5000)) <= 200
