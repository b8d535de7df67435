"""Asks a server for pages of its lists."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery
from hangdog_proto.client.incidents import (
    ANSWER_S,
    Actions,
    Client,
    MachineLine,
    actions_of,
    incident_line,
    machine_line,
)
from hangdog_proto.generated import hangdog_pb2 as pb

Line = TypeVar("Line")


class ListClient(Client):
    """A Client that asks for pages; each method raises HangdogError."""

    def incidents_page(self, query: ListQuery) -> ListPage[Incident]:
        """Incidents."""
        request = pb.ListRequest(job=query.job, limit=query.limit, list=_packed(query))
        with self._errors():
            answer = self._incidents.List(request, timeout=ANSWER_S)
        lines = [incident_line(summary) for summary in answer.incidents]
        return _page(query, lines, answer.extent if answer.HasField("extent") else None)

    def machines_page(self, query: ListQuery) -> ListPage[MachineLine]:
        """Machines."""
        with self._errors():
            answer = self._incidents.Machines(pb.MachinesRequest(list=_packed(query)), timeout=ANSWER_S)
        lines = [machine_line(machine) for machine in answer.machines]
        return _page(query, lines, answer.extent if answer.HasField("extent") else None)

    def actions_page(self, query: ListQuery) -> tuple[Actions, ListPage[None]]:
        """What was, is and would be done to machines, and how much of it that is."""
        with self._errors():
            answer = self._incidents.Actions(
                pb.ActionsRequest(limit=query.limit, list=_packed(query)), timeout=ANSWER_S
            )
        extent = answer.extent if answer.HasField("extent") else None
        return actions_of(answer), _page(query, [None for _ in answer.actions], extent)


def _packed(query: ListQuery) -> pb.ListQuery:
    return pb.ListQuery(
        search=query.search, states=query.states, job=query.job, sort=query.sort, limit=query.limit, page=query.page
    )


def _page(query: ListQuery, lines: Sequence[Line], extent: pb.ListExtent | None) -> ListPage[Line]:
    """The page; raises WrongUse where a server of an older version did not do what was asked."""
    if extent is not None:
        counts = {one.state: one.count for one in extent.counts}
        asked = replace(query, limit=extent.limit or query.limit)
        return ListPage(tuple(lines), extent.found, extent.known, counts, asked)
    if query.search or query.states or query.order != replace(query, sort="").order or query.page > 1:
        raise WrongUse(
            "the server is an older version, which cannot search or sort lists", "update it", code="older-server"
        )
    return ListPage(tuple(lines), len(lines), len(lines), {}, query)
