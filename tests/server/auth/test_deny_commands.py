"""`hangdog certs deny`, `denied` and `issuer`, and what of them is recorded."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_proto import deny_list, x509
from hangdog_server.auth import audit_log, hash_chain
from support.servers.guarded import Cluster, made, now


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return made(tmp_path / "ca")


def run(*arguments: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


def serial(folder: Path) -> str:
    return x509.read_pem((folder / "cert.pem").read_bytes()).serial


def test_a_certificate_is_denied_listed_and_allowed_again(cluster: Cluster, tmp_path: Path) -> None:
    file = ("--file", tmp_path / "denied.json")
    shown = cluster.machine("gpu-a")
    colons = ":".join(serial(shown)[at : at + 2] for at in range(0, len(serial(shown)), 2)).upper()
    assert serial(shown) in run("certs", "show", shown).stdout
    said = run("certs", "deny", shown, "--reason", "lost\x1b[2J", *file).stdout
    assert said.startswith(f"{serial(shown)} is denied ") and "denies all" in said
    assert "was denied already" in run("certs", "deny", colons, *file).stdout
    run("certs", "deny", "machine gpu-b", *file)
    listed = run("certs", "denied", *file).stdout
    assert "\x1b" not in listed and serial(shown) in listed and " machine gpu-b " in listed
    rows = json.loads(run("certs", "denied", "--format", "json", *file).stdout)["denied"]
    assert [(row["serial"], row["owner"]) for row in rows] == [(serial(shown), None), (None, "machine gpu-b")]
    run("certs", "deny", colons, "--undo", *file)
    assert [one.owner for one in deny_list.read(tmp_path / "denied.json")] == ["machine gpu-b"]
    assert "[not-denied]\n" in run("certs", "deny", colons, "--undo", *file, status=64).stderr
    recorded = [(line["what"], line["why"].partition(":")[0]) for line in audit_log.read(tmp_path / "audit.jsonl")]
    assert recorded == [
        ("certificate denied", serial(shown)),
        ("certificate denied", "machine gpu-b"),
        ("certificate allowed", serial(shown)),
    ]
    assert hash_chain.check([tmp_path / "audit.jsonl"]).broken == []


@pytest.mark.parametrize("which", ["", "xyz", "machine", "somebody gpu-a", "0x", "f" * 65])
def test_what_names_no_certificate_is_not_denied(tmp_path: Path, which: str) -> None:
    refused = run("certs", "deny", which, "--file", tmp_path / "denied.json", status=64)
    assert "[bad-serial-number]\n" in refused.stderr and not (tmp_path / "denied.json").exists()


def test_an_owner_that_is_denied_again_has_lost_its_newer_ones_too(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "denied.json"
    deny_list.add(file, deny_list.DeniedCertificate("", "machine gpu-a", now() - 3600))
    between = x509.read_pem((cluster.machine("gpu-a", now() - 60) / "cert.pem").read_bytes())
    assert deny_list.DenyList(file).refuses(between) == ""
    run("certs", "deny", "machine gpu-a", "--file", file)
    assert "is denied" in deny_list.DenyList(file).refuses(between) and len(deny_list.read(file)) == 1


def test_an_issuer_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "issuer"
    run("certs", "issuer", folder)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "key.pem": 0o600,
        "cert.pem": 0o644,
    }
    assert "[already-exists]\n" in run("certs", "issuer", folder, status=64).stderr
    assert "authority" in run("certs", "show", folder).stdout
