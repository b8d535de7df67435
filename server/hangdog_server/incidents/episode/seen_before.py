"""Tells of the earlier incidents of one kind with one, and what they turned out to be: for people, it moves no odds."""

import asyncio
import logging

from hangdog_models.diagnosis.clustering.distance import CUT
from hangdog_models.diagnosis.clustering.incident_families import apart, families, family_of
from hangdog_models.past_incidents import NOT_SEEN, EarlierIncident, SimilarIncident, SimilarIncidents
from hangdog_server.incidents.episode import comparable
from hangdog_server.incidents.episode.comparable import Comparable
from hangdog_server.store.store import Store

#: Earlier incidents that are shown of one: the newest, of more their number.
SHOWN = 5

log = logging.getLogger(__name__)


async def seen_before(store: Store, incident: str) -> SimilarIncidents:
    """The earlier ones; none where it names no single machine. Raises StoreFailed."""
    mine, before = await store.ask(comparable.read, incident)
    if mine is None or not before:
        return NOT_SEEN
    try:
        alike = await asyncio.to_thread(_alike, mine, before)
    except Exception:  # a page must not depend on what another incident left
        log.exception("incident %s cannot be compared with earlier ones", incident)
        return NOT_SEEN
    shown = alike[:SHOWN]
    words = await store.ask(comparable.came_to, shown)
    lines = (SimilarIncident(one.id, one.job, one.began, one.features.machine, words[one.id]) for one in shown)
    return SimilarIncidents(len(alike), tuple(lines))


def _alike(mine: Comparable, before: tuple[Comparable, ...]) -> tuple[Comparable, ...]:
    """Those of its family, the newest first. Who is far from it is in none of its families, and costs no comparison."""
    near = {one.id: one for one in before if apart(mine.features, one.features) < CUT}
    past = [EarlierIncident(one.id, mine.began - one.began, one.features) for one in near.values()]
    family = family_of(mine.features, families(past))
    return tuple(sorted((near[one.id] for one in family), key=lambda one: (-one.began, one.id)))
