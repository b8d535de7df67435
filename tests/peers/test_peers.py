"""What other analysers print is read fairly: every rank that they name counts, and nothing else does."""

import json
import shutil
from pathlib import Path

import pytest

from peers.analysers import Analyser, Answer, of_fr_attribution, of_hangdog, of_torchfrtrace
from peers.recordings import Recording, recordings
from peers.table import all_named, first_is_guilty, innocents

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

#: Lines in the form of torchfrtrace of PyTorch 2.13 (torch/distributed/flight_recorder/components).
TORCHFRTRACE = """\
2026-11-25 14:46:01 [INFO] Not all ranks joining collective, sequence number: 45265
2026-11-25 14:46:01 [INFO] group info: 72:EXPERT_MODEL_PARALLEL_GROUP
2026-11-25 14:46:01 [INFO] missing ranks: {9, 14}
2026-11-25 14:46:01 [INFO] expected ranks: {8, 9, 10, 11, 12, 13, 14, 15}
2026-11-25 14:46:01 [INFO] Collective sequence number: 7 has errors
2026-11-25 14:46:01 [INFO] error msg: Culprit rank 3; Error type: COLLECTIVE_TYPE_MISMATCH, Expected all_reduce
2026-11-25 14:46:01 [INFO] No errors found for this collective entry, There could be some other reasons why we see collective timeout.
"""
#: In the form of fr_attribution of nvidia-resiliency-ext 0.7.0: a table in bars; the one of the ranks that are behind ends it.
FR_ATTRIBUTION = """\
PGID   | Process Group Desc        | Op Type    | Size                | Dtype    | Missing Ranks
37     | TENSOR_MODEL_PARALLEL_GROUP,0 | nccl:all_reduce | 8192x1x5120 | BFloat16 | 9
72     | EXPERT_MODEL_PARALLEL_GROUP,0 | nccl:all_to_all | 2048x5120   | BFloat16 | 9,14
"""


def verdict(*suspects: tuple[str, float]) -> str:
    return json.dumps({"suspects": [{"ranks": ranks, "probability": sure} for ranks, sure in suspects]})


def test_what_each_one_names() -> None:
    assert of_torchfrtrace(TORCHFRTRACE) == [{9, 14}, {3}]
    assert of_fr_attribution(FR_ATTRIBUTION) == [{9}, {9, 14}]
    assert of_hangdog(verdict(("12,14-15", 0.8), ("3", 0.5), ("7", 0.4))) == [{12, 14, 15}, {3}]
    assert of_torchfrtrace("no mismatch") == of_fr_attribution("") == of_hangdog(verdict()) == []


def test_how_an_answer_is_counted() -> None:
    here = Path()
    both, either, nobody = (
        Recording("x", "nccl", guilty, here, here, any_of=any_of)
        for guilty, any_of in (((9, 14), False), ((2, 3), True), ((), False))
    )
    answer = Answer([frozenset({9}), frozenset({9, 14, 3})], 1.0, 50)
    assert all_named(both, answer) and first_is_guilty(both, answer) and innocents(both, answer) == {3}
    assert all_named(either, answer) and not first_is_guilty(either, answer)
    assert innocents(nobody, answer) == {3, 9, 14} and not first_is_guilty(both, Answer([], 1.0, 50))
    assert (both.truth, either.truth, nobody.truth) == ("9,14", "one of 2-3", "nobody")


def test_an_analyser_is_measured_and_one_that_fails_says_why(tmp_path: Path) -> None:
    def asked(script: str) -> Answer:
        shell = Analyser("sh", lambda _: ["sh", "-c", script], lambda printed, _: [frozenset({int(printed)})])
        return shell.asked(Recording("x", "nccl", (), tmp_path, tmp_path), tmp_path)

    answer = asked("echo 7")
    assert answer.named == {7} and 0 < answer.mib < 40 and answer.seconds > 0
    assert asked("echo KeyError: 0 >&2; exit 1").failed == "KeyError: 0"


@pytest.mark.skipif(not (CORPUS / "gloo").is_dir(), reason="no corpus beside the repository (../shared/corpus)")
def test_recorded_sets_keep_their_dumps_and_their_truth(tmp_path: Path) -> None:
    some, scratch = tmp_path / "corpus", tmp_path / "scratch"
    scratch.mkdir()
    for case in ("gloo/gc-fr", "gloo/sigstop", "public/073-fr-one-all-reduce-less"):
        shutil.copytree(CORPUS / case, some / case)
    found = {one.name: one for one in recordings(some, scratch)}
    assert {name: (one.backend, one.truth) for name, one in found.items()} == {
        "073-fr-one-all-reduce-less": ("nccl", "1"),
        "gloo gc-fr": ("gloo", "2"),
        "gloo sigstop": ("gloo", "2"),
    }
    assert sorted(path.name for path in found["gloo sigstop"].folder.iterdir()) == ["_dump_0", "_dump_1", "_dump_3"]
    kept = (CORPUS / "gloo/sigstop/fr/rank0.pickle").read_bytes()
    assert (found["gloo sigstop"].folder / "_dump_0").read_bytes() == kept
