"""What is asked of a list over the wire, and how much of it an answer holds."""

from typing import Any

from hangdog_models.lists.list_kinds import ListKind
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import LAST_PAGE, ListQuery, checked
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.settings import ServerSettings


def asked_of(kind: ListKind, message: pb.ListQuery, settings: ServerSettings) -> ListQuery:
    """The query; raises WrongUse."""
    limit = min(message.limit or settings.listed, settings.max_listed)
    page = min(max(1, message.page), LAST_PAGE)
    return checked(
        ListQuery(kind, message.search.strip(), tuple(message.states), message.job, message.sort, limit, page)
    )


def extent(listed: ListPage[Any]) -> pb.ListExtent:
    """How much of its list a page is."""
    counts = [pb.StateCount(state=state, count=count) for state, count in listed.counts.items()]
    return pb.ListExtent(found=listed.found, known=listed.known, counts=counts, limit=listed.query.limit)
