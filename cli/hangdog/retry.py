"""What a command that waits does when its server goes away: it asks again, and goes on with what it waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click

from hangdog_models.errors import ServerUnreachable
from hangdog_models.reading.printable import printable

#: Without an answer for so long a command gives up: a server that is started anew is back within seconds, agents after half a
#: minute, and a machine that boots within some minutes. Seconds.
TIMEOUT_S = 300.0
#: Between two attempts.
RETRY_S = 2.0
#: Characters of an error that are shown.
_SENTENCE = 240


@dataclass
class RetryPolicy:
    """How long a server that is away is waited for; `resume_hint` is what a person types to go on later."""

    what: str
    resume_hint: str
    timeout_s: float = TIMEOUT_S
    interval_s: float = RETRY_S
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _since: float | None = field(default=None, init=False)

    def lost(self, error: ServerUnreachable) -> None:
        """Says once that the server is away, and waits a moment; raises ServerUnreachable when it was away for too long."""
        now = self.monotonic()
        if self._since is None:
            self._since = now
            click.echo(f"{printable(str(error), _SENTENCE)}; asking again", err=True)
        if now - self._since >= self.timeout_s:
            words = (
                f"no server answered for {self.timeout_s:g} s: {self.what} may continue without this command ({error})"
            )
            raise ServerUnreachable(words, f"once it is back: {self.resume_hint}", code="server-unreachable") from error
        self.wait(self.interval_s)

    def answered(self) -> None:
        """The server is there."""
        if self._since is not None:
            click.echo("the server answers again", err=True)
            self._since = None
