"""The chain of the audit log: what was changed, cut or put in is said and where; a crash is told from that."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_server.auth import audit_log, hash_chain
from hangdog_server.auth.audit_log import AuditEntry, AuditLog

DEED = AuditEntry("snapshot", "alice", "act", "token", "ipv4:10.0.0.5:1", "llama", "page", "0123", "asked")


def filled(path: Path, number: int = 6, most_bytes: int = audit_log.MOST_BYTES) -> list[str]:
    """A record of so many lines; their hashes."""
    return [
        audit_log.append(path, audit_log.line(replace(DEED, who=str(who)), 0.0), most_bytes) for who in range(number)
    ]


def checked(path: Path, *expected: str) -> hash_chain.Checked:
    return hash_chain.check((audit_log.before(path), path), expected)


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_what_nobody_touched_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hashes = filled(path)
    found = checked(path, *hashes)
    assert (found.lines, found.broken, found.torn, found.head) == (6, [], [], hashes[-1])
    assert [json.loads(line)["n"] for line in lines(path)] == [1, 2, 3, 4, 5, 6]


def changed(kept: list[bytes]) -> list[bytes]:
    kept[2] = kept[2].replace(b'"who": "2"', b'"who": "9"')
    return kept


def forged(kept: list[bytes]) -> list[bytes]:
    """With a hash of its own that fits the line before."""
    made = hash_chain.linked(audit_log.line(replace(DEED, who="eve"), 0.0), [kept[1].rstrip(b"\n")], False)
    return [*kept[:2], made + b"\n", *kept[2:]]


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a line was changed": (changed, 4),
    "a line was taken out": (lambda kept: kept[:2] + kept[3:], 3),
    "two were taken out": (lambda kept: kept[:2] + kept[4:], 3),
    "one was put in": (forged, 4),
    "one without a chain was put in": (lambda kept: [*kept[:2], b'{"what": "nothing"}\n', *kept[2:]], 3),
    "two changed places": (lambda kept: [*kept[:2], kept[3], kept[2], *kept[4:]], 3),
    "one stands there twice": (lambda kept: [*kept[:3], kept[2], *kept[3:]], 4),
    "the beginning is gone": (lambda kept: kept[2:], 1),
    "half of a line is gone": (lambda kept: [*kept[:2], kept[2][:50] + b"\n", *kept[3:]], 4),
    "an empty line was put in": (lambda kept: [*kept[:2], b"\n", *kept[2:]], 4),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_said_with_its_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    tamper, at = TAMPERED[what]
    path.write_bytes(b"".join(tamper(lines(path))))
    found = checked(path)
    assert found.broken and found.broken[0].line == at, found
    assert not [one for one in found.torn if what == "half of a line is gone"], "that is no crash's doing"
    shown = CliRunner().invoke(main, ["audit", "--file", str(path), "--verify"])
    assert shown.exit_code == 1 and "tampered with" in shown.stdout
    assert f"audit.jsonl line {at}: " in shown.stdout


def test_an_end_that_was_cut_off_shows_by_a_hash_that_was_kept_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    kept = filled(path)[-1]
    path.write_bytes(b"".join(lines(path)[:4]))
    assert checked(path).broken == [], "a shorter record is a record"
    (gone,) = checked(path, kept).broken
    assert (gone.file, gone.line) == ("", 0) and kept in gone.what and "cut off" in gone.what
    command = ["audit", "--file", str(path), "--verify", "--expect", kept, "--format", "json"]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 1 and not json.loads(shown.stdout)["whole"]
    assert CliRunner().invoke(main, ["audit", "--file", str(path), "--expect", kept]).exit_code == 64


def test_the_chain_goes_on_over_the_file_that_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hashes = filled(path, 20, 1000)
    assert audit_log.before(path).exists() and len(lines(path)) < 20
    found = checked(path, hashes[-1])
    assert (found.broken, found.head, found.last) == ([], hashes[-1], 20)
    assert found.lines == len(lines(path)) + len(lines(audit_log.before(path)))
    aside = audit_log.before(path)
    for damage, words in (
        (lines(aside)[1:], "no file was set aside"),
        (lines(aside)[:-1], ": 1 lines are gone"),
        (None, "set aside is gone"),
    ):
        whole = aside.read_bytes()
        aside.unlink() if damage is None else aside.write_bytes(b"".join(damage))
        assert [one for one in checked(path).broken if words in one.what], words
        aside.write_bytes(whole)
    path.unlink()  # killed after it was set aside, before the next line
    filled(path, 1)
    assert (checked(path).broken, checked(path).lines) == ([], len(lines(aside)) + 1)


def test_a_line_that_a_crash_cut_off_is_told_from_tampering(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    whole = path.read_bytes()
    for cut in (1, 60, 200):
        path.write_bytes(whole[:-cut])
        last = checked(path)
        assert last.broken == [] and len(last.torn) == (cut > 1), "at the end, by a crash or by hand"
        filled(path, 2)
        found = checked(path)
        assert found.broken == [] and [one.line for one in found.torn] == ([6] if cut > 1 else [])
        if cut > 1:  # the next line vouches for what was left, so that it cannot be changed any more
            kept = lines(path)
            path.write_bytes(b"".join([*kept[:5], kept[5][:20] + b"\n", *kept[6:]]))
            assert [one.line for one in checked(path).broken] == [7] and checked(path).torn == []
            path.write_bytes(b"".join([*kept[:4], *kept[5:]]))
            assert checked(path).broken, "a line before the one that was cut off is gone"
    shown = CliRunner().invoke(main, ["audit", "--file", str(path), "--verify"])
    assert shown.exit_code == 1


def test_a_record_of_an_older_version_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text((audit_log.line(DEED, 0.0) + "\n") * 3)
    filled(path, 2)
    found = checked(path)
    assert (found.broken, found.older, found.lines) == ([], 3, 2)
    kept = lines(path)
    path.write_bytes(b"".join([*kept[:2], kept[2].replace(b"alice", b"mallo"), *kept[3:]]))
    assert [one.line for one in checked(path).broken] == [4], "the last of them is vouched for"


_WRITER = """
import sys
from pathlib import Path
from hangdog_server.auth import audit_log
deed = audit_log.AuditEntry("snapshot", sys.argv[2], "", "", "", "", "x" * 300)
for _ in range(int(sys.argv[3])):
    audit_log.append(Path(sys.argv[1]), audit_log.line(deed, 0.0), 20_000)
"""


def test_two_writers_make_one_chain_and_a_kill_breaks_none(tmp_path: Path) -> None:
    """The server and `hangdog token` write the same file; it is set aside meanwhile."""
    path = tmp_path / "audit.jsonl"
    command = (sys.executable, "-c", _WRITER, str(path))
    writers = [subprocess.Popen((*command, str(number), "60")) for number in range(2)]
    doomed = subprocess.Popen((*command, "doomed", "100000"))
    assert [writer.wait() for writer in writers] == [0, 0]
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    filled(path, 1)
    found = checked(path)
    assert found.broken == [] and found.last > 120


async def test_a_server_notices_that_its_record_was_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    kept = AuditLog(path, lambda: 0.0)
    for _ in range(3):
        await kept.note(DEED)
    filled(path, 1)  # another writer is no tampering
    await kept.note(DEED)
    assert "tampered" not in caplog.text
    os.truncate(path, 0)
    await kept.note(DEED)
    assert "tampered with" in caplog.text
    assert [json.loads(line)["what"] for line in lines(path)] == ["record damaged", "snapshot"]


async def test_who_holds_the_lock_delays_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_log, "_TRIES", 3)
    path = tmp_path / "audit.jsonl"
    filled(path, 1)
    with audit_log._turn(path):
        assert not await asyncio.wait_for(AuditLog(path, lambda: 0.0).note(DEED), 10)
    assert "audit log's lock" in caplog.text
    assert path.with_name("audit.jsonl.lock").stat().st_mode & 0o777 == 0o600
