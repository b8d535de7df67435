"""The page of one incident: the verdict first, then everything it rests on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hangdog_models.counts import counted
from hangdog_models.findings import Finding
from hangdog_models.ranks import Runs, runs_of, size, united
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import ClusterView, Kind, Suspect, Verdict, to_json
from hangdog_models.views.answer_text import BLAMELESS, CODE_BUG, answer, doing, rank_text, sure
from hangdog_models.views.collapsed_tree import Branch, folded
from hangdog_models.views.exports import collapsed, speedscope
from hangdog_models.views.first_line import order
from hangdog_models.views.incident_json import document
from hangdog_models.views.incident_view import IncidentView
from hangdog_models.views.pictures.icicle import boxes
from hangdog_models.views.postmortem import markdown, whose
from hangdog_models.views.rounds_view import LookView
from hangdog_models.views.waits_view import Surroundings
from hangdog_server.etag import digest
from hangdog_server.web.pictures.funnel_bands import funnel_bands
from hangdog_server.web.pictures.icicle_data import icicle_data
from hangdog_server.web.render import page, runs, script_data

#: Clusters in the table and in the map's legend: those of suspects first, then the largest.
CLUSTERS, LEGEND = 40, 10
#: Suspects in the table.
SUSPECTS = 20
#: Shades that can be told apart beside each other; further clusters share one. Each cell and row has its number as well.
SHADES = 10
#: Reasons of failed captures, and unreadable files.
FAILURES = 40
#: Machines named for one cluster, and for where to go.
MACHINES = 6
#: Limbs that are open from the start; those on the way to a suspect always are.
OPEN = 40

#: The heading of a verdict against the code, where that is all of the answer.
CODE = "Code bug: no machine is at fault"
#: How a verdict looks; the sign and the word say the same.
TONES = {Kind.NONE: ("good", "●"), **dict.fromkeys((Kind.UNDETERMINED, *BLAMELESS), ("warn", "◆"))}
_TONE = ("bad", "▲")


@dataclass(frozen=True, slots=True)
class IncidentHeader:
    """What is known of an incident beside its verdict; all empty for a bundle.

    `events` is where the server tells of its changes, `timeline` what happened when, `done` what is done about it, and
    `when` how far its order is: each as it stands on the page. `postmortem` is where that is.
    """

    id: str = ""
    state: str = ""
    note: str = ""
    times: str = ""
    events: str = ""
    timeline: str = ""
    done: str = ""
    when: str = "Do now"
    postmortem: str = ""
    person: str = ""


class Export(NamedTuple):
    key: str
    title: str
    name: str
    type: str
    text: str


BUNDLE = IncidentHeader()


def incident_page(verdict: Verdict, scene: IncidentView | None, about: IncidentHeader = BUNDLE) -> str:
    """The page; without a scene (no capture is kept) it shows what the verdict alone tells."""
    suspected = runs_of(rank for suspect in verdict.suspects for rank in suspect.ranks)
    shades = _shades(verdict)
    exports = tuple(_exports(verdict, scene, about))
    word = "it shows here" if verdict.kind in BLAMELESS else "suspect"
    data: dict[str, Any] = document(verdict, scene) if scene else {}
    branches = folded(scene.tree, suspected) if scene else ()
    if scene:
        data["icicle"] = icicle_data(boxes(branches, suspected))
        data["shades"] = [shades[cluster.id] for cluster in verdict.clusters]
        data["word"] = word
        data["labels"] = [printable(_what(cluster), 80) for cluster in verdict.clusters[:CLUSTERS]]
    data["exports"] = {one.key: one.text for one in exports}
    text = script_data(data)
    tone, sign = TONES.get(verdict.kind, _TONE)
    listed = _listed(verdict)
    looks = scene.looks if scene else ()
    return page(
        "incident.html",
        f"{verdict.kind}: {answer(verdict)}",
        live=bool(about.id),
        nav=bool(about.id),
        here="",
        person=about.person,
        about=about,
        verdict=verdict,
        scene=scene,
        tone=tone,
        sign=sign,
        answer_text=CODE if answer(verdict) == CODE_BUG else answer(verdict),
        sure=sure(verdict),
        order=order(verdict),
        where=_where(verdict, scene),
        word=word,
        marked=_marked(verdict),
        suspects=_suspects(verdict),
        suspects_title="Where it shows" if verdict.kind in BLAMELESS else "Suspects",
        legend=[_legend(cluster, shades) for cluster in listed[:LEGEND]],
        hollow=sum(cluster < 0 for cluster in scene.grid.clusters) if scene else 0,
        around=[_around(one, verdict.suspects[one.suspect]) for one in scene.surroundings if _has_content(one)]
        if scene
        else [],
        clusters=[_row(cluster, verdict, scene, shades) for cluster in sorted(listed, key=lambda one: one.id)],
        more_clusters=len(verdict.clusters) - len(listed),
        funnel=scene.funnel if scene else None,
        bands=funnel_bands(scene.funnel) if scene else [],
        branches=list(_branches(branches, size(_everybody(scene)), size(suspected))) if scene else [],
        progress=scene.progress if scene else None,
        looks=[_look(look) for look in looks],
        findings=[_finding(one) for one in scene.findings] if scene else [],
        more_findings=scene.findings_in_all - len(scene.findings) if scene else 0,
        failures=list(_failures(verdict)),
        unreadable=list(verdict.evidence.unreadable.items())[:FAILURES],
        exports=exports,
        data=text,
        drawn=digest(text),
    )


def _exports(verdict: Verdict, scene: IncidentView | None, about: IncidentHeader) -> Iterator[Export]:
    name = (
        "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in about.id or verdict.job_id)[:60] or "job"
    )
    document = json.dumps(to_json(verdict), indent=1)
    yield Export("verdict", "Verdict (JSON)", f"{name}.verdict.json", "application/json", document)
    if not about.postmortem:  # else what is done meanwhile is in it, and it is asked for
        yield Export("postmortem", "Post-mortem (Markdown)", f"{name}.md", "text/markdown", markdown(verdict))
    if scene and scene.tree:
        yield Export("collapsed", "Stacks (collapsed)", f"{name}.collapsed.txt", "text/plain", collapsed(scene.kinds))
        shown = json.dumps(speedscope(scene.kinds, verdict.job_id), separators=(",", ":"))
        yield Export("speedscope", "Stacks (speedscope)", f"{name}.speedscope.json", "application/json", shown)


def _where(verdict: Verdict, scene: IncidentView | None) -> str:
    """Where to go: which ranks on which machine, and the pid to look at."""
    first = verdict.suspects[0] if verdict.suspects else None
    if first is None or verdict.kind in (Kind.NONE,):
        return ""
    machines = ", ".join(first.machines[:MACHINES]) + (" …" if len(first.machines) > MACHINES else "")
    text = f"{rank_text(first.ranks, 60)} on {machines}" if machines else rank_text(first.ranks, 60)
    text = f"it shows at {text}" if verdict.kind in BLAMELESS else text
    pid = scene.pids.get(first.ranks[0]) if scene and len(first.ranks) == 1 else None
    return f"{text}, pid {pid}" if pid else text


def _marked(verdict: Verdict) -> str:
    first = verdict.suspects[0] if verdict.suspects else None
    return rank_text(first.ranks, 60) if first and 0 < len(first.ranks) <= 64 else ""


def _suspects(verdict: Verdict) -> list[tuple[Suspect, str]]:
    """The suspects with their reasons that do not stand above already; none where one alone says nothing more."""
    them = [(one, "; ".join(why.text for why in one.because if why not in verdict.because)) for one in verdict.suspects]
    return [] if len(them) == 1 and not them[0][1] else them[:SUSPECTS]


def _listed(verdict: Verdict) -> list[ClusterView]:
    suspected = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    return sorted(verdict.clusters, key=lambda one: (suspected.isdisjoint(one.ranks), -len(one.ranks), one.id))[
        :CLUSTERS
    ]


def _shades(verdict: Verdict) -> dict[int, str]:
    """The shade of each cluster: the first suspect's stands out, where not nearly everybody is in it."""
    first = set(verdict.suspects[0].ranks) if verdict.suspects else set()
    found: dict[int, str] = {}
    count = 0
    for cluster in verdict.clusters:
        if not first.isdisjoint(cluster.ranks) and first.issuperset(cluster.ranks):
            found[cluster.id] = "s"
        else:
            found[cluster.id] = str(count) if count < SHADES else "rest"
            count += 1
    return found


def _what(cluster: ClusterView) -> str:
    return f"{doing(cluster)}{f': {cluster.label}' if cluster.label else ''}"


def _legend(cluster: ClusterView, shades: Mapping[int, str]) -> dict[str, object]:
    return {"id": cluster.id, "shade": shades[cluster.id], "size": len(cluster.ranks), "what": _what(cluster)}


def _row(
    cluster: ClusterView, verdict: Verdict, scene: IncidentView | None, shades: Mapping[int, str]
) -> dict[str, object]:
    inside = set(cluster.ranks)
    machines = [name for name, ranks in scene.machines.items() if not inside.isdisjoint(ranks)] if scene else []
    named = ", ".join(machines[:MACHINES]) + (
        f" and {len(machines) - MACHINES} more" if len(machines) > MACHINES else ""
    )
    first = verdict.suspects[0].ranks if verdict.suspects else ()
    return {
        **_legend(cluster, shades),
        "frames": tuple(reversed(cluster.stack)),
        "ranks": runs(runs_of(cluster.ranks)),
        "machines": named,
        "suspect": not inside.isdisjoint(first),
    }


def _has_content(one: Surroundings) -> bool:
    return bool(one.waits_for or one.waited_for_by or one.behind)


def _around(one: Surroundings, suspect: Suspect) -> dict[str, object]:
    waited = [
        {"count": size(w.inside), "inside": runs(w.inside), "dim": w.dim, "what": w.what, "known": w.known}
        for w in one.waited_for_by
    ]
    waits = [{"awaited": runs(w.awaited), "dim": w.dim, "what": w.what, "known": w.known} for w in one.waits_for]
    machines = ", ".join(suspect.machines[:MACHINES])
    return {
        "name": f"{rank_text(suspect.ranks, 60)}{f' on {machines}' if machines else ''}",
        "probability": suspect.probability,
        "stands": ", ".join(one.stands),
        "waited": waited,
        "waits": waits,
        "behind": one.behind,
    }


def _everybody(scene: IncidentView) -> Runs:
    return united(node.ranks for node in scene.tree if node.parent < 0)


def _branches(branches: tuple[Branch, ...], everybody: int, suspected: int) -> Iterator[dict[str, object]]:
    """The limbs as the template nests them: each says how many elements end with it."""
    for at, one in enumerate(branches):
        after = branches[at + 1].depth if at + 1 < len(branches) else 0
        yield {
            "calls": one.calls,
            "name": one.calls[-1].function,
            "size": size(one.ranks),
            "share": size(one.ranks) / everybody if everybody else 0.0,
            "ranks": runs(one.ranks),
            "ends": size(one.ends),
            "suspect": one.suspect,
            "alone": one.suspect and size(one.ranks) <= suspected,
            "hidden": one.hidden,
            "open": at < OPEN or one.suspect,
            "closes": one.depth + 1 - after,
        }


def _look(look: LookView) -> dict[str, object]:
    when = f"{look.at_s:+.0f} s" if look.at_s is not None else ""
    moved = {"moved": runs(look.moved), "count": size(look.moved)}
    return {"number": look.number, "when": when, "seen": look.seen, **moved}


def _finding(one: Finding) -> dict[str, str]:
    place = f"rank {one.rank}" if one.rank is not None else ""
    times = f" ({one.times} times)" if one.times > 1 else ""
    return {
        "where": ", ".join(filter(None, (one.machine, place, one.device))),
        "what": f"{one.code}: {one.what}{times}",
        "impact": str(one.impact),
        "source": one.source,
    }


def _failures(verdict: Verdict) -> Iterator[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for name, reason in verdict.coverage.failed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, everybody in list(reasons.items())[:FAILURES]:
        yield whose(everybody), reason
    if len(reasons) > FAILURES:
        yield counted(len(reasons) - FAILURES, "more reason"), "the verdict's JSON has all"
