"""What the commands that ask no server tell, as files that a person has read."""

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cast import NOON
from hangdog.main import main
from hangdog_server.audit import Deed, append, line

GOLDEN = Path(__file__).parent / "golden"
NOTIFY = """\
link = "https://hangdog.example"

[to.on-call]
url_file = "address"
about = ["judged", "approval"]
"""
#: In their order, each a golden file of that name; the exit status of all is 0.
TYPED = {
    "certs-init": "certs init ca --name hangdog.example",
    "certs-machine": "certs machine gpu-a17 gpu-a18 --ca ca",
    "certs-client": "certs client alice --ca ca",
    "certs-show": "certs show ca",
    "token-new": "token new --name alice --role act --tokens tokens.json",
    "token-list": "token list --tokens tokens.json",
    "token-revoke": "token revoke alice --tokens tokens.json",
    "audit": "audit --file audit.jsonl",
    "notify": "notify --notify notify.toml --dry-run",
    "plan-standby": "plan standby --machines 1024 --p 0.0038 --over 0.1:8",
    "plan-backups": "plan backups --tp 2 --pp 4 --dp 2 --gpus-per-machine 2",
}
PEER = "ipv4:192.0.2.7:50112"
DEEDS = (
    Deed("snapshot", "alice", "trigger", "token", PEER, "llama", "it hangs", "", "asked"),
    Deed("snapshot", "alice", "trigger", "token", PEER, "llama", "it hangs", "3fa9c2d4e5f6", "machine"),
    Deed("approve", "bob", "act", "token", PEER, "llama", "the fan is dead", "3fa9c2d4e5f6", "c pending"),
)
#: What is another one each time: secrets, moments, and who runs the tests.
OTHERS = {r"[\w-]{40,}": "SECRET", r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00": "MOMENT", r"\w+ \(shell\)": "USER (shell)"}


def test_each_command_tells_as_its_golden_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HANGDOG_REGENERATE=1 writes the files anew; then read the diff."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hangdog.terminal.PIPE_WIDTH", 80)
    (tmp_path / "notify.toml").write_text(NOTIFY)
    (tmp_path / "address").write_text("json://192.0.2.1:9/hook\n")
    (tmp_path / "address").chmod(0o600)
    for deed in DEEDS:
        append(tmp_path / "audit.jsonl", line(deed, NOON))
    wrong = []
    for name, typed in TYPED.items():
        result = CliRunner().invoke(main, shlex.split(typed))
        assert result.exit_code == 0, f"{typed}: {result.output}"
        text = f"$ hangdog {typed}\n" + "".join(f"{one.rstrip()}\n" for one in result.output.splitlines())
        for made, shown in OTHERS.items():
            text = re.sub(made, shown, text)
        golden = GOLDEN / f"{name}.txt"
        if os.environ.get("HANGDOG_REGENERATE"):
            golden.write_text(text, encoding="utf-8")
        wrong += [text] if text != golden.read_text(encoding="utf-8") else []
    assert not wrong, "\n".join(wrong)
