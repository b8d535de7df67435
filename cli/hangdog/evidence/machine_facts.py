"""Everything a server knows of one machine, asked for together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from hangdog_models.errors import WrongUse
from hangdog_models.incident import UNDER_WAY, Incident, IncidentState
from hangdog_models.machine_history import MachineTests, VerdictMention
from hangdog_models.past_incidents import NOT_SEEN, SimilarIncidents
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import Suspect, Verdict
from hangdog_models.views.answer_text import LEAST, RECENT_S, accuses
from hangdog_models.views.job_state import JobState
from hangdog_models.views.timeline import NOTHING, IncidentTimeline
from hangdog_proto.client.campaigns import CampaignClient
from hangdog_proto.client.incidents import ActionLine, MachineLine
from hangdog_proto.client.server_address import ServerAddress

#: Lines of the ledger and tests that are asked for; jobs whose incidents are; incidents of each; acts, of all machines.
MENTIONS, JOBS, INCIDENTS, ACTS = 50, 8, 20, 1000
#: What the ledger says of a machine that nothing in the incident speaks against any more.
OVER = ("cleared", "taken back")
#: Characters of a name in a sentence.
NAMED = 80


@dataclass(frozen=True, slots=True)
class Accusation:
    """The latest verdict upon a job names the machine; `suspects` are its hypotheses with the machine, likeliest first.

    `timeline` is what happened when, from the last progress of the job, `similar` are earlier incidents of its kind.
    """

    incident: Incident
    entry: VerdictMention
    suspects: tuple[Suspect, ...]
    timeline: IncidentTimeline = NOTHING
    similar: SimilarIncidents = NOT_SEEN


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """`now` is None where no agent spoke for it lately. All lists are newest first; `mode` is how far the server acts.

    `states` is how each job is that the server knows. `actors` are those by which the server acts.
    """

    machine: str
    now: MachineLine | None
    accusations: tuple[Accusation, ...]
    under_way: tuple[Incident, ...]
    mentions: tuple[VerdictMention, ...]
    test_history: MachineTests
    actions: tuple[ActionLine, ...]
    mode: str
    breaker: str
    states: Mapping[str, JobState] = field(default_factory=dict)
    actors: tuple[str, ...] = ()


def fetch(server: ServerAddress, machine: str) -> MachineFacts:
    """The facts of a machine, by its name or that of a part in it; raises WrongUse where nobody ever heard of it."""
    with CampaignClient(server) as client:
        test_history = client.test_history(machine, MENTIONS)
        if machine in test_history.parts and test_history.tests:  # the UUID of a GPU: what holds it is meant
            machine = test_history.tests[0].machine
        machines, states = client.machines_and_jobs()
        now = next((one for one in machines if one.name == machine), None)
        mentions, recent = client.ledger(machine, 0.0, MENTIONS), client.ledger(machine, RECENT_S, MENTIONS)
        done = client.actions("", ACTS)
        actions = tuple(one for one in done.lines if one.machine == machine)
        if now is None and not (mentions or test_history.tests or test_history.convictions or actions):
            raise _unknown(machine, [one.name for one in machines])
        jobs = dict.fromkeys([*(one.job for one in (now.jobs if now else ())), *(one.job for one in recent if one.job)])
        accusations, under_way = [], []
        for job in list(jobs)[:JOBS]:
            incidents = client.incidents(job, INCIDENTS)
            if now and any(one.job == job for one in now.jobs):
                under_way += [one for one in incidents if one.state in UNDER_WAY]
            newest = next((one for one in incidents if one.state == IncidentState.JUDGED), None)
            entry = next((one for one in recent if newest and one.incident == newest.id), None)
            if newest and entry and entry.mention not in OVER and entry.probability >= LEAST:
                record = client.record(newest.id)
                if record.verdict is not None and accuses(record.verdict.kind):
                    named = _naming(record.verdict, machine)
                    accusations.append(Accusation(newest, entry, named, record.timeline, record.similar))
    accusations.sort(key=lambda one: (one.entry.mention != "convicted", -one.entry.probability))
    return MachineFacts(
        machine, now, tuple(accusations), tuple(under_way), mentions, test_history, actions, done.mode, done.breaker,
        states, done.actors,
    )  # fmt: skip


def _naming(verdict: Verdict, machine: str) -> tuple[Suspect, ...]:
    named = (suspect for suspect in verdict.suspects if machine in suspect.machines)
    return tuple(sorted(named, key=lambda one: -one.probability))


def _unknown(machine: str, known: Iterable[str]) -> WrongUse:
    near = get_close_matches(machine[:NAMED], list(known), 3, 0.6)
    meant = f"is it {' or '.join(printable(one, NAMED) for one in near)}? " if near else ""
    hint = f"{meant}`hangdog machines` lists those with an agent, `hangdog ledger` those that verdicts named"
    return WrongUse(f"nothing is known of a machine called {printable(machine, NAMED)}", hint, code="unknown-machine")
