"""Sends JSON over HTTP, and says of every failure whether another try may help."""

import asyncio
import json
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from hangdog_models.errors import WrongUse
from hangdog_server.actions.backends.backend import BackendFailed

#: Seconds for one request, from its connection to its answer: who carries acts on may write to a disk first.
WITHIN_S = 10.0
#: Bytes of an answer that are taken; the largest read is the alerts of one machine, or a page of pods.
MOST = 8 << 20
#: What passes by itself: busy, rate-limited; and whatever fails on the other side.
AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer's status and its whole content."""

    status: int
    content: bytes

    @property
    def good(self) -> bool:
        """Whether it is of the kind 2xx; a redirect is not."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """Its content as one short line."""
        return " ".join(self.content[:2000].decode("utf-8", "replace").split())[:200]

    def json(self) -> Any:
        """Its content read as JSON; raises BackendFailed."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise BackendFailed(
                f"the answer is not JSON: {self.words}",
                "is it the right address?",
                again=True,
                code="backend-answer-unreadable",
            ) from error


def opened(ca: str = "", **more: Any) -> httpx.AsyncClient:
    """A client that follows no redirect, which would send what is signed to somebody else, and no proxy of the environment.

    `ca` is a file with the authority to trust instead of the system's; raises WrongUse when it cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca) if ca else _system_trust()
    except OSError as error:
        raise WrongUse(
            f"cannot read the authority {ca}: {error}", "give a file of PEM certificates", code="unreadable-file"
        ) from error
    return httpx.AsyncClient(timeout=WITHIN_S, follow_redirects=False, trust_env=False, verify=context, **more)


@cache  # to read the system's authorities takes 35 ms of CPU time
def _system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


async def send(client: httpx.AsyncClient, method: str, url: str, within_s: float = WITHIN_S, **more: Any) -> HttpAnswer:
    """The answer, whatever its status; raises BackendFailed when none has come whole in time."""
    content = bytearray()
    try:
        # httpx bounds each read: who answers a byte at a time would be heard for ever
        async with asyncio.timeout(within_s), client.stream(method, url, timeout=within_s, **more) as answer:
            async for chunk in answer.aiter_bytes():
                content += chunk
                if len(content) > MOST:
                    raise BackendFailed(
                        f"{shown(url)} answers more than {MOST >> 20} MiB",
                        "is it the right address?",
                        code="backend-answer-unreadable",
                    )
            return HttpAnswer(answer.status_code, bytes(content))
    except TimeoutError:
        raise BackendFailed(
            f"{shown(url)} did not answer within {within_s:g} s", "is it up, or slow?", True, code="backend-unreachable"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        words = str(error) or type(error).__name__
        raise BackendFailed(
            f"{shown(url)} cannot be reached: {words}",
            "is it up, and the address right?",
            True,
            code="backend-unreachable",
        ) from error


async def delivered(client: httpx.AsyncClient, method: str, url: str, **more: Any) -> HttpAnswer:
    """An answer of the kind 2xx; raises BackendFailed for every other."""
    answer = await send(client, method, url, **more)
    if not answer.good:
        raise refused(url, answer)
    return answer


def refused(url: str, answer: HttpAnswer) -> BackendFailed:
    """What an answer that is no success means."""
    again = answer.status in AGAIN or answer.status >= 500
    hint = "it is tried again" if again else "check the address, and what it asks for (a secret, a token)"
    return BackendFailed(
        f"{shown(url)} answers {answer.status}: {answer.words}", hint, again, code="backend-answered-error"
    )


def shown(url: str) -> str:
    """An address as it may be logged: without the secrets that stand in user names and queries."""
    try:
        return str(httpx.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx.InvalidURL:
        return "what is no address"
