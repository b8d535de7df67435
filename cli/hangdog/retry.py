"""What a command that waits does when its server goes away: it asks again, and goes on with what it waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click

from hangdog_models.errors import ServerUnreachable
from hangdog_models.reading.printable import printable

#: Without an answer for so long a command gives up: a server that is started anew is back within seconds, agents after half a
#: minute, and a machine that boots within some minutes. Seconds.
PATIENCE_S = 300.0
#: Between two attempts.
AGAIN_S = 2.0
#: Characters of an error that are shown.
_SENTENCE = 240


@dataclass
class RetryPolicy:
    """How long a server that is away is waited for; `how` is what a person types to go on later."""

    what: str
    how: str
    within_s: float = PATIENCE_S
    again_s: float = AGAIN_S
    steady: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _since: float | None = field(default=None, init=False)

    def lost(self, error: ServerUnreachable) -> None:
        """Says once that the server is away, and waits a moment; raises ServerUnreachable when it was away for too long."""
        now = self.steady()
        if self._since is None:
            self._since = now
            click.echo(f"{printable(str(error), _SENTENCE)}; asking again", err=True)
        if now - self._since >= self.within_s:
            words = f"no server answered for {self.within_s:g} s: {self.what} may go on without us ({error})"
            raise ServerUnreachable(words, f"once it is back: {self.how}") from error
        self.wait(self.again_s)

    def answered(self) -> None:
        """The server is there."""
        if self._since is not None:
            click.echo("the server answers again", err=True)
            self._since = None
