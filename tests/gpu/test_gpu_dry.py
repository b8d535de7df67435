"""The whole proof without a GPU, once: every part comes to its end within the bound, and what each family must show."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from gpu.families import overhead
from gpu.trainers.turns import NAMES
from hangdog_agent.checks.check_result import CheckVerdict
from hangdog_models.findings import Impact

pytestmark = [pytest.mark.slow, pytest.mark.timeout(660)]

#: The parts by name, as the report has them.
Parts = Mapping[str, Mapping[str, Any]]


def test_every_part_comes_to_its_end_and_nothing_is_wrong(dry: Parts) -> None:
    not_done = {name: part["outcome"] for name, part in dry.items() if part["outcome"] != "done"}
    assert set(not_done.items()) <= {("overhead/profiler", "not here")}, "its plug-in need not have been built"
    assert not {name: part["wrong"] for name, part in dry.items() if part.get("wrong")}


@pytest.mark.parametrize(
    ("part", "verdict"),
    [
        ("nccl/2 ranks, process stopped", "machine: node-1 holds the job up"),
        pytest.param(
            "nccl/2 ranks, process killed", "rank 1 on node-1 failed first by SIGKILL", marks=pytest.mark.soak
        ),
        pytest.param("nccl/2 ranks, device hangs", "rank 1 on node-1 holds the job up", marks=pytest.mark.soak),
        pytest.param(
            "nccl/2 ranks, loader waits for a file", "rank 1 on node-1 holds the job up", marks=pytest.mark.soak
        ),
        pytest.param("nccl/2 ranks, collective skipped", "software", marks=pytest.mark.soak),
        pytest.param("nccl/2 ranks, collective of another size", "software", marks=pytest.mark.soak),
    ],
)
def test_each_fault_of_a_job_is_suspected_and_judged(dry: Parts, part: str, verdict: str) -> None:
    figures = dry[part]["figures"]
    assert verdict in figures["verdict"]
    assert figures["suspected after s"] < 30.0 and figures["suspected while healthy"] == 0


def test_a_healthy_job_is_not_suspected_in_any_of_its_duties(dry: Parts) -> None:
    figures = dry["nccl/2 ranks, healthy"]["figures"]
    assert figures["suspected while healthy"] == 0 and figures["agents"] == 2
    assert all(figures[f"{duty} s"] > 0 for duty in ("evaluate", "checkpoint", "compile"))


def test_a_trainer_is_read_in_every_call(dry: Parts) -> None:
    figures = dry["capture/calls"]["figures"]
    assert set(NAMES) < set(figures)
    for name in NAMES:
        reads, _, tried = figures[name]["nonblocking"].partition(" of ")
        assert int(reads) >= int(tried) - 1 > 0, figures[name]
        assert figures[name]["turns"] > 20
    assert any("_collective" in place for place in figures["collective"]["top"])
    assert figures["collective"]["native frames"]


@pytest.mark.soak
def test_steps_are_compared_with_and_without(dry: Parts) -> None:
    figures = dry["overhead/agent"]["figures"]
    assert figures["watched"] and figures["agent MiB"] > 10 and figures["pairs"] == overhead.DRY[0]
    figures = dry["overhead/recorder"]["figures"]
    assert figures["pairs"] == overhead.DRY_ROUNDS[0] and figures["without: steps"] == figures["with: steps"] > 0


def test_each_injected_fault_of_a_device_is_found(dry: Parts) -> None:
    figures = dry["ladder-faults/all at once"]["figures"]
    assert "injected: " in figures["endless product"] and "kernel" in figures["endless product"]
    assert figures["level 0 beside"] == {"reading: pass": 1}


def test_nvml_is_read_idle_and_under_load(dry: Parts) -> None:
    figures = dry["nvml/device"]["figures"]
    assert "TFLOP/s" in figures["load trainer"] and figures["doctor: works"] in (True, False)


def test_a_trap_accuses_no_machine(dry: Parts) -> None:
    trap = dry["traps/each"]["figures"]["trap"]
    assert [one.rpartition(" after")[0] for one in trap["events"]] == ["type 0x8 data 13"]
    blamed = f"({Impact.PROGRAM})"
    assert {one.rpartition(" after")[0] for one in trap["checks"]} == {
        f"{check}: Xid 13 is {CheckVerdict.TELEMETRY} {blamed}" for check in ("gpu", "kernel")
    }
    assert trap["last words"] == [f"CUDA launch failure {blamed}"] and trap["ending"] == "crashed"


def test_the_ring_names_the_rank_that_was_stopped_and_counts_what_was_done(dry: Parts) -> None:
    figures = dry["profiler/ring"]["figures"]
    assert figures["rank 0 awaits data of"] == [1]
    assert figures["behind by counts"].startswith("rank 1 ") and "1 fewer" in figures["behind by counts"]
    assert figures["stuck on rank 0"][0].startswith("AllReduce running ")
    (waiting,), (hung,) = (figures[f"rank {rank} while the device of rank 1 hangs"] for rank in (0, 1))
    assert waiting.startswith("AllReduce running ") and "the sender's data" in waiting
    assert hung.startswith("AllReduce launched ") and re.search(r"\b0 kernels, .*the GPU, .*the sender's data", hung)
    assert figures["rank 0: collectives and p2p made"] == figures["rank 0: counted, finished, left out"][:2]
    assert (figures["rank 0 ended with"], figures["rank 1 ended with"]) == (0, 0)
