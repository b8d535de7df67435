"""What holds for the golden files of the commands: a screen's width and UTC, wherever the tests run."""

import time
from collections.abc import Iterator

import pytest


@pytest.fixture
def eighty_columns_of_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pipe as wide as a terminal opens; times of day are those here."""
    monkeypatch.setattr("hangdog.output.terminal.PIPE_WIDTH", 80)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
