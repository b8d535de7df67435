"""Draws answers in a thread of its own and packs them there: agents wait for the event loop, and not for pages."""

import asyncio
import gzip
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

#: Answers that are kept: as many as different pages are open at once, some 10 KiB each.
KEPT = 64
#: Shorter answers are sent as they are: bytes.
SHORT = 1024
#: How hard they are packed: more costs twice the time for some percent.
LEVEL = 4


@dataclass(frozen=True, slots=True)
class Packed:
    """An answer's bytes, as they are and packed; `packed` is empty of a short one."""

    plain: bytes
    packed: bytes


class Drawing:
    """One thread, for two would share the event loop's turns with each other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "pages")
        self._kept: OrderedDict[Hashable, Packed] = OrderedDict()

    async def page(self, request: Request, draw: Callable[[], str], shown: Hashable = None) -> Response:
        """A page; what was drawn of the same that is `shown` is sent again. None: it is drawn anew."""
        return await self._answer(request, draw, "text/html; charset=utf-8", shown)

    async def document(self, request: Request, document: Struct) -> Response:
        """A JSON document."""
        return await self._answer(request, lambda: msgspec.json.encode(document).decode(), "application/json", None)

    def kept(self, shown: Hashable) -> bool:
        """Whether what is shown so was drawn already."""
        return shown in self._kept

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: Request, draw: Callable[[], str], kind: str, shown: Hashable) -> Response:
        found = self._kept.get(shown) if shown is not None else None
        if found is None:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, _packed, draw)
        if shown is not None:
            self._kept[shown] = found
            self._kept.move_to_end(shown)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        headers = {"vary": "accept-encoding", "content-type": kind}
        if found.packed and _takes_gzip(request):
            return Response(found.packed, headers={**headers, "content-encoding": "gzip"})
        return Response(found.plain, headers=headers)


def _packed(draw: Callable[[], str]) -> Packed:
    plain = draw().encode("utf-8", "replace")
    return Packed(plain, gzip.compress(plain, LEVEL) if len(plain) > SHORT else b"")


def _takes_gzip(request: Request) -> bool:
    for coding in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = coding.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
