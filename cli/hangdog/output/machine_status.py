"""Where one machine stands now, and what to do: the first of several answers that applies, the gravest first."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hangdog.evidence.machine_facts import Accusation, MachineFacts
from hangdog.output.times import ago, local_time
from hangdog_models.actions.by_hand import NO_SCHEDULER, isolating
from hangdog_models.actions.caps import Mode
from hangdog_models.findings import Impact
from hangdog_models.incident import Incident
from hangdog_models.machine_history import Conviction
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import Kind
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.incidents import ActionLine

#: States of an act under which the machine is out of use, or is on its way there.
ISOLATED = ("pending", "marked", "done", "releasing")
#: States in which a person has decided that what an incident said of the machine is over.
SETTLED = ("dismissed", "released")
#: What checks find that speaks against the machine, gravest first, with what is to be done.
SICK = {
    Impact.CONVICTS: "take it out of use, whatever the stacks say: {code} is no state to train in",
    Impact.RESET: "reset {device} while no job runs there: {code}",
    Impact.SUSPECTS: "test it when no job runs there: hangdog test run --machines {machine}",
}


class MachineState(StrEnum):
    """The answer in a word."""

    OUT = "out of use"
    CONVICTED = "convicted"
    SUSPECTED = "suspected"
    SICK = "sick"  # by its own checks
    LOST = "lost"  # its agent fell silent
    OPEN = "open"  # an incident of a job there has no verdict yet
    CLEAR = "clear"


#: Exit statuses, as of a verdict: something speaks against it, it is not decided, nothing does.
STATUSES = {MachineState.CLEAR: 0, MachineState.OPEN: 2, MachineState.LOST: 2}


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The answer, in a word and in a sentence; by which incident; why; and what to do now."""

    state: MachineState
    says: str
    next_steps: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    incident: str = ""
    probability: float | None = None

    @property
    def exit_code(self) -> int:
        return STATUSES.get(self.state, 1)


def assess(facts: MachineFacts) -> MachineStatus:
    """Where the machine stands."""
    answers = (_isolated, _tested, _accused, _sick, _lost, _open)
    return next((found for answer in answers if (found := answer(facts)) is not None), _clear(facts))


def _isolated(facts: MachineFacts) -> MachineStatus | None:
    act = facts.actions[0] if facts.actions else None
    if act is None or act.state not in ISOLATED:
        return None
    doing = {"pending": "being taken out, ", "releasing": "being brought back, "}.get(act.state, "")
    reasons = tuple(reason for one in facts.accusations if one.incident.id == act.incident for reason in _reasons(one))
    do = [f"hangdog test run --machines {_quoted(facts.machine)}    # test it, while nothing runs there"]
    do += [f"hangdog release {_quoted(facts.machine)}    # bring it back, once it is right"]
    if act.state in ("pending", "releasing"):
        do = ["hangdog actions    # wait until that is done"]
    says = f"{doing}since {local_time(act.changed)}, by incident {act.incident} of job {printable(act.job)}"
    return MachineStatus(MachineState.OUT, says, tuple(do), reasons or _messages(act), act.incident)


def _tested(facts: MachineFacts) -> MachineStatus | None:
    one = convicted_now(facts)
    if one is None:
        return None
    part = f"its {printable(one.part)} " if one.part else ""
    says = f"{part}by the tests of campaign {one.campaign}, {local_time(one.at)}"
    do = ("take it out of use, and have it repaired", f"hangdog machines {_quoted(facts.machine)}    # what was tested")
    reasons = (
        f"{printable(test.test)}: {printable(test.says)}" for test in facts.test_history.tests if test.outcome == "fail"
    )
    return MachineStatus(MachineState.CONVICTED, says, do, tuple(dict.fromkeys(reasons)))


def convicted_now(facts: MachineFacts) -> Conviction | None:
    """The conviction by tests that holds: no later campaign tested the machine, and nobody has brought it back since."""
    latest = facts.test_history.tests[0].campaign if facts.test_history.tests else ""
    back = max((act.changed for act in facts.actions if act.state == "released"), default=0.0)
    held = (one for one in facts.test_history.convictions if one.at > back and latest in ("", one.campaign))
    return max(held, key=lambda one: one.at, default=None)


def _accused(facts: MachineFacts) -> MachineStatus | None:
    for one in facts.accusations:
        act = next((act for act in facts.actions if act.incident == one.incident.id), None)
        if act is None or act.state not in SETTLED:
            return _by_verdict(facts, one, act)
    return None


def _by_verdict(facts: MachineFacts, one: Accusation, act: ActionLine | None) -> MachineStatus:
    entry, incident = one.entry, one.incident
    state = MachineState.CONVICTED if entry.mention == "convicted" else MachineState.SUSPECTED
    among = f", as one of {entry.among} machines" if entry.among > 1 else ""
    says = f"{percent(entry.probability)} sure{among}, by incident {incident.id} of job {printable(incident.job)}, "
    says += local_time(entry.at) + (f" (verdict: {printable(entry.kind)})" if entry.kind != Kind.MACHINE else "")
    do = (*_evict(facts, act, incident, state), f"hangdog show {incident.id}    # the whole verdict")
    return MachineStatus(state, says, do, _reasons(one), incident.id, entry.probability)


def _evict(facts: MachineFacts, act: ActionLine | None, incident: Incident, state: MachineState) -> Iterator[str]:
    if state is MachineState.SUSPECTED:
        yield "leave it in use for now: the verdict is not sure enough to take it out"
        if facts.now is not None and any(local.job == incident.job for local in facts.now.jobs):
            yield f"hangdog snapshot --job {_quoted(incident.job)}    # while it hangs: look again"
        yield f"hangdog test run --incident {incident.id}    # once it has stopped: test"
    elif act is not None and act.state == "waiting" and _acts(facts):
        if facts.breaker:
            yield "hangdog actions --close-breaker    # first: the breaker is open"
        yield f"hangdog approve {incident.id}    # take it out of use"
        yield f"hangdog dismiss {incident.id} --because '...'    # or leave it where it is"
    else:
        why = f"in mode {printable(facts.mode)} the server takes nothing out by itself"
        if act is not None and act.state in ("refused", "failed"):
            why = f"the server's attempt {act.state}: {printable(act.message or act.reason)}"
            why = why.replace("attempt refused", "bounds forbid it")
        yield f"take it out of use by hand: {why}"
        yield from isolating(facts.machine, incident.id, facts.actors, _owner(facts, incident.job)) or (NO_SCHEDULER,)
        if act is not None and act.state == "refused" and _acts(facts):
            yield f"hangdog approve {incident.id}    # have the bounds looked at again"


def _acts(facts: MachineFacts) -> bool:
    """Whether the server does what is approved: in its other modes `approve` is refused. Behind a mode stands what stops it."""
    return facts.mode.partition(" ")[0] in (Mode.APPROVE, Mode.AUTO)


def _owner(facts: MachineFacts, job: str) -> Owner:
    return next((one.owner for one in (facts.now.jobs if facts.now else ()) if one.job == job), UNKNOWN)


def _sick(facts: MachineFacts) -> MachineStatus | None:
    findings = facts.now.findings if facts.now else ()
    order = list(SICK)
    against = sorted((one for one in findings if one.impact in SICK), key=lambda one: order.index(one.impact))
    if not against:
        return None
    do = (
        SICK[one.impact].format(
            code=printable(one.code), device=printable(one.device) or "the device", machine=_quoted(facts.machine)
        )
        for one in against
    )
    says = f"its own checks speak against it: {printable(against[0].code)} ({against[0].impact})"
    reasons = tuple(f"{printable(one.code)}: {printable(one.what)}" for one in against)
    return MachineStatus(MachineState.SICK, says, tuple(dict.fromkeys(do)), reasons)


def _lost(facts: MachineFacts) -> MachineStatus | None:
    now = facts.now
    if now is None or now.connected or now.stopped:
        return None
    says = f"its agent fell silent {ago(now.silent_s)} ago, and no verdict speaks against it"
    return MachineStatus(
        MachineState.LOST, says, ("see whether it is up: a machine that hangs in its kernel looks so",)
    )


def _open(facts: MachineFacts) -> MachineStatus | None:
    if not facts.under_way:
        return None
    one = facts.under_way[0]
    says = f"incident {one.id} of job {printable(one.job)}, which runs on it, has no verdict yet ({one.state})"
    return MachineStatus(MachineState.OPEN, says, (f"hangdog watch {one.id}    # until its verdict",), (), one.id)


def _clear(facts: MachineFacts) -> MachineStatus:
    settled = next((act for act in facts.actions if act.state in SETTLED), None)
    by = f" by {printable(settled.who)}" if settled and settled.who else ""
    after = f"; {settled.state}{by}, {local_time(settled.changed)}" if settled else ""
    return MachineStatus(MachineState.CLEAR, f"nothing speaks against it now{after}", ("nothing",))


def _reasons(one: Accusation) -> tuple[str, ...]:
    return tuple(dict.fromkeys(printable(reason.text) for suspect in one.suspects for reason in suspect.because))


def _messages(act: ActionLine) -> tuple[str, ...]:
    return tuple(printable(text) for text in (act.reason, act.message) if text)


def _quoted(name: str) -> str:
    """A name as a shell takes it; one that cannot be shown as it is cannot be typed either."""
    return shlex.quote(printable(name))
