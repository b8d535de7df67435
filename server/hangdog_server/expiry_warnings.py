"""Says in the log which certificates end soon: the server's own, its issuer's, and those of machines."""

import asyncio
import logging
from collections.abc import Callable

from hangdog_models.counts import named
from hangdog_proto.x509 import ends_soon
from hangdog_server.auth.tls import day
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import steady
from hangdog_server.listener import OpenListeners

#: Between two looks, and between two times that the same is said. Seconds.
LOOK_S, LOGGED_S = 3600.0, 86400.0
#: Machines that are named; all of them stand in the list of machines.
_NAMED = 5

log = logging.getLogger(__name__)


class ExpiryWarnings:
    """Looks at the certificates; `clock` gives Unix seconds."""

    def __init__(self, opened: OpenListeners, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._opened = opened
        self._fleet = fleet
        self._clock = clock

    async def keep(self) -> None:
        """Looks again and again. What ends soon is said once a day."""
        stated: dict[str, float] = {}
        while True:
            for what, words in self.warned().items():
                if steady() - stated.get(what, float("-inf")) >= LOGGED_S:
                    stated[what] = steady()
                    log.warning("%s", words)
            await asyncio.sleep(LOOK_S)

    def warned(self) -> dict[str, str]:
        """What ends soon, in words."""
        found, now = {}, self._clock()
        for what, (begins, ends) in self._opened.lasts().items():
            if ends_soon(begins, ends, now):
                found[what] = f"the {what} ends on {day(ends)}: renew it (docs/authentication.md)"
        machines = self._fleet.certificates.ending(steady())
        if machines:
            more = f" and {len(machines) - _NAMED} more" if len(machines) > _NAMED else ""
            found["machines"] = f"the certificates of machines end soon: {named(machines[:_NAMED])}{more}"
        return found
