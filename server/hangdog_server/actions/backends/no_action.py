"""The actor that does nothing: what hangdog does unless an operator chooses another."""

from hangdog_server.actions.backends.backend import Case, Mark, Standing


class Nothing:
    """Marks nothing and finds nothing."""

    name = "none"
    again_s = 0.0

    async def look(self, case: Case) -> Standing:
        """Nobody knows."""
        return Standing(Mark.UNKNOWN)

    async def mark(self, case: Case) -> None:
        """Does nothing."""

    async def unmark(self, case: Case) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing."""
