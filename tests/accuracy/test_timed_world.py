"""The world of timed jobs: the same for the same arguments, readable, and no reason to evict the innocent."""

import hashlib
import json
from pathlib import Path

import pytest

import hangdog
from worlds.__main__ import main as judge
from worlds.timed.__main__ import main
from worlds.timed.scenarios.kinds import KINDS, SHARES, deal

#: Of the simulator that measures, not of what it measures.
pytestmark = [pytest.mark.slow, pytest.mark.parallel]

CASES = 30


def world(folder: Path, seed: int, cases: int = CASES) -> Path:
    assert main(["--cases", str(cases), "--seed", str(seed), "--out", str(folder)]) == 0
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_arguments_write_the_same_files(tmp_path: Path) -> None:
    one, again, other = (world(tmp_path / name, seed, 3) for name, seed in (("one", 1), ("again", 1), ("other", 2)))
    assert digests(one) == digests(again) and digests(one) != digests(other)


def test_kinds_are_dealt_by_their_shares_and_evenly() -> None:
    dealt = [kind for kind, _ in deal(240, 2)]
    for family, share in SHARES.items():
        assert sum(kind.family == family for kind in dealt) == round(240 * share)
    machine = [kind.name for kind in dealt if kind.family == "machine"]
    counts = [machine.count(name) for name in set(machine)]
    assert max(counts) - min(counts) <= 1
    assert not any(kind.later for kind, _ in deal(240, 2, first=True)) and any(kind.later for kind in dealt)


def test_each_kind_is_in_a_job_that_can_have_it() -> None:
    assert all(job in kind.jobs for kind, job in deal(len(KINDS) * 4, 3))


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path)])
    assert ended.value.code == 2 and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [11, 12])
def test_every_bundle_is_read_and_nobody_is_evicted_wrongly(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = world(tmp_path / "world", seed)
    for bundle in sorted(folder.glob("*/bundle")):
        evidence = hangdog.triage(bundle).evidence
        assert not evidence.unreadable and not evidence.ignored, bundle
    capsys.readouterr()
    status = judge([str(folder), "--format", "json"])
    results = json.loads(capsys.readouterr().out)
    assert [one["case"] for one in results if one["innocent"]] == [] and status == 0
    assert len(results) == CASES and sum(one["right"] for one in results) >= 0.8 * CASES
