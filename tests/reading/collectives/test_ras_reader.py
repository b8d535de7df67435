"""NCCL RAS: the text of several versions, the JSON, and the JSON that is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.collectives import RasMember, RasReport, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.collectives import ras_json, ras_text
from hangdog_models.reading.json_document import read_json
from support.refused import refused

TABLE = """\
NCCL version 2.27.3 compiled with CUDA 12.8

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
{rows}

Errors
======
"""


def text(rows: str, *blocks: str) -> str:
    return TABLE.format(rows=rows) + "\n" + "\n".join(blocks)


def one(given: str) -> RasReport:
    assert ras_text.recognises(given)
    (report,) = ras_text.read(given)
    return report


def test_a_class_of_two_and_the_one_line_form_of_a_single_member() -> None:
    report = one(
        text(
            "    0         1         2         4         8         8   RUNNING  MISMATCH",
            "#0-0 (00000000000000ab) MISMATCH\n"
            "  Communicator ranks have different AllReduce operation counts\n"
            "  5 ranks have launched up to operation 41\n"
            "  2 ranks have launched up to operation 40\n"
            "  Rank 4 -- GPU 0 (NVML 2) managed by process 77 on node 10.0.0.2\n"
            "  Rank 5 -- GPU 1 managed by process 78 on node 10.0.0.2\n"
            "  Rank 7 has not launched any operations -- GPU 3 managed by process 80 on node 10.0.0.2\n",
        )
    )
    (communicator,) = report.communicators
    assert (communicator.name, communicator.size) == ("00000000000000ab", 8)
    assert communicator.classes == ((41, 5), (40, 2), (0, 1))
    assert communicator.members == (
        RasMember(4, RasStatus.RUNNING, "10.0.0.2", 77, 2, {"AllReduce": 40}),
        RasMember(5, RasStatus.RUNNING, "10.0.0.2", 78, 1, {"AllReduce": 40}),
        RasMember(7, RasStatus.RUNNING, "10.0.0.2", 80, 3, {"AllReduce": 0}),
    )


def test_wider_columns_and_counts_without_a_kind() -> None:
    report = one(
        text(
            "        3            1            2          2-4           12           12      RUNNING      INCOMPLETE,MISMATCH",
            "#3-0 (ab) MISMATCH\n  Communicator ranks have different collective operation counts\n"
            "  11 ranks have launched up to operation 9\n"
            "  Rank 2 has launched up to operation 8 -- GPU 2 managed by process 5 on node fd00::1\n",
        )
    )
    assert report.communicators[0].size == 12
    assert report.communicators[0].members[0] == RasMember(2, RasStatus.RUNNING, "fd00::1", 5, 2, {"": 8})


def test_a_missing_process_and_a_dead_one() -> None:
    report = one(
        text(
            "    0         1         2       3-4         8         7   RUNNING  INCOMPLETE",
            "INCOMPLETE\n  Missing communicator data from 1 job process\n"
            "  Process 91 on node 10.0.0.2 managing GPU 3\n\n"
            "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
            "  Process 90 on node 10.0.0.2 managing GPUs 0,1 (NVML 2,3)\n\n"
            "#0-0 (cd) INCOMPLETE\n  Missing communicator data from 2 ranks\n"
            "  Rank 6 -- GPU 2 managed by process 90 on node 10.0.0.2\n"
            "  Rank 7 -- [process information not found]\n",
        )
    )
    assert report.lost == (
        RasMember(-1, RasStatus.UNRESPONSIVE, "10.0.0.2", 91, 3),
        RasMember(-1, RasStatus.DEAD, "10.0.0.2", 90, None),
    )
    assert report.communicators[0].members == (
        RasMember(6, RasStatus.DEAD, "10.0.0.2", 90, 2),
        RasMember(7, RasStatus.UNRESPONSIVE),
    )


def test_old_versions_list_missing_ranks_by_number_only() -> None:
    block = "#0-0 (cd) INCOMPLETE\n  Missing communicator data from {n} rank{s}\n  The missing rank{s}: {list}\n"
    job = "INCOMPLETE\n  Missing communicator data from 1 job process\n  Process 91 on node 10.0.0.2 managing GPU 3\n\n"
    rows = "    0         1         2       3-4         8         7   RUNNING  INCOMPLETE"
    (alone,) = one(text(rows, job, block.format(n=1, s="", list=7))).communicators
    assert alone.members == (RasMember(7, RasStatus.UNRESPONSIVE, "10.0.0.2", 91, 3),)
    (two,) = one(text(rows, job, block.format(n=2, s="s", list="3,7"))).communicators
    assert two.members == (RasMember(3, RasStatus.UNRESPONSIVE), RasMember(7, RasStatus.UNRESPONSIVE))


def test_errors_and_states_that_differ() -> None:
    report = one(
        text(
            "    0         1         2         4         8         8     ABORT  ERROR,MISMATCH",
            "#0-0 (ef) ERROR\n  Asynchronous error on 1 rank\n"
            "  Rank 3 reported Remote process error -- GPU 3 managed by process 9 on node a\n\n"
            "Warnings\n========\n\n"
            "#0-0 (ef) MISMATCH\n  Communicator ranks have different status\n  6 ranks have status RUNNING\n"
            "  Rank 1 has status NOCOMM -- GPU 1 managed by process 8 on node a\n"
            "  Rank 5 has status ABORT -- GPU 1 managed by process 7 on node b\n",
        )
    )
    (communicator,) = report.communicators
    assert [(m.number, m.status, m.error) for m in communicator.members] == [
        (1, RasStatus.UNKNOWN, ""), (3, RasStatus.ERROR, "Remote process error"), (5, RasStatus.ABORT, ""),
    ]  # fmt: skip


def test_sound_communicators_are_known_by_size_and_their_number_is_bounded() -> None:
    report = one(text("    0         2         1         4         4         8   RUNNING      OK"))
    assert [(c.name, c.size, c.members) for c in report.communicators] == [("#0-0", 4, ()), ("#0-1", 4, ())]
    many = one(text("    0 999999999         1         4         4         8   RUNNING      OK"))
    assert len(many.communicators) == 1 << 16


def test_several_reports_in_one_file_come_in_its_order() -> None:
    rows = "    0         1         1         {n}         {n}         {n}   RUNNING      OK"
    reports = ras_text.read(text(rows.format(n=4)) + text(rows.format(n=8)))
    assert [report.communicators[0].size for report in reports] == [4, 8]


def test_what_is_no_report_is_refused() -> None:
    assert not ras_text.recognises("Group therapy\n")
    with refused("damaged-nccl-report", UnreadableEvidence):
        ras_text.read("hello\n")


def member(rank: int, **more: Any) -> dict[str, Any]:
    state = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    about = {"rank": rank, "host": "10.0.0.1", "pid": 50 + rank, "cuda_dev": 0, "nvml_dev": rank}
    return about | {"status": state | more, "collective_counts": {"AllReduce": 7, "Broadcast": 0}}


def document(*members: dict[str, Any], missing: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    communicator = {"hash": "0xAB", "size": len(members) + len(missing), "ranks": list(members)}
    return {
        "nccl_version": "2.29.1", "timestamp": "2026-01-02 03:04:05", "communicators_count": 1,
        "communicators": [communicator | {"missing_ranks": list(missing)}],
    }  # fmt: skip


def gone(rank: int, unresponsive: bool, dead: bool) -> dict[str, Any]:
    return {
        "rank": rank, "host": "10.0.0.2", "pid": 70, "cuda_dev": 1, "nvml_dev": 1,
        "status": {"unresponsive": unresponsive, "considered_dead": dead},
    }  # fmt: skip


def test_json_holds_every_member() -> None:
    report = ras_json.read(document(member(0), member(1), missing=(gone(2, True, False), gone(3, True, True))))
    (communicator,) = report.communicators
    assert communicator.name == "00000000000000ab" and communicator.size == 4
    assert communicator.members[1] == RasMember(
        1, RasStatus.RUNNING, "10.0.0.1", 51, 1, {"AllReduce": 7, "Broadcast": 0}
    )
    assert [m.status for m in communicator.members[2:]] == [RasStatus.UNRESPONSIVE, RasStatus.DEAD]
    assert [(m.number, m.host, m.pid) for m in report.lost] == [(-1, "10.0.0.2", 70)]
    assert report.at_s == 1767323045.0


@pytest.mark.parametrize(
    ("state", "status", "error"),
    [
        ({"init_state": 7}, RasStatus.INIT, ""),
        ({"async_error": 6}, RasStatus.ERROR, "Remote process error"),
        ({"async_error": 7}, RasStatus.RUNNING, ""),
        ({"abort_flag": True, "async_error": 1}, RasStatus.ABORT, "Unhandled CUDA error"),
        ({"destroy_flag": True}, RasStatus.FINALIZE, ""),
    ],
)
def test_states_in_json(state: dict[str, Any], status: RasStatus, error: str) -> None:
    found = ras_json.read(document(member(0, **state))).communicators[0].members[0]
    assert (found.status, found.error) == (status, error)


def test_a_process_that_answers_but_is_no_member_is_not_lost() -> None:
    report = ras_json.read(document(member(0), missing=(gone(1, False, False),)))
    assert report.communicators[0].members[1].status is RasStatus.UNKNOWN and report.lost == ()


def test_the_commas_that_2_28_9_forgets_are_put_in() -> None:
    given = document(member(0), missing=(gone(1, True, False), gone(2, True, True)))
    written = json.dumps(given, indent=2)
    malformed = "RCCL version 2.28.9\n\n" + written.replace('"nvml_dev": 1,\n', '"nvml_dev": 1\n')
    assert ras_json.recognises_text(malformed)
    with pytest.raises(UnreadableEvidence):
        read_json(malformed)
    assert read_json(ras_json.repaired(malformed)) == given


RECORDED = Path(__file__).parent / "recorded"
KILLED = (RECORDED / "ras-2.28.9-killed.txt").read_text()


def test_a_recorded_report_of_2_28_9_that_lacks_a_comma() -> None:
    """Four processes on one H200; rank 1 was killed. For the missing rank NCCL left out the comma behind its device."""
    assert '"nvml_dev": 0\n          "status": {' in KILLED
    with pytest.raises(UnreadableEvidence):
        read_json(KILLED)
    report = ras_json.read_text(KILLED)
    assert [(m.number, m.status, m.error) for m in report.communicators[0].members] == [
        (0, RasStatus.ERROR, "Remote process error"), (1, RasStatus.UNRESPONSIVE, ""),
        (2, RasStatus.ERROR, "Remote process error"), (3, RasStatus.RUNNING, ""),
    ]  # fmt: skip
    assert [(m.host, m.pid, m.device) for m in report.lost] == [("127.0.0.1", 1968, 0)]


@pytest.mark.parametrize("form", ["whole", "of Windows", "without line breaks", "without indentation"])
def test_other_forms_of_the_same_report_say_the_same(form: str) -> None:
    """NCCL 2.29 and newer write the comma; tools that keep reports write them anew."""
    whole = ras_json.repaired(KILLED)
    forms = {
        "whole": whole,
        "of Windows": KILLED.replace("\n", "\r\n"),
        "without line breaks": json.dumps(json.loads(whole)),
        "without indentation": "\n".join(line.strip() for line in KILLED.splitlines()),
    }
    assert ras_json.recognises_text(forms[form])
    assert ras_json.read_text(forms[form]) == ras_json.read_text(KILLED)


def test_a_recorded_report_in_which_nccl_refused_an_operation() -> None:
    """Rank 1 of four had left an all_reduce out, and rank 2 was sent what it did not expect."""
    report = ras_json.read_text((RECORDED / "ras-2.28.9-skipped.txt").read_text())
    assert [m.error for m in report.communicators[0].members] == ["", "", "Invalid usage", ""]
    assert {sum(m.launched.values()) for m in report.communicators[0].members} == {95}


def test_repairing_leaves_texts_alone_and_takes_commas_out() -> None:
    assert ras_json.repaired('{"a": "b\\n c",\n}') == '{"a": "b\\n c"\n}'


@pytest.mark.parametrize(
    "wrong", [{}, {"communicators": 3}, {"communicators": [3]}, {"communicators": [{"ranks": [{"rank": -1}]}]}]
)
def test_json_that_is_no_report_is_refused(wrong: object) -> None:
    with refused("damaged-nccl-report", UnreadableEvidence):
        ras_json.read(wrong)
