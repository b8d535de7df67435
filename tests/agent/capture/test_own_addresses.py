"""Under which addresses trainers are reached: those of their own network namespaces."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hangdog_agent.capture.own_addresses import MOST, own_addresses
from hangdog_agent.procfs import Proc


@pytest.fixture
def apart() -> Iterator[int]:
    """A process in a network namespace of its own, with two addresses."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip (iproute2)")
    name = f"hdaddr{os.getpid()}"
    made = [("netns", "add", name), ("-n", name, "link", "set", "lo", "up")]
    made += [("-n", name, "addr", "add", one, "dev", "lo") for one in ("10.213.79.5/24", "fd00:77::5/64")]
    try:
        for words in made:
            subprocess.run(("ip", *words), check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    with subprocess.Popen(
        ("ip", "netns", "exec", name, sys.executable, "-c", "print(1, flush=True); input()"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()
    subprocess.run(("ip", "netns", "del", name), check=False)


def test_the_addresses_of_a_trainers_own_namespace_are_told(apart: int) -> None:
    assert own_addresses(Proc(), [apart]) == ("10.213.79.5", "fd00:77::5")
    here = own_addresses(Proc(), [os.getpid()])
    assert own_addresses(Proc(), [os.getpid(), apart, apart]) == tuple(sorted({*here, "10.213.79.5", "fd00:77::5"}))


def test_no_address_that_every_machine_has_is_told() -> None:
    assert not [one for one in own_addresses(Proc(), [os.getpid()]) if one.startswith(("127.", "fe80", "::1"))]


def test_a_process_that_is_gone_has_none() -> None:
    assert own_addresses(Proc(), [1 << 29]) == ()


class Wide(Proc):
    """A machine with more addresses than are told."""

    def raw(self, pid: int, name: str) -> bytes:
        rows = (f"  |-- 10.0.{n // 250}.{n % 250 + 1}\n   /32 host LOCAL\n" for n in range(5 * MOST))
        return "".join(rows).encode() if name == "net/fib_trie" else b"\xff garbage"


def test_of_many_some_are_told() -> None:
    assert len(own_addresses(Wide(), [os.getpid()])) == MOST
