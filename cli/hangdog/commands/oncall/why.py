"""`hangdog why MACHINE` says in one screen whether a machine is suspected, why, and what to do now."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator

import click
from rich.console import Console

from hangdog.evidence.machine_facts import OVER, MachineFacts, fetch
from hangdog.options import format_option, server_option
from hangdog.output.action_lines import change_text
from hangdog.output.incident_lines import similar, similar_json
from hangdog.output.lines import Line, more, print_line, print_sections
from hangdog.output.machine_status import MachineState, MachineStatus, assess
from hangdog.output.terminal import console_for
from hangdog.output.timeline_lines import timeline_lines
from hangdog.output.times import ago, local_time, utc
from hangdog_models.ranks import format_ranks
from hangdog_models.reading.printable import printable
from hangdog_models.views.answer_text import percent, rank_text
from hangdog_models.views.repeated_tests import alike, times
from hangdog_proto.client.incidents import JobLine
from hangdog_proto.client.server_address import ServerAddress

#: How many of each are shown, so that all of it is one screen; JSON has all that was asked for.
REASONS, EVENTS, JOBS, FINDINGS, LEDGER, TESTS, ACTS = 6, 8, 3, 5, 5, 5, 3
#: The kind of the ledger's lines that tell of a campaign of tests, no verdict.
CAMPAIGN = "diagnosis"
#: What the ledger says, in the order in which it is counted.
WORDS = ("convicted", "suspected", *OVER)
#: Characters of a foreign sentence, and of a name.
SENTENCE, NAMED = 240, 80

#: Colour of the first line. It only repeats the word that stands there.
STYLES = {MachineState.CLEAR: "bold green", MachineState.OPEN: "bold yellow", MachineState.LOST: "bold yellow"}


@click.command("why")
@click.argument("machine")
@format_option
@server_option
@click.pass_context
def command(ctx: click.Context, machine: str, form: str, server: ServerAddress) -> None:
    """Say in one screen whether MACHINE is suspected now, by which incident, how sure, why, and what to do now.

    Below that: earlier verdicts, tests, actions, and what its checks find now.

    Exit status: 0 nothing is known against it, 1 it is suspected, convicted, sick by its own checks or out of use, 2 its
    agent is lost, or an incident of its job has no verdict yet.

    \b
    hangdog why gpu-a17
    hangdog why gpu-a17 --format json | jq -r '.state, .do[]'
    """
    facts = fetch(server, machine)
    status = assess(facts)
    if form == "json":
        click.echo(json.dumps(as_json(facts, status), indent=2))
    else:
        show(facts, status, console_for(sys.stdout))
    ctx.exit(status.exit_code)


def show(facts: MachineFacts, status: MachineStatus, console: Console) -> None:
    """Prints the answer first, then what to do, then what it rests on."""
    headline = f"{printable(facts.machine, NAMED)}: {status.state}, {status.says}"
    print_line(Line(headline), console, STYLES.get(status.state, "bold red"))
    print_line(Line(_now(facts)), console)
    sections = (
        ("do now", (Line(line, "- ") for line in status.next_steps)),
        ("because", _cut(status.reasons, REASONS, "reason")),
        ("what happened when", _timeline(facts)),
        ("found by its checks", _findings(facts)),
        ("acts", _actions(facts)),
        ("verdicts", _mentions(facts)),
        ("seen before", (line for one in facts.accusations[:1] for line in similar(one.similar))),
        ("tests", _tests(facts)),
    )
    print_sections(sections, console)


def _now(facts: MachineFacts) -> str:
    now = facts.now
    if now is None:
        return "no agent speaks for it"
    state = "connected" if now.connected else "stopped" if now.stopped else "lost"
    jobs = "; ".join(
        f"{printable(job.job, NAMED)} ({rank_text(job.ranks, NAMED)}){_how(facts, job.job)}" for job in now.jobs[:JOBS]
    )
    rest = f" and {len(now.jobs) - JOBS} more" if len(now.jobs) > JOBS else ""
    return f"agent {state}, heard {ago(now.silent_s)} ago; runs {jobs or 'no job'}{rest}"


def _how(facts: MachineFacts, job: str) -> str:
    """How a job on it is, as the server says."""
    state = facts.states.get(job)
    return f", which {printable(state.text, SENTENCE)}" if state is not None else ""


def _findings(facts: MachineFacts) -> Iterator[Line]:
    findings = facts.now.findings if facts.now else ()
    for one in findings[:FINDINGS]:
        times = f", {one.times} times" if one.times > 1 else ""
        yield Line(f"{printable(one.code, NAMED)} ({one.impact}{times}): {printable(one.what, SENTENCE)}", "- ")
    yield from more(len(findings) - FINDINGS, "finding")


def _timeline(facts: MachineFacts) -> Iterator[Line]:
    """That of the accusation that counts most: how it began, and what happened last."""
    if facts.accusations:
        now = time.time()  # noqa: TID251  # a command is where the clock is read
        lines = list(timeline_lines(facts.accusations[0].timeline, now))
        yield from lines[: EVENTS // 2]
        yield from lines[max(EVENTS // 2, len(lines) - EVENTS // 2) :]
        yield from more(len(lines) - EVENTS, "event", f"hangdog show {facts.accusations[0].incident.id}")


def _actions(facts: MachineFacts) -> Iterator[Line]:
    for act in facts.actions[:ACTS]:
        detail = f": {printable(words, SENTENCE)}" if (words := change_text(act)) else ""
        by = f" by {printable(act.who, NAMED)}" if act.who else ""
        yield Line(f"{local_time(act.changed)}  {act.state}{by}, incident {act.incident}{detail}", "- ")
    yield from more(len(facts.actions) - ACTS, "act")
    if facts.breaker:
        yield Line(f"the breaker is open: {printable(facts.breaker, SENTENCE)}", "! ")


def _mentions(facts: MachineFacts) -> Iterator[Line]:
    if not facts.mentions:
        return
    counts = Counter(entry.mention for entry in facts.mentions)
    words = [word for word in WORDS if counts[word] or word not in OVER[1:]]
    yield Line(", ".join(f"{counts[word]} {word}" for word in words))
    for entry in facts.mentions[:LEDGER]:
        likely = "" if entry.mention in OVER else f" {percent(entry.probability)}"
        among = f" of {entry.among} machines" if entry.among > 1 and likely else ""
        by = f"{'incident' if entry.job or entry.kind != CAMPAIGN else 'campaign'} {entry.incident}"
        by = f"tests about {by}" if entry.job and entry.kind == CAMPAIGN else by
        of = f" of {printable(entry.job, NAMED)}" if entry.job else ""
        yield Line(f"{local_time(entry.at)}  {entry.mention}{likely}{among}, {by}{of}", "- ")
    yield from more(len(facts.mentions) - LEDGER, "verdict", "hangdog ledger MACHINE")


def _tests(facts: MachineFacts) -> Iterator[Line]:
    past = facts.test_history
    for one in past.convictions[:TESTS]:
        yield Line(f"{local_time(one.at)}  convicted by campaign {one.campaign}: {_part(one.part)}", "! ")
    if past.probation:
        yield Line(f"on probation until {local_time(past.probation)}: campaigns suspect it more than others")
    tests = alike(past.tests)
    for test, many in tests[:TESTS]:
        others = f" with {printable(', '.join(test.others), NAMED)}" if test.others else ""
        says = f": {printable(test.says, SENTENCE)}" if test.says and test.outcome != "pass" else ""
        yield Line(
            f"{local_time(test.at)}  {times(many)}{test.outcome}, {printable(test.test, NAMED)}{others}{says}", "- "
        )
    yield from more(len(tests) - TESTS, "test", "hangdog machines MACHINE")


def _part(part: str) -> str:
    return printable(part, NAMED) if part else "the machine"


def _cut(sentences: tuple[str, ...], most: int, what: str) -> Iterator[Line]:
    yield from (Line(printable(sentence, SENTENCE), "- ") for sentence in sentences[:most])
    yield from more(len(sentences) - most, what)


def _job_json(facts: MachineFacts, job: JobLine) -> dict[str, object]:
    state = facts.states.get(job.job)
    return {
        "job": job.job,
        "ranks": format_ranks(job.ranks),
        "state": str(state.condition) if state else None,
        "says": state.text if state else None,
    }


def as_json(facts: MachineFacts, status: MachineStatus) -> dict[str, object]:
    """All of it as JSON; `incident` and `probability` are null where no verdict stands behind the answer."""
    now, past = facts.now, facts.test_history
    return {
        "schema": "hangdog.why/1",
        "machine": facts.machine,
        "state": str(status.state),
        "says": status.says,
        "incident": status.incident or None,
        "probability": None if status.probability is None else round(status.probability, 3),
        "reasons": list(status.reasons),
        "do": list(status.next_steps),
        "connected": bool(now and now.connected),
        "silent_s": round(now.silent_s, 1) if now else None,
        "jobs": [_job_json(facts, job) for job in (now.jobs if now else ())],
        "findings": [
            {"code": one.code, "impact": str(one.impact), "what": one.what, "device": one.device or None}
            for one in (now.findings if now else ())
        ],
        "mode": facts.mode,
        "breaker": facts.breaker or None,
        "acts": [
            {
                "incident": act.incident,
                "state": act.state,
                "changed": utc(act.changed),
                "who": act.who,
                "message": act.message,
            }
            for act in facts.actions
        ],
        "verdicts": [
            {
                "at": utc(one.at),
                "mention": one.mention,
                "probability": round(one.probability, 3),
                "among": one.among,
                "incident": one.incident,
                "job": one.job,
            }
            for one in facts.mentions
        ],
        "seen_before": [one for found in facts.accusations[:1] for one in similar_json(found.similar)],
        "convictions": [
            {"at": utc(one.at), "campaign": one.campaign, "part": one.part or None} for one in past.convictions
        ],
        "probation": utc(past.probation) if past.probation else None,
        "tests": [
            {"at": utc(one.at), "campaign": one.campaign, "test": one.test, "outcome": one.outcome, "says": one.says}
            for one in past.tests
        ],
    }
