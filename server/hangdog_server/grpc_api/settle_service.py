"""What people say that an incident turned out to be, as it is asked for over the wire."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.incident import SettledCause
from hangdog_models.verdict import StallCause
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.auth.authorizer import Person
from hangdog_server.grpc_api.history_service import summary
from hangdog_server.incidents import decode
from hangdog_server.store.history import settled
from hangdog_server.store.store import Store
from hangdog_server.store.tables import storable

#: Causes that lie in machines; of the others none may be named.
OF_MACHINES = (StallCause.MACHINE, StallCause.GROUP, StallCause.SLOW)
#: Machines that one incident may be laid to: as many as one hypothesis of a verdict may name to count for each.
MOST = 64


class SettleService:
    """Keeps what people say; `clock` gives Unix seconds."""

    def __init__(self, store: Store, audit: AuditLog, clock: Callable[[], float]) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    async def settle(self, request: pb.SettleRequest, person: Person) -> pb.IncidentSummary:
        """Keeps what an incident turned out to be, recorded before and after; nothing is done to machines. Raises HangdogError."""
        if len(request.reason) > decode.WHY:
            raise WrongUse(f"a reason of {len(request.reason)} characters is too long", f"give {decode.WHY} at most")
        cause, machines = _cause(request.cause), _machines(request.cause, request.machines)
        incident = await self._store.find(request.id)
        entry = person.audit_entry(" ".join(("settle", cause, *machines)), incident.job, request.reason)
        entry = replace(entry, incident=incident.id)
        await self._audit.note(replace(entry, outcome="asked"))
        kept = SettledCause(cause, machines, storable(request.reason.strip()), storable(person.name), self._clock())
        try:
            await self._store.do(settled.settle, incident.id, kept)
        except HangdogError as error:
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            raise
        await self._audit.note(replace(entry, outcome="taken back" if cause is StallCause.UNKNOWN else "settled"))
        return summary(await self._store.find(incident.id))


def _cause(stated: str) -> StallCause:
    try:
        return StallCause(stated)
    except ValueError:
        raise WrongUse(f"{stated[:40]!r} is no cause of an incident", ", ".join(StallCause)) from None


def _machines(cause: str, stated: Sequence[str]) -> tuple[str, ...]:
    """The machines that are named, each once; raises WrongUse."""
    if stated and cause not in OF_MACHINES:
        raise WrongUse(
            f"no machine is guilty where the cause is {cause}", f"name machines for {', '.join(OF_MACHINES)}"
        )
    if len(stated) > MOST:
        raise WrongUse(f"{len(stated)} machines for one incident; {MOST} at most", "name those that were at fault")
    return tuple(dict.fromkeys(decode.name(machine, "machine") for machine in stated))
