"""Which live cases run with every change, and which only by `make soak`."""

from typing import Any

import pytest


def further(*values: Any, id: str | None = None) -> Any:
    """A case much like another one: too long for every change."""
    return pytest.param(*values, id=id, marks=pytest.mark.soak)
