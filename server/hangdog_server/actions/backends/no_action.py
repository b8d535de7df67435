"""The actor that does nothing: what hangdog does unless an operator chooses another."""

from hangdog_server.actions.backends.backend import IsolationCase, MachineMark, Mark


class Nothing:
    """Marks nothing and finds nothing."""

    name = "none"
    again_s = 0.0

    async def look(self, case: IsolationCase) -> MachineMark:
        """Nobody knows."""
        return MachineMark(Mark.UNKNOWN)

    async def mark(self, case: IsolationCase) -> None:
        """Does nothing."""

    async def unmark(self, case: IsolationCase) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing."""
