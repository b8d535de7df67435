"""A changed rule or weight shows its effect over all cases as a diff of one line a case; HANGDOG_GOLDEN=write accepts it."""

import os
from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.ranks import format_ranks

HERE = Path(__file__).resolve()
CORPUS = HERE.parents[3] / "shared" / "corpus"
GOLDEN = HERE.with_name("golden.txt")


def line(bundle: Path) -> str:
    """What hangdog says of a bundle, as far as a reader of a diff wants to know it; a tenth of probability is noise."""
    verdict = triage(bundle)
    suspects = ", ".join(
        f"{format_ranks(s.ranks) or ' '.join(s.machines)} {s.probability:.1f}" for s in verdict.suspects[:3]
    )
    evicted = " ".join(verdict.evict.machines) or "nobody"
    name = f"{bundle.parent.name}/{bundle.name}"
    return f"{name:48} {verdict.kind:13} {verdict.confidence:.1f}  suspects {suspects or 'none'}; evicts {evicted}"


def test_no_verdict_changed_unseen() -> None:
    bundles = sorted(path.parent for path in CORPUS.rglob("expected.toml"))
    if not bundles:
        pytest.skip(f"no corpus at {CORPUS.parent.name}/{CORPUS.name} beside the repository")
    told = [line(bundle) for bundle in bundles]
    if os.environ.get("HANGDOG_GOLDEN") == "write":
        GOLDEN.write_text("\n".join(told) + "\n", encoding="utf-8")
    assert told == GOLDEN.read_text(encoding="utf-8").splitlines(), "look at the diff; HANGDOG_GOLDEN=write accepts it"
