"""docs/server.md names every setting with the default it has."""

import re
from dataclasses import fields
from pathlib import Path

from hangdog_models.incident import IncidentState
from hangdog_server.settings import ServerSettings

TEXT = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")
#: What a default is written in.
UNITS = {"s": 1, "h": 3600, "d": 86400, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}


def test_every_setting_is_named_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) ?(\w*) \| ", TEXT, re.MULTILINE)
    written = {name: float(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}
    assert written == {field.name: getattr(ServerSettings(), field.name) for field in fields(ServerSettings)}


def test_every_state_is_explained() -> None:
    assert all(f"| `{state}` | " in TEXT for state in IncidentState)
