"""The kernel log reader and any text: it answers, in time, and what it keeps can be shown."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.reading.hardware import kernel_log
from hangdog_models.reading.hardware.kernel_line import split

PIECES = st.sampled_from(
    [
        "NVRM: ", "Xid ", "(PCI:0000:4b:00)", ": 79", ", ", "pid=", "name=", "'", "SXid (PCI:0000:05:00.0): 1", "nvidia-nvswitch0: ",
        "[ 1.5] ", "[Sun Feb 23 16:24:18 2025] ", "6,1,1,-;", "<3>", "kernel: ", "Okt 06 17:59:27 h ", "0x00000087", "\n", "\n", "\n",
        "INFO: task a:1 blocked for more than 120 seconds", " nfs_wait+0x1/0x2", "mlx5_core 0000:18:00.0: Link down", "Link up",
        "nfs: server a not responding", "nfs: server a OK", "Data {", "fatal ", "caused by previous Xid 149", "2025-99-99T99:99:99Z ",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=60).map("".join)


@given(TEXTS)
def test_any_text_is_read_and_what_is_kept_can_be_shown(text: str) -> None:
    assert kernel_log.recognises(text) in (True, False)
    for found in kernel_log.read(text):
        assert found.what.isprintable() and found.code.isprintable() and found.device.isprintable()
        assert len(found.what) < 1500 and found.times >= 1 and all(peer.isprintable() for peer in found.peers)


@given(TEXTS)
def test_passing_over_lines_that_tell_nothing_changes_nothing(text: str) -> None:
    every = kernel_log.read(
        f"\u0130\n{text}"
    )  # a letter without a lower case of one character: then all lines are read
    assert kernel_log.read(text) == every


@given(st.text())
def test_any_line_has_a_message_or_none(line: str) -> None:
    taken = split(line)
    assert taken is None or taken.text in line


@pytest.mark.parametrize(
    "unit",
    [
        "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen\n", "NVRM: [" * 40 + "\n", " " * 200 + "\n", "[" * 200 + "\n",
        "mlx5_core 0000:18:00.0: health link down link up port module event" * 4 + "\n", "Lustre: Connection to " * 30 + "\n",
        "INFO: task a:1 blocked for more than 120 seconds\n", "EDAC MC0 lustre nfs not responding link up segfault at\n",
        "pid=name=" * 40, "Oct  6 17:59:27 " * 10 + "\n",
    ],
)  # fmt: skip
def test_reading_takes_time_in_proportion_to_the_text(unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        start = time.thread_time()
        kernel_log.read(text)
        return time.thread_time() - start

    seconds(10_000)
    small, large = min(seconds(50_000) for _ in range(3)), min(seconds(400_000) for _ in range(3))
    assert large < 8 * 4 * small + 0.05  # eight times the text; four times is room for a busy machine
