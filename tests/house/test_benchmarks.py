"""Every benchmark, and the fuzzer, says what it does and what it takes, and does nothing before it is asked properly."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    str(script.relative_to(ROOT))
    for script in (*(ROOT / "bench").rglob("*.py"), ROOT / "tests/fuzzing/__main__.py")
    if '__name__ == "__main__"' in script.read_text() and script.parent.name != "trainers"
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_has_a_help(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith("usage: ")
    assert len(shown.partition("\n\n")[2].strip().partition("\n")[0]) > 20, "what it does"
    assert not list(tmp_path.iterdir())
