"""Lines that a terminal broke are joined, and no others: what looks alike, as the rows of a table, stays as it is.

The shapes are those of sgl-project/sglang#3424 (a watchdog's line that breaks inside of `WorkNCCL(S|eqNum=…`, and a library's
path), NVIDIA/nccl#719 (bars on both sides of each line), and of dumps copied from a terminal of 80 columns.
"""

import time

import pytest

from hangdog.evidence.content import Logged, StackFile, read_contents
from hangdog.evidence.naming import name_of
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.reading.stacks import faulthandler, pyspy_text
from hangdog_models.reading.wrapped import rejoined

PYSPY = """Process 71: /opt/bin/python -u train.py --model-path /data/models/a-model-with-a-long-name --dataloader-num-workers 16
Python v3.12.3 (/opt/bin/python3.12)

Thread 71 (idle): "MainThread"
    _wait_for_all_of_the_others_to_come_here (torch/distributed/distributed_c10d.py:2806)
    wrapper (torch/distributed/c10d_logger.py:81)
    train_one_step_with_gradient_accumulation (a_project/with/many/folders/training_loop.py:1204)
    <module> (train.py:9)
"""
FAULT = """Timeout (0:30:00)!
Thread 0x00007f0000000001 (most recent call first):
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/opt/lib/python3.12/site-packages/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/srv/train.py", line 9 in <module>
"""
LOG = "".join(
    f"[rank{rank}]:[E1125 09:00:05.3934{rank}5189 ProcessGroupNCCL.cpp:636] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
    f"{1522789 + rank * 11111}, OpType=_ALLGATHER_BASE, NumelIn=298960, NumelOut=4783360, Timeout(ms)=600000) ran for 60009{rank} milliseconds before timing out.\n"
    for rank in range(4)
)


def wrapped(text: str, width: int, mark: str = "") -> str:
    """The text as a terminal of that width shows it."""
    found = []
    for line in text.split("\n"):
        while len(line) > width:
            found.append(line[: width - len(mark)] + mark)
            line = line[width - len(mark) :]
        found.append(line)
    return "\n".join(found)


def frames(text: str) -> list[tuple[str, str, int]]:
    (process,) = pyspy_text.read(text) if "idle" in text else faulthandler.read(text)
    return [(frame.function, frame.file, frame.line) for frame in process.threads[-1].frames]


@pytest.mark.parametrize("width", [60, 64, 72, 80])
@pytest.mark.parametrize("text", [PYSPY, FAULT])
def test_a_frame_that_is_broken_inside_of_its_place_is_whole_again(text: str, width: int) -> None:
    broken = wrapped(text, width)
    assert broken != text
    assert frames(rejoined(broken)) == frames(text)


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
@pytest.mark.parametrize("mark", ["", "\\"])
def test_a_log_that_was_copied_from_a_terminal_is_as_it_was_written(width: int, mark: str) -> None:
    broken = wrapped(LOG, width, mark)
    assert broken != LOG and rejoined(broken) == LOG


@pytest.mark.parametrize("sign", ["`", "> "])
@pytest.mark.parametrize("width", [80, 120])
def test_a_sign_that_somebody_put_before_the_first_line_hides_no_edge(width: int, sign: str) -> None:
    """As in huggingface/open-r1#620: one line is longer than the edge, for a quotation begins there."""
    assert rejoined(sign + wrapped(LOG, width)) == sign + LOG


@pytest.mark.parametrize("mark", ["> ", "- ", ""])
def test_a_quotation_hides_no_lost_gpu(mark: str) -> None:
    lines = ("nvidia-peermem: detected invalid context", "NVRM: Xid (PCI:0000:cb:00): 79, GPU has fallen off the bus.")
    text = "".join(f"{mark}[Fri Aug 30 11:43:09 2024] {line}\n" for line in lines)
    (logged,) = read_contents(name_of("dmesg.txt"), text.encode(), DEFAULTS)
    assert isinstance(logged, Logged) and [one.code for one in logged.findings] == ["Xid 79"]


def test_the_evidence_is_read_as_it_was_printed() -> None:
    (whole,) = read_contents(name_of("job.log"), LOG.encode(), DEFAULTS)
    (broken,) = read_contents(name_of("job.log"), wrapped(LOG, 120).encode(), DEFAULTS)
    assert isinstance(whole, Logged) and broken == whole
    (stacks,) = read_contents(name_of("rank0.txt"), wrapped(PYSPY, 80).encode(), DEFAULTS)
    assert isinstance(stacks, StackFile)
    assert [frame.function for frame in stacks.processes[0].threads[0].frames] == [one for one, _, _ in frames(PYSPY)]


@pytest.mark.parametrize("right", ["", " \u2502"])
def test_the_bars_of_a_pane_are_taken_off(right: str) -> None:
    boxed = "\u256d" + "\u2500" * 60 + "\u256e\n" + "".join(f"\u2502 {line}{right}\n" for line in PYSPY.splitlines())
    assert frames(rejoined(boxed)) == frames(PYSPY)


@pytest.mark.parametrize(
    "text",
    [
        PYSPY,
        FAULT,
        LOG,
        # rows of equal length: what a launcher says of each task, numbers, a listing, borders
        "".join(f"srun: error: gpu-{host}: task {host}: Segmentation fault (core dumped)\n" for host in range(9)),
        "".join(f"{gpu} 41 300.00 W 81559 MiB 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 {gpu}\n" for gpu in range(8)),
        "".join(
            f"gpu-a{host:02} is a machine of the partition that somebody drained because it is old\n"
            for host in range(8)
        ),
        "=" * 60 + "\ntrain.py FAILED\n" + "-" * 60 + "\nFailures:\n" + "=" * 60 + "\n",
        "".join(
            f"gpu-{k}.cluster:57:59 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.12<4> with status=12 hca mlx5_0\n"
            for k in (0, 1, 3)
        )
        + "gpu-5.cluster:57:57 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.12<0>\n",
        "".join(
            f"a-{k} takes the 7th batch of the epoch and waits for what the others have sent to mlx5_0\nrank {k} waits\n"
            for k in range(6)
        ),
        # prose that somebody folded, at blanks
        "The job hangs at the first step since we moved to the new machines\nand nobody here knows why that is so\n"
        * 4,
        # one line that happens to be the longest, and another error below it
        "x" * 80 + "\nRuntimeError: CUDA error: unknown error\n",
        # a tree of stacks: its root has no bar
        "[0-3] (4 processes)\n\u2502 main (a.py:1)\n\u2502 \u251c\u2500 f (a.py:2)\n\u2502 \u2514\u2500 g (a.py:3)\n",
        # locals below a frame, and a frame of a build without a file's line
        'Thread 7 (idle): "MainThread"\n    f (a.py:1)\n        Arguments:\n            x: (1,\n    g (b.py:2)\nh (c.py:3)\n',
    ],
)
def test_lines_that_no_terminal_broke_stay_as_they_are(text: str) -> None:
    assert rejoined(text) == text


def test_work_grows_with_the_text_only() -> None:
    for piece in ("    f (", '  File "a', "x" * 80, "a (b:1", "\u2502"):
        text = 'Thread 7 (idle): "a"\n' + (piece + "\n") * 40_000
        begin = time.process_time()
        rejoined(text)
        assert time.process_time() - begin < 3
    begin = time.process_time()
    rejoined(("an Error that repeats itself again and again until the ed\nge of it\n") * 40_000)
    assert time.process_time() - begin < 3
