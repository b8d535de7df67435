"""What the page of an incident shows of each group: who launched, began and completed what."""

from dataclasses import replace

from hangdog_models.diagnosis.judge import investigate
from hangdog_models.views import group_progress
from support.cases.rings import hung
from support.cases.stories import job, look, snapshot


def test_a_communicator_that_rings_tell_of_is_shown_with_what_devices_have_begun() -> None:
    told = replace(snapshot(look({"0-3": "item"})), progress=hung(2))
    (group,) = group_progress.of(investigate(told, job(dp=4, per_machine=1))).groups
    assert (group.name, group.stuck) == ("0000000000000abc", True)
    assert [(at.ranks, at.completed, at.started, at.enqueued, at.operation) for at in group.at] == [
        (((2, 2),), 6, 6, 7, "nccl:all_reduce"),
        (((0, 1), (3, 3)), 6, 7, 7, "nccl:all_reduce"),
    ]
