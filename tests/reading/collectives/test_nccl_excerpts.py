"""What ncclras and the diagnostics of NCCL and RCCL printed of real jobs: public excerpts, shortened. tests/reading/SOURCES.md lists them."""

import pytest

from hangdog_models.collectives import RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.collectives import nccl_diag, ras_events, ras_json, ras_text
from hangdog_models.reading.json_document import read_json

STATUS = """"status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          }"""
#: ray-project/ray, python/ray/train/v2/tests/test_nccl_ras_callback.py: NCCL 2.28.9 on A10G, a communicator that differs
DIFFERS = f"""{{
  "nccl_version": "2.28.9",
  "timestamp": "2026-06-19 06:56:24",
  "communicators_count": 1,
  "communicators": [
    {{
      "hash": "0x4e0104c2022fa2f9",
      "size": 2,
      "ranks_count": 2,
      "missing_ranks_count": 0,
      "ranks": [
        {{
          "rank": 0, "host": "10.0.0.184", "pid": 10205, "cuda_dev": 2, "nvml_dev": 2,
          {STATUS},
          "collective_counts": {{ "Broadcast": 0, "AllReduce": 10 }}
        }},
        {{
          "rank": 1, "host": "10.0.0.184", "pid": 10207, "cuda_dev": 3, "nvml_dev": 3,
          {STATUS},
          "collective_counts": {{ "Broadcast": 0, "AllReduce": 3 }}
        }}
      ],
      "missing_ranks": [

      ]
    }}
  ],
  "ras": {{
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }}
}}
"""
#: the same file: a rank that does not answer, of which 2.28.9 forgets a comma
SILENT = f"""{{
  "nccl_version": "2.28.9",
  "timestamp": "2026-06-19 06:55:57",
  "communicators_count": 1,
  "communicators": [
    {{
      "hash": "0xa1349768e9517ed7",
      "size": 2,
      "ranks": [
        {{
          "rank": 0, "host": "10.0.0.184", "pid": 10018, "cuda_dev": 0, "nvml_dev": 0,
          {STATUS},
          "collective_counts": {{ "Broadcast": 0, "AllReduce": 4 }}
        }}
      ],
      "missing_ranks": [
        {{
          "rank": 1,
          "host": "10.0.0.184",
          "pid": 10017,
          "cuda_dev": 1,
          "nvml_dev": 1
          "status": {{
            "unresponsive": true,
            "considered_dead": false
          }}
        }}
      ]
    }}
  ]
}}
"""


def test_a_report_of_a_job_that_differs_with_and_without_mending() -> None:
    for text in (DIFFERS, ras_json.repaired(DIFFERS)):
        (communicator,) = ras_json.read(read_json(text)).communicators
        assert [(m.number, m.status, m.launched["AllReduce"]) for m in communicator.members] == [
            (0, RasStatus.RUNNING, 10), (1, RasStatus.RUNNING, 3),
        ]  # fmt: skip


#: https://github.com/NVIDIA/nccl/issues/1911, NCCL 2.26: those that are listed are ahead
AHEAD = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.0.0.124
"""


def test_a_report_that_lists_those_ahead() -> None:
    assert ras_text.recognises(AHEAD)
    (report,) = ras_text.read(AHEAD)
    (communicator,) = report.communicators
    assert (communicator.name, communicator.size, communicator.classes) == (
        "fa93daea854b060b",
        32,
        ((640, 30), (641, 2)),
    )
    assert [(m.number, m.launched) for m in communicator.members] == [
        (12, {"AllGather": 641}),
        (13, {"AllGather": 641}),
    ]
    assert report.lost == ()


def test_a_report_with_a_comma_forgotten() -> None:
    with pytest.raises(UnreadableEvidence):
        read_json(SILENT)
    report = ras_json.read_text(SILENT)
    assert [(m.pid, m.status, m.device) for m in report.lost] == [(10017, RasStatus.UNRESPONSIVE, 1)]


#: https://rocm.docs.amd.com/projects/rccl, using-rccl-diagnostics: an MI355X machine
RCCL = """node01:15 NCCL DIAG === NCCL Diagnostics ===
node01:15 NCCL DIAG [OK]   p2p: all 56 directed GPU P2P edges verified
node01:15 NCCL DIAG NCCL diagnostics completed in 40.0 ms across 8 ranks
"""
#: the same page: what one process with several GPUs prints, which is no fault
EXPECTED_NOTICE = (
    "node01:4242 NCCL DIAG [INFO] p2p: temporarily enabled context-wide HIP peer access rank=3 cudaDev=3; avoid concurrent "
    "HIP use on this context until diagnostics completes\n"
)
#: the same page: a pair that failed
EDGE = (
    "node01:4242 NCCL DIAG [INFO] p2p: destination buffer unavailable srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=1 "
    "dstCudaDev=1 dstNvmlDev=1 path=XGMI handle=LEGACY_CUDA_IPC reason=noDescriptor; inspect earlier allocation, export, or "
    "initialization errors on the destination rank, then check the XGMI link status and link type\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RCCL, [("passed", Impact.TELLS_NOTHING, "")]),
        (EXPECTED_NOTICE + RCCL, [("to be looked at", Impact.TELLS_NOTHING, "")]),
        (EDGE + RCCL, [("P2P failed", Impact.PATH, "node01")]),
    ],
)
def test_diagnostics_of_rccl(text: str, expected: list[tuple[str, Impact, str]]) -> None:
    found = [one.finding for one in nccl_diag.read(text)]
    assert [(one.code, one.impact, one.machine) for one in found] == expected


def test_an_event_as_the_users_guide_shows_it_indented() -> None:
    """NCCL's user guide, troubleshooting/ras.rst: the text and the JSON object of one event, with `details`."""
    document = """{
    "timestamp": "2025-12-19 13:07:07",
    "group": "LIFECYCLE",
    "event": "PEER_DEAD",
    "peer": {
      "host": "172.16.64.245",
      "pid": 1524345,
      "cuda_devs": [1],
      "nvml_devs": [1]
    },
    "details": ""
  }
"""
    assert ras_events.recognises(document)
    assert [(m.pid, m.status, m.device) for m in ras_events.read(document).lost] == [(1524345, RasStatus.DEAD, 1)]
