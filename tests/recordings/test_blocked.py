"""Real jobs with a rank in a call of plain Python that does not return: it is named, and no machine is evicted for it.

`python bench/blocked record` makes the recordings anew, `python bench/blocked judge` prints what is made of each.
"""

import pytest

from blocked.calls import CALLS
from blocked.verdicts import RECORDINGS, judge, wrong
from hangdog_models.verdict import Act, Kind


@pytest.mark.parametrize("call", CALLS)
def test_who_blocks_is_named_and_no_machine_is_evicted(call: str) -> None:
    verdict = judge(call)
    assert not wrong(call, verdict), verdict.because


def test_a_label_is_of_the_program_and_not_of_pythons_library() -> None:
    verdict = judge("aio")
    assert "asleep in aio" in verdict.because[0].text


@pytest.mark.parametrize("call", ["poll_file", "shm_wait"])
def test_of_who_sleeps_by_its_own_timer_time_and_again_the_code_is_looked_at_and_no_machine_tested(call: str) -> None:
    verdict = judge(call)
    assert verdict.kind is Kind.SLOW
    assert {step.do for step in verdict.next} == {Act.COLLECT, Act.FIX_CODE}
    assert "some minutes later" in next(step.why for step in verdict.next if step.do is Act.COLLECT)


def test_of_who_computes_for_long_the_machine_may_be_tested() -> None:
    assert Act.TEST in {step.do for step in judge("numpy_loop").next}


def test_each_recording_is_of_a_call_and_small() -> None:
    found = {path.name.removesuffix(".tar.gz"): path.stat().st_size for path in RECORDINGS.glob("*.tar.gz")}
    assert found.keys() == CALLS.keys()
    assert sum(found.values()) < 1 << 19
