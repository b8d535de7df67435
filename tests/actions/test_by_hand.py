"""What people type where hangdog does not act: a command of the job's own scheduler, as a shell takes it."""

from dataclasses import replace

import pytest

from hangdog_models.actions.by_hand import command_to_capture, command_to_collect, isolating, running_on, stands
from hangdog_models.incident import Incident, IncidentResponse, ResponseState, SettledCause
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind

SLURM = "scontrol update nodename=gpu-a17 state=drain reason='hangdog: 3fa9'"


@pytest.mark.parametrize(
    ("actors", "owner", "typed"),
    [
        (("slurm", "alertmanager"), UNKNOWN, (SLURM,)),
        (("kubernetes",), Owner(OwnerKind.SLURM, "7", 1), ("kubectl cordon gpu-a17",)),
        (("none",), Owner(OwnerKind.SLURM, "7", 1), (SLURM,)),
        (("none",), Owner(OwnerKind.PODS, "1", 1), ("kubectl cordon gpu-a17",)),
        (("none",), Owner(OwnerKind.USER, "1", 1), ()),
        (("none",), UNKNOWN, (f"{SLURM}    # Slurm", "kubectl cordon gpu-a17    # Kubernetes")),
    ],
)
def test_a_machine_is_isolated_by_the_scheduler_of_its_job(
    actors: tuple[str, ...], owner: Owner, typed: tuple[str, ...]
) -> None:
    assert isolating("gpu-a17", "3fa9", actors, owner) == typed


def test_names_that_machines_chose_are_quoted() -> None:
    assert isolating("a; rm -rf /", "3fa9", ("kubernetes",)) == ("kubectl cordon 'a; rm -rf /'",)
    assert command_to_collect("run $(x)") == "hangdog snapshot --job 'run $(x)'"


def test_without_a_server_each_machine_captures_itself() -> None:
    assert command_to_capture(["node-0", "x;y"]) == "hangdog capture --over ssh node-0 'x;y'"
    for nobody in ([], [f"n{at}" for at in range(9)], ["a", "-oProxyCommand=x"]):
        assert command_to_capture(nobody) == "hangdog capture --over ssh HOST..."


def test_it_is_said_which_machines_refuse_tests() -> None:
    said = running_on("llama", ("a",))
    assert said.startswith("llama ") and " a: it refuses" in said
    assert "a, b: they refuse" in running_on("llama", ("b", "a"))


def test_a_job_is_looked_at_again_only_while_it_may_stand() -> None:
    incident = Incident("3fa9", "llama", 0.0)
    assert stands(incident)
    dismissed = IncidentResponse(ResponseState.DISMISSED, "ada")
    for over in (
        replace(incident, went_on_s=9.0), replace(incident, settled=SettledCause("software")),
        replace(incident, response=dismissed), replace(incident, job=""),
    ):  # fmt: skip
        assert not stands(over)
