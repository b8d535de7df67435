"""What a trainer imports: light, and with a placement as `hangdog plan backups` prints it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.backup.placement_file import read_placement
from hangdog.main import main
from hangdog_models.errors import WrongUse
from support.refused import refused


def test_a_trainer_imports_the_standard_library_and_nothing_else() -> None:
    probe = "import sys, hangdog.backup.backups, hangdog.backup.placement_file; print(*{one.partition('.')[0] for one in sys.modules})"
    loaded = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, check=True).stdout
    from_start = {"_distutils_hack", "_virtualenv", "sitecustomize", "usercustomize", "__main__", "__mp_main__"}
    foreign = set(loaded.split()) - {"hangdog", "hangdog_models"} - from_start
    assert not {name for name in foreign if name not in sys.stdlib_module_names and not name.startswith("_")}


def test_the_plan_of_the_command_is_a_placement(tmp_path: Path) -> None:
    asked = "plan backups --tp 2 --dp 2 --pp 2 --gpus-per-machine 2 --format json"
    (tmp_path / "backups.json").write_text(CliRunner().invoke(main, asked.split()).stdout)
    assert read_placement(tmp_path / "backups.json") == (6, 7, 4, 5, 2, 3, 0, 1)


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ("", "wrong-schema", "hangdog.backups/1"),
        ("[" * 100_000, "wrong-schema", "hangdog.backups/1"),
        (json.dumps({"schema": "hangdog.plan/1"}), "wrong-schema", "hangdog.backups/1"),
        (
            json.dumps({"schema": "hangdog.backups/1", "holder": [], "reasons": ["one machine"]}),
            "no-place-for-backups",
            "one machine",
        ),
        (json.dumps({"schema": "hangdog.backups/1", "holder": [1, 2]}), "wrong-placement", ""),
        (json.dumps({"schema": "hangdog.backups/1", "holder": [True, 0]}), "wrong-placement", ""),
    ],
)
def test_what_is_no_placement_is_named_with_the_reason(tmp_path: Path, text: str, code: str, value: str) -> None:
    path = tmp_path / "backups.json"
    path.write_text(text)
    with refused(code, WrongUse, str(path), value) as wrong:
        read_placement(path)
    assert wrong.value.hint
