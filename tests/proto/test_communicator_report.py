"""Communicators on the wire: what is written is read back, and what cannot be, or is too much, is not believed."""

import math
from dataclasses import replace
from typing import Any

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow, joined
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.views import communicator_text
from hangdog_proto.codec import communicator_list, communicator_report
from hangdog_proto.codec.communicator_report import MOST_COMMUNICATORS, NAME, OPERATION
from hangdog_proto.codec.slow_report import MOST_JOBS
from hangdog_proto.generated import hangdog_pb2 as pb

RANKS = tuple(map(Rank, range(8)))
#: Numbers that a float of four bytes holds exactly.
WINDOW = CommunicatorWindow(2**64 - 1, "tp", 16, RANKS, 12.5, 370, 371, RANKS[2:3], 20.5, 19.25, "AllReduce", True)


@pytest.mark.parametrize(
    "window",
    [
        WINDOW,
        replace(WINDOW, lowest=371, behind=RANKS),
        replace(WINDOW, lowest=0, highest=0, behind=RANKS, age_s=None, operation=""),
        replace(WINDOW, lowest=None, highest=None, behind=()),
        replace(WINDOW, name="", ranks=RANKS[:1], behind=RANKS[:1], idle_s=0.0, age_s=0.0),
    ],
)
def test_a_window_is_read_back(window: CommunicatorWindow) -> None:
    owner = Owner(OwnerKind.SLURM, "77", 1000)
    changes = {"k": CommunicatorChanges((window,), frozenset({3, 2**63}), 4), "other": CommunicatorChanges()}
    report = communicator_report.pack(changes, {"k": ("job", owner)})
    read = communicator_report.unpack(pb.CommunicatorReport.FromString(report.SerializeToString()))
    assert read == {("job", owner): changes["k"], ("other", UNKNOWN): changes["other"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": math.nan}, {"rate": -1.0}, {"rate": 1e9}, {"idle_s": math.inf}, {"idle_s": -1.0}, {"age_s": math.nan},
        {"age_s": 1e12}, {"size": MAX_RANK + 1}, {"ranks": [MAX_RANK + 1]}, {"ranks": [1], "behind": [2]},
        {"lowest": 5, "highest": 4}, {"highest": 4}, {"ranks": range(5000)}, {"behind": [0, 0]},
    ],
)  # fmt: skip
def test_what_cannot_be_is_not_believed(wrong: dict[str, Any]) -> None:
    told = pb.CommunicatorWindow(**({"ranks": [0]} | wrong))
    with pytest.raises(UnreadableEvidence):
        communicator_report.unpack(pb.CommunicatorReport(jobs=[pb.JobCommunicators(job="job", changed=[told])]))


@pytest.mark.parametrize(
    "jobs",
    [
        [pb.JobCommunicators(job=str(at)) for at in range(MOST_JOBS + 1)],
        [pb.JobCommunicators(job="job", changed=[pb.CommunicatorWindow()] * (MOST_COMMUNICATORS + 1))],
        [pb.JobCommunicators(job="job", gone=range(MOST_COMMUNICATORS + 1))],
        [pb.JobCommunicators(job=str(at), changed=[pb.CommunicatorWindow()] * 300) for at in range(2)],
    ],
)
def test_what_is_too_much_is_not_taken(jobs: list[pb.JobCommunicators]) -> None:
    with pytest.raises(UnreadableEvidence):
        communicator_report.unpack(pb.CommunicatorReport(jobs=jobs))


def test_foreign_texts_are_cut_and_made_safe_to_show() -> None:
    told = pb.CommunicatorWindow(name="\x1b" * 9 + "n" * 9999, operation="\u202e" + "o" * 9999)
    report = pb.CommunicatorReport(jobs=[pb.JobCommunicators(job="job", changed=[told])])
    (window,) = communicator_report.unpack(report)["job", UNKNOWN].windows
    assert len(window.name) <= NAME and len(window.operation) <= OPERATION
    assert window.name.isprintable() and window.operation.isprintable()


def test_of_completed_operations_alone_no_rest_is_told() -> None:
    """One machine has rings, the other NCCL Inspector's files."""
    ring = CommunicatorWindow(7, "tp", 4, RANKS[:2], 0.0, 5, 5, RANKS[:2], 60.0)
    inspected = replace(ring, ranks=RANKS[2:4], lowest=None, highest=None, behind=(), completed_only=True)
    (both,) = joined([("a", ring), ("b", inspected)])
    assert both == communicator_list.unpack(communicator_list.pack(both)) and both.completed_only
    assert communicator_text.message(both) == "completes nothing for 60 s"
    (rings,) = joined([("a", ring)])
    assert not rings.completed_only and communicator_text.message(rings) == "rests for 60 s"
