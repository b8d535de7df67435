"""A server that was started without its backends does not say that a machine is released whose mark stays."""

from pathlib import Path

from hangdog_models.actions.caps import Mode
from hangdog_server.actions import policy
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.backends.no_action import Nothing
from hangdog_server.store.actions import ActionState
from support.servers.cast import NOON
from support.servers.cast_acting import world


async def test_a_release_waits_for_the_backend_that_set_the_mark(tmp_path: Path) -> None:
    excluded = tmp_path / "excluded"
    file = ExcludeFile(excluded)
    async with world(tmp_path / "s.db", tmp_path / "f", file) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.MARKED, ActionState.DONE)
        assert "a" in excluded.read_text().split()
        on.actors, on.mode = (Nothing(),), Mode.DRY_RUN  # as a server that is started without --acting
        on.begin()
        await on.store.do(policy.release, "a", "a new cable", "alice", NOON)
        for _ in range(3):
            await on.acting.tick()
        assert await on.states("0a") == {"a": "releasing"} and "a" in excluded.read_text().split()
        assert "--acting" in await on.words("0a")
        on.actors, on.mode = (file,), Mode.APPROVE
        on.begin()
        await on.until("0a", ActionState.RELEASED)
        assert "a" not in excluded.read_text().split() and await on.words("0a") == "a new cable"
