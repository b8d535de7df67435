"""Tables of processes: whatever columns they have, the state, the wait channel and the command are read."""

import os
import subprocess

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.processes import process_table
from hangdog_models.reading.processes.listed_process import ListedProcess
from hangdog_models.stack import ProcessState
from support.refused import refused

#: https://github.com/OpenPipe/ART/issues/395: `ps aux`; the header is the one that ps prints above it
OF_AUX = """USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root        9348  0.0  0.0 430408 136212 pts/4   Sl+  Sep03   0:23 /data/venvs/arte/bin/python3 /data/venvs/arte/bin/jupyter-lab
root       86177 91.7  4.1 1385606832 22108948 pts/40 Sl+ 16:12  23:56 python mcp_rl_training.py
root       86953  0.0  0.0   4092  1968 pts/41   S+   16:17   0:00 grep --color=auto python
"""
#: https://github.com/SDL-Hercules-390/hyperion/issues/120: `top` of threads, with WCHAN behind the command
OF_TOP = """top - 15:39:21 up 23:24,  1 user,  load average: 0.19, 0.51, 0.42
Threads:  87 total,   0 running,  87 sleeping,   0 stopped,   0 zombie

  PID USER      PR  NI    VIRT    RES    SHR S %CPU %MEM     TIME+ COMMAND                WCHAN
19544 root      -9   0 12.776g  21416   5780 S  4.7  0.1   0:05.13 timer_thread           hrtimer_nanosleep
19541 root      -6   0 12.776g  21416   5780 S  0.0  0.1   0:00.00 logger_thread          pipe_wait
"""
#: https://github.com/facebookresearch/fairseq/issues/2832: `top` of a process that has ended
OF_ENDED = """PID USER      PR  NI    VIRT    RES    SHR S  %CPU %MEM     TIME+ COMMAND
32503 ana       20   0       0      0      0 Z  99.7  0.0  17:46.89 fairseq-train
"""
ASKED = """    PID    PPID STAT WCHAN                            CMD
  48211   48100 Rl   -                                python -u train.py --local_rank=0
  48213   48100 Dl   nfs_wait_bit_killable            python -u train.py --local-rank 2
  48214   48100 Z    -                                [python] <defunct>
"""


def short(rows: tuple[ListedProcess, ...]) -> list[tuple[int, str, str]]:
    return [(row.state.pid, row.state.state, row.state.wchan) for row in rows]


def test_states_channels_parents_and_numbers_are_read() -> None:
    assert process_table.recognises(ASKED)
    first, second, third = process_table.read(ASKED)
    assert first == ListedProcess(ProcessState(48211, "R", cmdline="python -u train.py --local_rank=0"), 48100, local=0)
    assert (second.state.state, second.state.wchan, second.local) == ("D", "nfs_wait_bit_killable", 2)
    assert third == ListedProcess(ProcessState(48214, "Z", comm="python"), 48100)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (OF_AUX, [(9348, "S", ""), (86177, "S", ""), (86953, "S", "")]),
        (OF_TOP, [(19544, "S", "hrtimer_nanosleep"), (19541, "S", "pipe_wait")]),
        (OF_ENDED, [(32503, "Z", "")]),
    ],
)
def test_public_tables(text: str, rows: list[tuple[int, str, str]]) -> None:
    assert process_table.recognises(text)
    assert short(process_table.read(text)) == rows


def test_the_whole_command_is_read() -> None:
    assert process_table.read(OF_AUX)[1].state.cmdline == "python mcp_rl_training.py"


@pytest.mark.parametrize(
    "options",
    [["aux"], ["-elf"], ["-eo", "pid,ppid,lstart,stat,wchan:32,args"], ["auxf"], ["-eLo", "pid,lwp,stat,wchan,cmd"]],
)
def test_what_ps_prints_here(options: list[str]) -> None:
    text = subprocess.run(["ps", *options, "ww"], capture_output=True, text=True, check=True).stdout
    assert process_table.recognises(text)
    (own,) = (row for row in process_table.read(text) if row.state.pid == os.getpid())
    assert own.state.state in "RS" and "python" in own.state.cmdline


def test_the_environment_behind_a_command_tells_its_rank() -> None:
    text = ASKED.replace("--local-rank 2", "PATH=/bin RANK=10 LOCAL_RANK=2 WORLD_SIZE=16")
    assert [(row.rank, row.local) for row in process_table.read(text)] == [(None, 0), (10, 2), (None, None)]


def test_only_the_first_thread_of_a_process_is_its_state() -> None:
    text = "  PID   LWP STAT WCHAN  CMD\n    7     9 D    nfs_wa python train.py\n    7     7 S    futex_ python train.py\n"
    assert short(process_table.read(text)) == [(7, "S", "futex_")]


def test_dates_of_several_words_and_trees_do_not_shift_a_column() -> None:
    text = (
        "  PID                  STARTED S CMD\n"
        "    7 Mon Sep  2 10:00:00 2024 T python a.py\n"
        "    8                   Sep 03 D  |   \\_ python b.py\n"
    )
    assert [(row.state.state, row.state.cmdline) for row in process_table.read(text)] == [
        ("T", "python a.py"),
        ("D", "python b.py"),
    ]


def test_a_row_with_other_things_below_the_columns_is_none() -> None:
    text = ASKED + "user@gpu-a17:~$ python -u train.py D D\n  12 13 W-what - x\n"
    assert len(process_table.read(text)) == 3


def test_a_process_shown_twice_is_the_last_one() -> None:
    assert short(process_table.read(ASKED + "\n" + ASKED.replace("Rl  ", "Sl  ")))[0] == (48211, "S", "")


@pytest.mark.parametrize("text", ["", "PID is 7, CMD\n", "  PID TTY          TIME CMD\n    7 pts/0    00:00:01 bash\n"])
def test_a_text_without_a_state_is_no_table(text: str) -> None:
    assert not process_table.recognises(text)
    with refused("damaged-process-state", UnreadableEvidence):
        process_table.read(text)


def test_there_is_a_limit() -> None:
    rows = "".join(f"{pid:7} 1 S - x\n" for pid in range(1, 6))
    with refused("too-many"):
        process_table.read("    PID    PPID STAT WCHAN CMD\n" + rows, Limits(threads=4))
