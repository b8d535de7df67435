"""Prints what a replay found: a table by framework and phase, each alarm with its reason, and what may be concluded from none."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict

from hangdog_models.verdict import Kind
from healthy.replay import Alarm, Frozen, Outcome

#: Verdicts that name a machine, or a group of machines.
NAMING = (Kind.MACHINE, Kind.GROUP)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """All that was found."""
    return json.dumps({"summary": summary(outcomes), "frameworks": [asdict(one) for one in outcomes]}, indent=1)


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The figures of all frameworks together."""
    hours = sum(sum(one.seconds.values()) for one in outcomes) / 3600.0
    alarms = [alarm for one in outcomes for alarm in one.alarms]
    incidents = sum(not alarm.again for alarm in alarms)
    decisions = sum(bool(alarm.evicted) for alarm in alarms)
    return {
        "hours": hours,
        "runs": sum(one.lives for one in outcomes),
        "incidents": incidents,
        "looks": len(alarms),
        "incidents_per_100_h": 100.0 * incidents / hours if hours else 0.0,
        "named_a_machine": sum(alarm.verdict in NAMING for alarm in alarms),
        "decisions": decisions,
        # of events that did not happen in n hours: at most 3 / n an hour, in 95 of 100 cases
        "decisions_per_100_h_at_most": 300.0 / hours if hours and not decisions else float("nan"),
    }


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """The table by framework and phase, then the reasons, then the summary."""
    lines = [
        "| framework | phase | hours | incidents | in 100 h | names a machine | evicts | a hang in it is suspected after s |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for outcome in outcomes:
        for phase, seconds in sorted(outcome.seconds.items()):
            alarms = [alarm for alarm in outcome.alarms if alarm.phase == phase]
            hours, opened = seconds / 3600.0, sum(not alarm.again for alarm in alarms)
            lines.append(
                f"| {outcome.framework} | {phase} | {hours:.1f} | {opened} | {100.0 * opened / hours:.0f} "
                f"| {sum(alarm.verdict in NAMING for alarm in alarms)} | {sum(bool(alarm.evicted) for alarm in alarms)} "
                f"| {_hangs([hang for hang in outcome.hangs if hang.phase == phase])} |"
            )
    lines += ["", *_reasons([alarm for outcome in outcomes for alarm in outcome.alarms]), ""]
    found = summary(outcomes)
    lines.append(
        f"{found['hours']:.0f} run-hours in {found['runs']} runs: {found['incidents']} incidents "
        f"({found['incidents_per_100_h']:.1f} in 100 h), looked at {found['looks']} times, of which {found['named_a_machine']} name "
        f"a machine or group; "
        f"decisions: {found['decisions']}{rule_of_three(found['hours'], found['decisions'])}"
    )
    return "\n".join(lines)


def rule_of_three(hours: float, events: float) -> str:
    """What may be concluded from no event: at most 3 / n an hour, in 95 of 100 cases; empty where there was one."""
    return f", so at most {300.0 / hours:.2f} in 100 h (rule of three)" if hours and not events else ""


def _hangs(hangs: Sequence[Frozen]) -> str:
    """Seconds by the age of the phase; a star where the phase itself was suspected already."""
    words = [
        ("never" if hang.suspected_s is None else f"{hang.suspected_s:.0f}") + ("*" if hang.before else "")
        for hang in sorted(hangs, key=lambda hang: hang.age_s)
    ]
    return " / ".join(words) or "-"


def _reasons(alarms: Sequence[Alarm]) -> list[str]:
    """Each kind of alarm once, whatever the number of ranks and seconds in it, the commonest first."""
    kinds: dict[tuple[str, str, str], list[Alarm]] = {}
    for alarm in alarms:
        kinds.setdefault((alarm.phase, _without_numbers(alarm.why), str(alarm.verdict)), []).append(alarm)
    if not kinds:
        return ["No incident was opened."]
    lines = [
        "| looks | phase | of | age of the phase s | why | verdict | evicts |",
        "|---:|---|---|---|---|---|---:|",
    ]
    for (phase, why, verdict), found in sorted(kinds.items(), key=lambda one: (-len(one[1]), one[0])):
        ages = sorted(alarm.age_s for alarm in found)
        frameworks = ", ".join(sorted({alarm.framework for alarm in found}))
        evicts = sum(bool(alarm.evicted) for alarm in found)
        lines.append(
            f"| {len(found)} | {phase} | {frameworks} | {ages[0]:.0f}-{ages[-1]:.0f} | {why} | {verdict} | {evicts} |"
        )
    return lines


def _without_numbers(why: str) -> str:
    return re.sub(r" for \d+ s\b", "", re.sub(r"\branks? [\d,-]+", "ranks", why))
