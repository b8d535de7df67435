"""`hangdog plan`, as people and programs read it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import main
from support.refused import refused


def asked(*words: str) -> str:
    answer = CliRunner().invoke(main, ["plan", *words], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer.stdout


def test_spares_as_text_and_json() -> None:
    fleet = ("standby", "--machines", "1024", "--p", "0.0038", "--over", "0.1:8")
    text = asked(*fleet, "--spares", "4")
    first, second = (line.strip() for line in text.splitlines() if "99.0%" in line or "binomial" in line)
    assert first.startswith("23 spares ") and "(24 h)" in first and second.endswith(": 9")
    assert " 4       50.87%      6.5" in text
    document = json.loads(asked(*fleet, "--format", "json"))
    assert (document["schema"], document["spares"], document["single"]) == ("hangdog.standby/1", 23, 9)
    assert (
        json.loads(asked("standby", "--machines", "1024", "--p", "0.0038", "--replenish", "4h", "--format", "json"))[
            "spares"
        ]
        == 3
    )


def test_backups_as_text_and_json(tmp_path: Path) -> None:
    shape = ("backups", "--tp", "2", "--pp", "4", "--dp", "2", "--gpus-per-machine", "2")
    assert "node-4 (ranks 8-9) -> ranks 2-3 on node-1" in asked(*shape).splitlines()
    document = json.loads(asked(*shape, "--leaf", "2", "--format", "json"))
    assert document["holder"][8:10] == [2, 3]
    assert document["survives"] == ["machine", "tp", "dp", "pp", "leaf"]
    job = tmp_path / "job.toml"
    job.write_text('[topology]\norder = "tp-dp-pp"\ntp = 2\npp = 4\ndp = 2\ngpus_per_node = 2\n')
    assert asked("backups", "--topology", str(job)) == asked(*shape)
    assert "NOT survive 1 single eviction of: pp\n" in asked(
        "backups", "--tp", "8", "--pp", "4", "--gpus-per-machine", "8"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("out-of-range", ("standby", "--machines", "8", "--p", "2")),
        ("bad-shares", ("standby", "--machines", "8", "--p", "0.1", "--over", "8")),
        ("bad-shares", ("standby", "--machines", "8", "--p", "0.1", "--over", "0.6:2", "--over", "0.6:3")),
        ("missing-option", ("backups", "--dp", "8", "--leaf", "2")),
        ("bad-dimension-order", ("backups", "--dp", "8", "--order", "dp-dp")),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(code: str, words: tuple[str, ...]) -> None:
    with refused(code) as wrong:
        asked(*words)
    assert (wrong.value.exit_code, bool(wrong.value.hint)) == (64, True)
