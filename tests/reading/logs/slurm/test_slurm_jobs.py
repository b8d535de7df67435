"""`scontrol show job`: how a job ended, and which machine failed where it had only one."""

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.logs.slurm.slurm_text import read, recognises

JOB = """JobId={id} JobName=llama
   UserId=a(1000) GroupId=a(1000) MCS_label=N/A
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:9
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList={nodes}
   BatchHost=gpu-1
"""
#: https://github.com/tdegeus/GooseSLURM/issues/32
RUNNING = """scontrol show job 10804568
JobId=10804568 JobName=velocity_python_PinAndTrigger.py-00
   UserId=tdegeus(177478) GroupId=pcsl(10532) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   StartTime=2021-08-09T14:30:18 EndTime=2021-08-11T14:30:18 Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=f006
   BatchHost=f006
"""
#: https://github.com/mknoxnv/ubuntu-slurm/issues/5
FAILED = """JobId=7 JobName=start.sh
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
   NodeList=asus
"""


def job(state: str, nodes: str, number: int = 7, reason: str = "None") -> str:
    return JOB.format(id=number, state=state, reason=reason, nodes=nodes)


@pytest.mark.parametrize("text", [RUNNING, FAILED, job("PENDING", "(null)"), job("COMPLETED", "gpu-1")])
def test_a_job_that_runs_or_failed_by_itself_says_nothing(text: str) -> None:
    assert recognises(text)
    assert read(text) == ()


@pytest.mark.parametrize(
    ("nodes", "code", "impact", "machine"),
    [
        ("gpu-3", "node failure", Impact.RESET, "gpu-3"),
        ("gpu-[1-4]", "node failure somewhere", Impact.VICTIM, ""),
        ("(null)", "node failure somewhere", Impact.VICTIM, ""),
    ],
)
def test_the_machine_that_failed_is_named_if_the_job_had_no_other(
    nodes: str, code: str, impact: Impact, machine: str
) -> None:
    (found,) = read(job("NODE_FAIL", nodes, reason="NodeDown"))
    assert (found.code, found.impact, found.machine) == (code, impact, machine)


def test_each_job_of_a_list_counts_also_where_each_is_one_line() -> None:
    text = job("TIMEOUT", "gpu-1") + job("OUT_OF_MEMORY", "gpu-2", 8)
    one_line = "".join(
        " ".join(job(state, "gpu-1", number).split()) + "\n"
        for number, state in enumerate(("TIMEOUT", "OUT_OF_MEMORY"))
    )
    for form in (text, one_line):
        assert recognises(form)
        assert [found.code for found in read(form)] == ["time limit", "host out of memory"]
