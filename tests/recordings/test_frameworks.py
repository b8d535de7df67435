"""Real trainers of frameworks that others wrote, busy or broken, are judged as they should be; what is not is listed.

`python bench/frameworks record` makes the recordings anew, `python bench/frameworks judge` prints what is made of each.
"""

from pathlib import Path

import pytest

from frameworks.expectation import RECORDINGS, expected, judge, known_misses, missed, ways

NAMES = sorted(path.parent.name for path in RECORDINGS.glob("*/expected.toml"))
WAYS = [(name, looks) for name in NAMES for looks in ways(RECORDINGS / name)]
KNOWN = known_misses()


@pytest.mark.parametrize(("name", "looks"), WAYS)
def test_the_verdict_on_a_recording_is_right_or_known_not_to_be(name: str, looks: str) -> None:
    verdict = judge(RECORDINGS / name, looks)
    wrong = missed(verdict, expected(RECORDINGS / name, looks))
    if (name, looks) in KNOWN:
        assert wrong, f"{name} by {looks} is right now: take it out of known_misses.toml"
    else:
        assert not wrong, (wrong, verdict.because)


def test_every_known_miss_is_a_recording() -> None:
    assert not set(KNOWN) - set(WAYS)
    assert all(KNOWN.values())


def test_recordings_stay_small() -> None:
    sizes = [path.stat().st_size for path in Path(RECORDINGS).rglob("bundle.tar.*")]
    assert sizes and sum(sizes) < 1 << 20
