"""Lines that tell a step: as frameworks write them, as jobs describe them, and lines that only look like it."""

import random
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from hangdog_agent.stalls.progress.safe_regex import safe
from hangdog_agent.stalls.progress.step_lines import LINE, StepLines
from hangdog_models.errors import WrongUse

CHANCE = random.Random(1)


def noise() -> float:
    return CHANCE.random()


Line = Callable[[int], str]
#: Lines that surely tell a step, as they are written.
STEPS: dict[str, Line] = {
    "Megatron": lambda i: (
        f" [2026-11-22 00:{i // 60:02d}:{i % 60:02d}] iteration {i:8d}/  100000 | consumed samples: {512 * i:12d} |"
        f" elapsed time per iteration (ms): {900 + 200 * noise():.1f} | lm loss: {11 - noise():.6E} |"
    ),
    "Hugging Face": lambda i: (
        f"{{'loss': {3 + noise():.4f}, 'grad_norm': {noise():.3f}, 'learning_rate': {5e-5 - i * 1e-8:.3e}, 'epoch': {i / 100:.2f}}}"
    ),
    "JSON": lambda i: f'{{"step": {i}, "loss": {noise()}}}',
    "NeMo": lambda i: f"Training epoch 0, iteration {i}/999 | lr: 0.0001 | global_step: {i} | reduced_train_loss: {noise():.3f}",
    "torchtitan": lambda i: f"\x1b[31mstep: {i:2}  \x1b[32mloss: {7 + noise():7.4f}  \x1b[39mtps: {9000 + i % 7:,}\x1b[0m",
}  # fmt: skip
#: Lines that count something; whether it is the job's progress nobody knows.
COUNTS: dict[str, Line] = {
    "tqdm": lambda i: (
        f"\r {i}%|{'█' * (i // 10)}{' ' * (10 - i // 10)}| {i}/100 [00:{i % 60:02d}<00:55, {9 + noise():.2f}it/s]"
    ),
    "waiting": lambda i: (
        f"[rank3]:[W1122 00:00:{i % 60:02d}.123 ProcessGroup.cpp:12] still waiting for {10 * i} s at step 5"
    ),
}


def told(line: Line, times: int = 60, pattern: str | None = None) -> tuple[int, int]:
    """How often lines told that something counted, and that a step was done."""
    steps = StepLines(safe(pattern) if pattern else None)
    said = [steps.take(line(number) + "\n") for number in range(times)]
    return sum(each.counted for each in said), sum(each.stepped for each in said)


@pytest.mark.parametrize("name", STEPS)
def test_step_lines_are_learned(name: str) -> None:
    assert min(told(STEPS[name])) >= 50


@pytest.mark.parametrize("name", COUNTS)
def test_what_only_counts_is_not_sure(name: str) -> None:
    counted, stepped = told(COUNTS[name])
    assert counted >= 50
    assert stepped == 0


@pytest.mark.parametrize(
    "line",
    [
        lambda i: f"2026-11-22 {i // 60:02d}:{i % 60:02d}:00,123 INFO all is well",
        lambda i: f"{1763772442 + i} checkpoint at step 5",
        lambda i: f"step {i}" if i == 7 else "no number",
        lambda i: f"loading shard {i % 3}",
        lambda i: "",
    ],
)
def test_lines_that_count_nothing(line: Line) -> None:
    assert told(line) == (0, 0)


def test_ranks_that_share_a_log() -> None:
    lines = [f"[rank{rank}] step {step}" for step in range(20) for rank in CHANCE.sample(range(8), 8)]
    assert told(lambda i: lines[i], len(lines))[1] >= 15


def test_steps_that_begin_anew_are_still_steps() -> None:
    assert told(lambda i: f"epoch {i // 20} batch {i % 20}")[1] >= 50


@pytest.mark.parametrize("name", STEPS)
def test_how_many_steps_there_were_is_counted_however_many_lines_come_at_once(name: str) -> None:
    steps, epochs = StepLines(), name == "Hugging Face"  # which writes no more than how much of an epoch is over
    for number in range(10):
        steps.take(STEPS[name](number) + "\n")
    before = steps.steps
    for number in range(10, 100, 30):  # what is read at once is counted by its first line
        steps.take("".join(STEPS[name](number + further) + "\n" for further in range(30)))
    assert steps.steps - before == pytest.approx(61 / 100 if epochs else 61)


def test_steps_that_begin_anew_with_each_epoch_are_counted_on() -> None:
    steps, counted = StepLines(), []
    for number in range(0, 1000, 10):  # every tenth is logged, and the first of an epoch is none of them
        steps.take(f"epoch {number // 50} batch {number % 50 + 10} loss 0.5\n")
        counted.append(steps.steps)
    assert [after - before for before, after in pairwise(counted)][10:] == [10.0] * 89


def test_a_count_that_grows_more_often_takes_the_place_of_one_that_seldom_does() -> None:
    steps = StepLines()
    for epoch in range(8):
        steps.take(f"epoch {epoch} begins\n")
    for number in range(40):
        steps.take(f"step {number} loss 0.5\n")
    assert steps.steps == pytest.approx(40 - 17, abs=2)


def test_lines_that_a_pattern_matches_are_steps() -> None:
    steps = StepLines(safe(r"^finished \w+ of"))
    steps.take("finished one of them\n")
    assert steps.steps == 0, "from then on it is counted"
    steps.take("finished two of them\nnothing\nfinished three of them\nfinished four of them\n")
    assert steps.steps == 3
    steps.take("left out\nfinished five of them\n", joins=False)
    assert steps.steps == 0, "nobody knows how many were left out"


def test_a_line_may_come_in_pieces_and_be_as_long_as_it_likes() -> None:
    steps = StepLines()
    said = [steps.take(piece) for i in range(10) for piece in ("st", f"ep {i}", " loss 0.5\n")]
    assert sum(each.stepped for each in said) == 6
    steps.take("x" * 1_000_000)
    assert len(steps._rest) == LINE
    assert sum(steps.take(f"{'y' * 1_000}\nstep {i} loss 0.5\n").stepped for i in range(10, 20)) == 10


def test_what_was_left_out_is_not_joined() -> None:
    steps = StepLines(safe("step 12"))
    steps.take("ste")
    assert not steps.take("p 12\n", joins=False).stepped
    steps.take("step 1")
    assert steps.take("2\n").stepped


def test_the_memory_of_lines_is_bounded() -> None:
    steps = StepLines()
    for i in range(10):
        steps.take(f"step {i}\n")
    for i in range(2_000):
        steps.take(f"word{'abcdefghij'[i % 10] * (i // 10)} 1 2 3\n")
    assert len(steps._skeletons) <= 64
    assert steps.take("step 11\n").stepped, "what counts is forgotten last"


def test_a_pattern_of_the_jobs_own() -> None:
    finished: Line = lambda i: f"finished {['one', 'two', 'three'][i % 3]} of them"
    assert told(finished) == (0, 0)
    assert told(finished, pattern=r"^finished \w+ of") == (60, 60)
    assert told(STEPS["JSON"], pattern="matches nothing")[1] >= 50, "until it matches, lines are learned"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("(a+)+$", "a" * LINE + "b"),
        ("(a|a)*b", "a" * LINE),
        ("(a|a)" * 30 + "b", "a" * LINE),
        (r"(\w+\s?)*:", "a " * (LINE // 2)),
        (r"((((a{64}){64}){64}){64})", "a" * LINE),
        (r"[a-z]+[a-z]+[a-z]+[a-z]+[a-z]+0", "a" * LINE),
        (r"\d+,\d+,\d+;", "1," * (LINE // 2)),
    ],
)
def test_no_pattern_takes_long(pattern: str, line: str) -> None:
    made = safe(pattern)
    began = time.thread_time()
    assert made.search(line) is None
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    "pattern", [".*step", "(?<=a)b", "a{2}{3}", "a**", "[a-z", "(", r"(a)\1", "a{99}", "x" * 201, "(?i)a", "(?P<n>a)"]
)
def test_a_pattern_that_cannot_be_made_safe_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(WrongUse) as refused:
        safe(pattern)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (r"iteration +[0-9]+/", "iteration       12/  100", True),
        (r"step[: =]*\d+", "global_step = 7", True),
        (r"(?:step|iter) (\d+)", "iter 12", True),
        (r"[][]step\]", "[step]", True),
        (r"\.*x", "...x", True),
        (r"loss: .*", "loss: 3", True),
        (r"^step", "a step", False),
        (r"step \d{1,3}$", "step 1000", False),
        (r"a|b+c", "bbbc", True),
    ],
)
def test_patterns_mean_what_they_say(pattern: str, line: str, found: bool) -> None:
    assert (safe(pattern).search(line) is not None) == found
