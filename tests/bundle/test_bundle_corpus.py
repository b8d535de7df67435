"""Every bundle of the corpus opens, and each of its files is read, or ignored, as what the corpus says it is.

The corpus is third-party test data beside the repository, in `../shared/corpus`; without it these tests say so and skip.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdog.evidence.content import Failure, Logged, ReadRequest, StackFile, Unused, read_contents
from hangdog.evidence.naming import name_of
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import RankCounters
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.stack import ProcessState

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
BUNDLES = sorted(path.parent for path in CORPUS.glob("*/*/expected.toml"))
#: What the corpus calls the kinds of evidence.
KINDS = {
    "stacks": StackFile, "proc": ProcessState, "error": Failure, "fr": RankCounters, "ras": ReadRequest, "dcgm": Logged,
    "nvidia-smi": Logged, "kernel": Logged, "log": Logged,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not BUNDLES, reason="no corpus beside the repository (../shared/corpus)")


@pytest.fixture(scope="module")
def classify() -> Callable[[str, bytes, list[str]], str | None]:
    """The corpus's own idea of what a file is."""
    spec = importlib.util.spec_from_file_location("check_bundles", CORPUS / "check_bundles.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str, bytes, list[str]], str | None] = module.classify
    return found


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_each_file_is_what_the_corpus_says(
    bundle: Path, classify: Callable[[str, bytes, list[str]], str | None]
) -> None:
    snapshot, _ = open_bundle(bundle)
    read, ignored = 0, []
    for file in sorted(path for path in bundle.rglob("*") if path.is_file()):
        path = str(file.relative_to(bundle))
        kind = classify(path, file.read_bytes(), [])
        if path in ("job.toml", "rounds.toml"):
            read += 1
            continue
        (content,) = read_contents(name_of(path), file.read_bytes(), DEFAULTS)
        if kind in KINDS:
            assert isinstance(content, KINDS[kind]), path
        else:  # the corpus knows of no reader for it, we may have one
            assert isinstance(content, Unused | Logged), path
        read += not isinstance(content, Unused)
        ignored += [path] if isinstance(content, Unused) else []
    account = snapshot.account
    assert (account.files_read, account.ignored, account.unreadable) == (read, tuple(sorted(ignored)), {})
    assert account.notes == ()


def test_native_stacks_of_014_lie_below_the_python_frames() -> None:
    snapshot, _ = open_bundle(CORPUS / "public" / "014-megatron-8rank")
    for trace in snapshot.rounds[0].traces:
        main = next(thread for thread in trace.threads if thread.name == "MainThread")
        python = [frame.native for frame in main.frames].index(True)
        assert python > 0 and all(frame.native for frame in main.frames[python:])
        assert len(trace.threads) > 15
