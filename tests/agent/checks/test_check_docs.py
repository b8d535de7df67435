"""The page on checks names every setting with its default, and every check with its interval."""

from dataclasses import fields
from pathlib import Path

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.standard_checks import standard

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "checks.md").read_text(encoding="utf-8")


def test_every_setting_stands_there_with_its_default() -> None:
    for field in fields(CheckSettings):
        assert f"| `{field.name}` | {str(field.default).removesuffix('.0')} |" in PAGE, field.name


def test_every_check_stands_there_with_its_interval(tmp_path: Path) -> None:
    checks: Checks = standard(CheckSettings(), CheckPaths(state=tmp_path))[0]
    for name in checks.due(0.0):
        every_s = getattr(CheckSettings(), f"{name}_every_s")
        assert f"| `{name}` | {every_s:g} s" in PAGE, name
    checks.close()
