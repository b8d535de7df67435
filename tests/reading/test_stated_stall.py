"""For how long a job had stood still, as its log states it. Lines are made up in the forms of the programs named beside."""

import pytest

from hangdog_models.reading import stated_stall

GAVE_UP = (
    "[rank3]:[E1 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, Timeout(ms)={bound}) ran for {ran} milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (GAVE_UP.format(bound=600_000, ran=600_012), 600.012),
        ("[rank0]:[F1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued", 480.0),
        ("RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", 1800.0),
        ("RuntimeError: Rank 0 ... Ranks 2, 3 failed to pass monitoredBarrier in 300000 ms", 300.0),
        ("torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0", 600.0),
        ("[2026-01-01 00:00:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", 300.0),
        ("[WARNING] [rank_monitor] Did not get subsequent heartbeat. Waited 900.00 seconds.", 900.0),
        ("Watchdog triggered because step has not incremented in the last 3600.5 seconds.", 3600.0),
    ],
)  # fmt: skip
def test_who_gives_up_says_for_how_long_it_waited(line: str, seconds: float) -> None:
    assert stated_stall.read(f"some line\n{line}\nanother\n") == pytest.approx(seconds)


def test_the_longest_wait_counts() -> None:
    assert (
        stated_stall.read(GAVE_UP.format(bound=600_000, ran=600_012) + "wait timeout after 900000ms, keys: a") == 900.0
    )


def test_a_connection_that_was_closed_early_was_no_wait() -> None:
    assert stated_stall.read(GAVE_UP.format(bound=600_000, ran=4_000)) is None


@pytest.mark.parametrize(
    "later",
    [
        " iteration 120/ 500 | consumed samples: 960 | lm loss: 2.1E+00 |\n",
        "{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.3}\n",
        "node-1:7:8 [0] NCCL INFO comm 0xa rank 3 nranks 4 cudaDev 0 commId 0xfe - Init COMPLETE\n",
        "[default0]: Rendezvous complete for workers. Result:\n",
    ],
)
def test_a_job_that_goes_on_afterwards_has_not_stood_still(later: str) -> None:
    gave_up = GAVE_UP.format(bound=600_000, ran=600_012)
    assert stated_stall.read(gave_up + later) is None
    assert stated_stall.read(later + gave_up) == pytest.approx(600.012)


@pytest.mark.parametrize("text", ["", "step 4\n", "wait timeout after 99999999999999999999ms", "watchdog_timeout=300"])
def test_other_lines_state_nothing(text: str) -> None:
    assert stated_stall.read(text) is None
