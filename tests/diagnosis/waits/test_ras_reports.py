"""What one report of NCCL RAS proves, and what not: made-up reports in the form in which NCCL prints them."""

import re

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.process_groups import with_seen
from hangdog_models.reading.collectives import ras_text
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Act, Kind, StallCause, Verdict
from support.cases.reasons import codes, words_of

HEAD = """\
NCCL version 2.29.2 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
{nodes:7d}  {per:9d}            1  {all:9d}  {all:7d}

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1  {nodes:8d}  {per:8d}  {all:8d}  {all:8d}   RUNNING  {errors}

Errors
======

"""
WARNINGS = "\nWarnings\n========\n\n"


def differs(nodes: int, per: int, *lines: str, kind: str = "AllReduce") -> str:
    block = f"#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different {kind} operation counts\n"
    head = HEAD.format(nodes=nodes, per=per, all=nodes * per, errors="MISMATCH")
    return head + WARNINGS + block + "".join(f"  {line}\n" for line in lines) + "\n"


def silent(nodes: int, per: int, *places: tuple[int, int]) -> str:
    head = HEAD.format(nodes=nodes, per=per, all=nodes * per, errors="INCOMPLETE")
    lost = [f"Process {100 + rank} on node 10.0.0.{rank // per} managing GPU {gpu}" for rank, gpu in places]
    ranks = [
        f"Rank {rank} -- GPU {gpu} managed by process {100 + rank} on node 10.0.0.{rank // per}" for rank, gpu in places
    ]
    many = len(places)
    return (
        f"{head}INCOMPLETE\n  Missing communicator data from {many} job process{'es' if many > 1 else ''}\n"
        + "".join(f"  {line}\n" for line in lost)
        + f"\n#0-0 (00000000000000ab) INCOMPLETE\n  Missing communicator data from {many} ranks\n"
        + "".join(f"  {line}\n" for line in ranks)
        + WARNINGS
    )


def judged(*texts: str, stalled_s: float | None = None, layout: Layout | None = None) -> Verdict:
    """The verdict on reports alone, of a job of which nothing is declared."""
    reports = tuple(report for text in texts for report in ras_text.read(text))
    topology, _ = build(with_seen(layout or Layout(), (), reports), None)
    return diagnose(Snapshot(job=Job(stalled_s=stalled_s), rounds=(), interval_s=1.0, ras=reports), topology)


def because(verdict: Verdict) -> str:
    return "\n".join(reason.text for reason in verdict.because)


def counts(verdict: Verdict) -> str:
    """What it says of the counts."""
    return words_of(verdict.because, "ras-counts")


PAIR = differs(
    2,
    1,
    "Rank 1 has launched up to operation 88686 -- GPU 0 managed by process 11 on node 10.0.0.8",
    "Rank 0 has launched up to operation 88685 -- GPU 0 managed by process 10 on node 10.0.0.7",
    kind="AllGather",
)
QUOTED = PAIR.replace(" -- GPU 0 managed by process 11 on node 10.0.0.8", "").replace(
    " -- GPU 0 managed by process 10 on node 10.0.0.7", ""
)
LATE = differs(
    2,
    4,
    "7 ranks have launched up to operation 64",
    "Rank 7 has launched up to operation 60 -- GPU 3 managed by process 17 on node 10.0.0.1",
)


@pytest.mark.parametrize("text", [PAIR, QUOTED], ids=["as NCCL prints it", "as it is quoted"])
def test_of_two_ranks_each_has_a_line_of_its_own(text: str) -> None:
    (report,) = ras_text.read(text)
    (communicator,) = report.communicators
    assert communicator.classes == ((88686, 1), (88685, 1)) and communicator.kind == "AllGather"
    verdict = judged(text)
    assert re.search(r"\brank 0 .*behind.* AllGather 88685\b.*\brank 1 .*\b88686\b", counts(verdict))
    assert "names none" not in because(verdict)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == (0,)


@pytest.mark.parametrize("behind", [88685, 88600])
def test_of_two_ranks_the_late_one_is_awaited_once_two_reports_agree(behind: int) -> None:
    verdict = judged(*[PAIR.replace("88685", str(behind))] * 2)
    assert verdict.culprit is not None and verdict.culprit.ranks == (0,) and verdict.culprit.probability > 0.5
    assert not verdict.evict.machines


def test_of_ranks_that_all_differ_the_last_is_named_first() -> None:
    lines = [
        f"Rank {rank} has launched up to operation {count} -- GPU 0 managed by process 1{rank} on node 10.0.0.{rank}"
        for rank, count in ((1, 911), (2, 890), (3, 872), (0, 860))
    ]
    verdict = judged(differs(4, 1, *lines))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects and not verdict.evict.machines
    assert verdict.culprit is not None and (verdict.culprit.ranks, verdict.culprit.probability < 0.5) == ((0,), True)
    assert re.search(r"\brank 0 .*behind.* AllReduce 860\b.*\brank 1 .*\b911\b", counts(verdict))


def test_one_report_names_who_is_late_and_leaves_the_cause_open() -> None:
    """NVIDIA's guide: such a difference is normal in a job at work, ask again."""
    verdict = judged(LATE)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == (7,) and verdict.culprit.probability < 0.5
    assert verdict.causes[StallCause.MACHINE] < 0.4
    assert "seen-once" in codes(verdict.because)
    assert verdict.next[0].do is Act.COLLECT and "second report of NCCL RAS" in verdict.next[0].why


def test_two_reports_that_agree_or_a_stall_that_is_stated_show_more() -> None:
    once = judged(LATE).culprit
    for more in (judged(LATE, LATE), judged(LATE, stalled_s=1800.0)):
        assert more.culprit is not None and once is not None
        assert more.culprit.ranks == (7,) and more.culprit.probability > once.probability + 0.2
        assert "seen-once" not in codes(more.because)


def test_who_is_ahead_is_no_straggler() -> None:
    lines = [f"Rank {rank} -- GPU {rank % 8} managed by process 3{rank} on node 10.0.0.1" for rank in (12, 13)]
    ahead = differs(
        4, 8, "30 ranks have launched up to operation 640", "2 ranks have launched up to operation 641", *lines
    )
    verdict = judged(ahead)
    assert re.search(r"\branks 12-13 .*ahead.* AllReduce 641\b.* 30 .*\b640\b", counts(verdict))
    assert verdict.culprit is None and not verdict.suspects and verdict.kind is Kind.UNDETERMINED


def test_a_mismatch_whose_lines_are_cut_off_is_not_taken_for_none() -> None:
    cut = HEAD.format(nodes=2, per=4, all=8, errors="MISMATCH") + WARNINGS
    verdict = judged(cut)
    assert "MISMATCH of 1 communicator" in counts(verdict) and "was not read" in counts(verdict)
    assert "names none" not in because(verdict)


def test_states_that_differ_are_no_counts_that_were_not_read() -> None:
    text = differs(2, 4, "4 ranks have status RUNNING", "4 ranks have status FINALIZE")
    assert ras_text.read(text.replace("AllReduce operation counts", "status"))[0].untold == 0


def test_all_that_launched_alike_are_said_to_have() -> None:
    verdict = judged(HEAD.format(nodes=2, per=4, all=8, errors="OK") + WARNINGS)
    assert "all 8 ranks" in counts(verdict)
    assert verdict.kind is Kind.UNDETERMINED


def test_one_silent_process_of_a_node_convicts_no_machine() -> None:
    """The report lists only the silent ranks of a node: how many it runs is said by its summary."""
    for places in (((5, 1),), ((4, 0), (5, 1))):
        verdict = judged(silent(2, 4, *places))
        assert not verdict.evict.machines
        assert verdict.causes[StallCause.MACHINE] < 0.7


def test_a_node_none_of_whose_processes_answers_is_convicted() -> None:
    verdict = judged(silent(4, 2, (4, 0), (5, 1)))
    assert verdict.evict.machines == ("10.0.0.2",)


def test_silence_alone_does_not_tell_the_machine_from_the_program() -> None:
    verdict = judged(silent(2, 4, (5, 1)))
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (5,) and verdict.culprit.probability > 0.9
    assert 0.5 < verdict.causes[StallCause.MACHINE] < 0.7 and verdict.causes[StallCause.SOFTWARE] > 0.3


def test_a_report_that_cannot_be_right_convicts_nobody() -> None:
    """RAS of NCCL 2.27.3 told of communicators of no rank (NVIDIA/nccl#1762)."""
    row = "    1         4         0         0         0         0    NOCOMM  INCOMPLETE,MISMATCH\n"
    text = silent(2, 4, (5, 1)).replace("\nErrors\n", row + "\nErrors\n", 1)
    verdict = judged(text)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.causes[StallCause.MACHINE] < 0.5
    assert "ras-doubtful" in codes(verdict.because)


def test_numbers_in_a_small_communicator_are_no_ranks_of_the_job() -> None:
    """Ten processes in communicators of two: nothing tells which rank of the job the silent one is."""
    summary = (
        "  Nodes  Processes         GPUs\n          per node  per process\n      1          8            1\n"
        "      1          2            1\n\n  Nodes  Processes         GPUs\n(total)    (total)      (total)\n"
        "      2         10           10\n\nThe outlier node:\n  Node 10.0.0.9 running processes 604,635\n"
    )
    text = (
        f"Job summary\n===========\n\n{summary}\nCommunicators... (0.00s)\n=============\n\n"
        "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n\nErrors\n======\n\n"
        "INCOMPLETE\n  Missing communicator data from 1 job process\n  Process 604 on node 10.0.0.9 managing GPU 0\n\n"
        "#0-0 (00000000000000cd) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 1 -- GPU 0 managed by process 604 on node 10.0.0.9\n"
    )
    (report,) = ras_text.read(text)
    assert (report.gpus, report.processes) == (10, {"": 8, "10.0.0.9": 2})
    verdict = judged(text)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects and verdict.coverage.expected == 10
    assert verdict.because[0].code == "silent-to-ras"
    assert verdict.because[0].text.startswith("process 604 on 10.0.0.9 ")
    assert "process 604 on 10.0.0.9" in verdict.next[0].why


def test_several_kinds_that_differ_are_not_added_up() -> None:
    two = differs(
        2, 4, "7 ranks have launched up to operation 9",
        "Rank 2 has launched up to operation 8 -- GPU 2 managed by process 12 on node 10.0.0.0",
    ) + (
        "  Communicator ranks have different AllGather operation counts\n  7 ranks have launched up to operation 500\n"
        "  Rank 2 has launched up to operation 400 -- GPU 2 managed by process 12 on node 10.0.0.0\n"
    )  # fmt: skip
    (report,) = ras_text.read(two)
    (communicator,) = report.communicators
    assert (communicator.kind, communicator.classes) == ("AllGather", ((500, 7), (400, 1)))
    assert communicator.members[0].launched == {"AllGather": 400}
    assert "AllGather 400, 7 others up to 500" in because(judged(two))


def test_the_summary_of_the_next_report_is_not_the_last_ones() -> None:
    small, large = (HEAD.format(nodes=n, per=4, all=4 * n, errors="OK") for n in (1, 2))
    assert [report.gpus for report in ras_text.read(small + large)] == [4, 8]
    cut = large + "Job summary\n===========\n"
    assert [report.gpus for report in ras_text.read(cut)] == [8]


def test_a_hostile_report_is_read_in_linear_time() -> None:
    lines = ["Rank 1 has launched" + " -- x" * 200, "Node " + "a" * 900 + " running processes 1," + "1," * 300]
    text = HEAD.format(nodes=2, per=4, all=8, errors="MISMATCH") + "#0-0 (ab) MISMATCH\n" + "\n".join(lines * 2000)
    assert ras_text.read(text)[0].gpus == 8
