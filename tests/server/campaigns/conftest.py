"""The server that most tests of campaigns have."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.servers.cast import Stage, stage
from support.servers.tested import QUICK


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    """One that does not wait for who is lost."""
    async with stage(tmp_path / "s.db", settings=QUICK) as on:
        yield on
