"""`hangdog ranks` shows which ranks stand where."""

import json
import sys
from collections.abc import Iterator

import click
from rich.console import Console

from hangdog.evidence.cases import Evidence, evidence
from hangdog.options import RANK, evidence_argument, format_option, server_option
from hangdog.output.lines import Line, add_row, print_line, print_sections, table
from hangdog.output.terminal import console_for
from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses.reason_text import where as stands
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.ranks import Rank, format_ranks, format_runs, size
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import ClusterView, Suspect, Verdict
from hangdog_models.views.answer_text import BLAMELESS, doing, percent, rank_text
from hangdog_models.views.first_line import headline
from hangdog_models.views.grid import JOINED
from hangdog_models.views.waits_view import Surroundings, WaitView, around
from hangdog_proto.client.server_address import ServerAddress

#: Clusters for people, those of suspects and then the largest; JSON has all.
CLUSTERS = 40
#: Characters of a rank set, and of a reason, which may hold several.
SET, SENTENCE = 120, 240


@click.command("ranks")
@evidence_argument
@click.option("--rank", type=RANK, help="Its call site, what it waits for, and what waits for it.")
@format_option
@server_option
def command(where: str, rank: int | None, form: str, server: ServerAddress) -> None:
    """Show the call sites of all ranks, or all that is known of one rank.

    ID is an incident of the server (its beginning is enough). BUNDLE is a folder or archive, and needs no server.

    \b
    hangdog ranks 3fa9
    hangdog ranks 3fa9 --rank 517
    hangdog ranks ./hang-of-noon --format json | jq -r '.clusters[] | [.size, .activity, .ranks] | @tsv'
    """
    found = evidence(where, server)
    if rank is not None:
        one(found, rank, form)
        return
    verdict = found.verdict()
    if form == "json":
        clusters = [_cluster_json(cluster, verdict) for cluster in verdict.clusters]
        click.echo(json.dumps({"schema": "hangdog.ranks/1", **found.as_json(), "clusters": clusters}, indent=2))
    else:
        show(found, verdict, console_for(sys.stdout))


def show(found: Evidence, verdict: Verdict, console: Console) -> None:
    """Prints a line for each cluster."""
    print_line(Line(headline(verdict)), console, "bold")
    missing = f", not captured: {rank_text(verdict.coverage.missing, SET)}" if verdict.coverage.missing else ""
    print_line(Line(f"{found.named}, {counted(verdict.world_size, 'rank')}{missing}"), console)
    blamed = verdict.kind not in BLAMELESS
    weighed = sorted(verdict.clusters, key=lambda one: (-_suspicion(one, verdict), -len(one.ranks), one.id))
    rows = table("#", "ranks", "doing", "where", "suspected" if blamed else "it shows", "which")
    for cluster in weighed[:CLUSTERS]:
        suspicion = _suspicion(cluster, verdict)
        likely = percent(suspicion) if suspicion else ""
        size_, which = str(len(cluster.ranks)), _set(format_ranks(cluster.ranks))
        add_row(rows, str(cluster.id), size_, doing(cluster), cluster.label, likely, which)
    if weighed:
        console.print()
        console.print(rows)
    if len(weighed) > CLUSTERS:
        click.echo(f"and {len(weighed) - CLUSTERS} more; --format json has them all")


def one(found: Evidence, rank: int, form: str) -> None:
    """Prints what is known of the place of one rank."""
    if rank >= found.world_size:
        found.processes_of(rank)  # says what there is
    case = found.case()
    verdict = found.verdict(case)
    (near,) = around(case, (Suspect((Rank(rank),), (), 0.0, ()),))
    if form == "json":
        click.echo(json.dumps(_one_json(found, case, verdict, near, Rank(rank)), indent=2))
    else:
        show_one(found, case, verdict, near, Rank(rank), console_for(sys.stdout))


def show_one(found: Evidence, case: Case, verdict: Verdict, near: Surroundings, rank: Rank, console: Console) -> None:
    """Prints where a rank stands in every look, in which groups it is, and the waits around it."""
    machine = found.topology.machine(rank)
    on = f" on {printable(machine)}" if machine else ""
    print_line(Line(f"rank {rank} of {found.world_size}{on}: {_stands(near)}"), console, "bold")
    sections = (
        ("suspected", _suspected(verdict, rank)),
        ("in each look", (Line(sentence, f"{number}: ") for number, sentence in _rounds(case, rank))),
        ("groups", _groups(found, rank)),
        ("waits for", _waits(near.waits_for, "awaited")),
        ("waited for by", (*_waits(near.waited_for_by, "inside"), *_behind(near))),
        ("alike", _same_cluster(verdict, rank)),
    )
    print_sections(sections, console)


def _stands(near: Surroundings) -> str:
    return printable("; ".join(near.stands)) or "nothing is known of where it stands"


def _suspected(verdict: Verdict, rank: Rank) -> Iterator[Line]:
    for suspect in verdict.suspects if verdict.kind not in BLAMELESS else ():
        if rank in suspect.ranks:
            evict = " (to be evicted)" if set(suspect.machines) & set(verdict.evict.machines) else ""
            yield Line(f"{percent(suspect.probability)}, {rank_text(suspect.ranks, SET)}{evict}")
            yield from (Line(printable(reason.text, SENTENCE), "- ") for reason in suspect.because)


def _rounds(case: Case, rank: Rank) -> Iterator[tuple[int, str]]:
    for number, look in enumerate(case.looks):
        rank_state = look.get(rank)
        why = f": {rank_state.missing}" if rank_state and rank_state.missing else ""
        yield number, printable(f"{stands(rank_state)}{why}") if rank_state else "not seen"


def _groups(found: Evidence, rank: Rank) -> Iterator[Line]:
    for dim in (dim for dim in found.topology.dims if dim not in JOINED):
        group = found.topology.group(dim, rank)
        if group and len(group) > 1:
            yield Line(
                f"{printable(dim)}: index {group.index(rank)} of {len(group)} in ranks {_set(format_ranks(group))}"
            )


def _waits(waits: tuple[WaitView, ...], side: str) -> Iterator[Line]:
    for wait in waits:
        runs = wait.awaited if side == "awaited" else wait.inside
        ranks = f"rank{'s' * (size(runs) > 1)} {_set(format_runs(runs))}" if runs else "nobody: all have joined"
        yield Line(f"{printable(wait.dim)}: {ranks}, in {printable(wait.what)} ({wait.known})")


def _behind(near: Surroundings) -> Iterator[Line]:
    if near.behind:
        yield Line(f"{counted(near.behind, 'rank')} in all, directly or through others")


def _same_cluster(verdict: Verdict, rank: Rank) -> Iterator[Line]:
    cluster = next((cluster for cluster in verdict.clusters if rank in cluster.ranks), None)
    if cluster is not None:
        yield Line(f"cluster #{cluster.id}: {rank_text(cluster.ranks, SET)}")


def _set(text: str) -> str:
    return text if len(text) <= SET else f"{text[:SET].rpartition(',')[0]},..."


def _suspicion(cluster: ClusterView, verdict: Verdict) -> float:
    """How probable the likeliest suspect is of which a rank stands there."""
    ranks = frozenset(cluster.ranks)
    return max((one.probability for one in verdict.suspects if not ranks.isdisjoint(one.ranks)), default=0.0)


def _cluster_json(cluster: ClusterView, verdict: Verdict) -> dict[str, object]:
    return {
        "id": cluster.id,
        "size": len(cluster.ranks),
        "ranks": format_ranks(cluster.ranks),
        "activity": str(cluster.activity),
        "dim": cluster.dim,
        "label": cluster.label,
        "suspicion": round(_suspicion(cluster, verdict), 3),
        "stack": list(cluster.stack),
    }


def _one_json(found: Evidence, case: Case, verdict: Verdict, near: Surroundings, rank: Rank) -> dict[str, object]:
    cluster = next((cluster.id for cluster in verdict.clusters if rank in cluster.ranks), None)
    groups = ((dim, found.topology.group(dim, rank)) for dim in found.topology.dims)
    suspects = [suspect for suspect in verdict.suspects if rank in suspect.ranks]
    return {
        "schema": "hangdog.rank/1",
        **found.as_json(),
        "rank": rank,
        "machine": found.topology.machine(rank),
        "stands": list(near.stands),
        "cluster": cluster,
        "suspicion": round(max((one.probability for one in suspects), default=0.0), 3),
        "because": [reason.text for one in suspects for reason in one.because],
        "because_codes": [reason.code for one in suspects for reason in one.because],
        "looks": [sentence for _, sentence in _rounds(case, rank)],
        "groups": {dim: format_ranks(group) for dim, group in groups if group},
        "waits_for": [_wait_json(wait) for wait in near.waits_for],
        "waited_for_by": [_wait_json(wait) for wait in near.waited_for_by],
        "behind": near.behind,
    }


def _wait_json(wait: WaitView) -> dict[str, object]:
    return {
        "dim": wait.dim,
        "operation": wait.what,
        "known": wait.known,
        "inside": format_runs(wait.inside),
        "awaited": format_runs(wait.awaited),
    }
