"""Tells a service of the operator's own what is to be done, in a request that it can check to be ours and recent.

The signature is HMAC-SHA256 over `TIMESTAMP.BODY`, so that nobody who sees a request can send it again later with another
time. What is delivered may be delivered again after a crash: the key in it says that it is the same.
"""

import hashlib
import hmac
import json
from collections.abc import Callable

import httpx

from hangdog_server.actions.backends.backend import IsolationCase, MachineMark, Mark
from hangdog_server.actions.backends.http_client import delivered, opened

SCHEMA = "hangdog.act/1"
#: Headers of a request, as a receiver looks for them.
TIMESTAMP, SIGNATURE, KEY = "X-Hangdog-Timestamp", "X-Hangdog-Signature", "Idempotency-Key"


class Webhook:
    """One address; whoever is there carries the act out, and answers 2xx once it is theirs to do."""

    name = "webhook"
    again_s = 0.0

    def __init__(
        self, url: str, secret: bytes, clock: Callable[[], float], client: httpx.AsyncClient | None = None
    ) -> None:
        """`clock` gives Unix seconds."""
        self._url = url
        self._secret = secret
        self._clock = clock
        self._client = client or opened()

    async def look(self, case: IsolationCase) -> MachineMark:
        """Nobody can be asked."""
        return MachineMark(Mark.UNKNOWN)

    async def mark(self, case: IsolationCase) -> None:
        """Tells it to take the machine out of use."""
        await self._tell("mark", case)

    async def unmark(self, case: IsolationCase) -> None:
        """Tells it to bring the machine back."""
        await self._tell("unmark", case)

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    async def _tell(self, act: str, case: IsolationCase) -> None:
        key = f"{case.key}/{act}"
        reported = {
            "schema": SCHEMA, "act": act, "key": key, "incident": case.incident, "machine": case.machine,
            "job": case.job, "because": case.reason_text,
        }  # fmt: skip
        body, now = json.dumps(reported).encode(), str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            KEY: key.encode("ascii", "backslashreplace").decode(),
            TIMESTAMP: now,
            SIGNATURE: f"sha256={signature(self._secret, now, body)}",
        }
        await delivered(self._client, "POST", self._url, content=body, headers=headers)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What a receiver works out, too, and compares in constant time."""
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
