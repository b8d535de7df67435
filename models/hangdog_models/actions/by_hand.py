"""What people type where hangdog does not act: the scheduler's own command that takes a machine out of use."""

import shlex
from collections.abc import Collection, Sequence

from hangdog_models.counts import named
from hangdog_models.incident import Incident
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import Act, Verdict

#: The schedulers whose commands are known, as `actors` of the --acting file names them.
SLURM, KUBERNETES = "slurm", "kubernetes"
#: More machines than that are not named one by one: a range like `gpu-a[01-16]` is what people type then.
_NAMED = 8
#: By which of them a job's processes were started, as the kernel of its machines says.
_STARTED_BY = {OwnerKind.SLURM: SLURM, OwnerKind.PODS: KUBERNETES}


def schedulers(actors: Collection[str], owner: Owner = UNKNOWN) -> tuple[str, ...]:
    """The schedulers of a job: those that the server acts by, else the one that started it, else both.

    None where the kernel says that no scheduler started it, and the server acts by none.
    """
    named = tuple(one for one in (SLURM, KUBERNETES) if one in actors)
    if named:
        return named
    if owner.kind is OwnerKind.USER:
        return ()
    return (_STARTED_BY[owner.kind],) if owner.kind in _STARTED_BY else (SLURM, KUBERNETES)


def isolating(machine: str, incident: str, actors: Collection[str], owner: Owner = UNKNOWN) -> tuple[str, ...]:
    """The commands that take a machine out of use, each as a shell takes it; none where no scheduler is known.

    Of several one is meant: each says of which scheduler it is.
    """
    name = shlex.quote(printable(machine))
    reason = shlex.quote(f"hangdog: {printable(incident)}")
    commands = {
        SLURM: f"scontrol update nodename={name} state=drain reason={reason}",
        KUBERNETES: f"kubectl cordon {name}",
    }
    found = schedulers(actors, owner)
    if len(found) == 1:
        return (commands[found[0]],)
    return tuple(f"{commands[one]}    # {one.capitalize()}" for one in found)


#: Said where no scheduler is known.
NO_SCHEDULER = "start its job again without it: no scheduler started the job"


def command_to_collect(job: str) -> str:
    """The command that collects what a verdict asks for, while the job still stands."""
    return f"hangdog snapshot --job {shlex.quote(printable(job))}"


def command_to_capture(machines: Collection[str]) -> str:
    """The same where there is no server: each machine captures itself, and the verdict is printed. No machines: not known."""
    named_each = len(machines) <= _NAMED and not any(one.startswith("-") for one in machines)  # an option is no host
    hosts = " ".join(shlex.quote(printable(one)) for one in machines) if named_each else ""
    return f"hangdog capture --over ssh {hosts or 'HOST...'}"


def running_on(job: str, machines: Sequence[str]) -> str:
    """Said before machines are tested on which a job still runs: such a machine refuses."""
    refuse = "it refuses" if len(machines) == 1 else "they refuse"
    return (
        f"{printable(job)} still runs on {printable(named(machines))}: {refuse} tests until it has ended, or was ended"
    )


def collects(verdict: Verdict) -> bool:
    """Whether a verdict asks for more evidence."""
    return any(step.do is Act.COLLECT for step in verdict.next)


def stands(incident: Incident) -> bool:
    """Whether a job may still stand as its incident says: there is something to look at again."""
    return bool(incident.job) and not (incident.went_on_s or incident.settled or incident.response.closed)
