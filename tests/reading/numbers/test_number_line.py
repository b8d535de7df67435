"""The loss and the gradient norm of a log line, by lines of the usual loggers: excerpts of public logs, their source beside each."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import OurFault
from hangdog_models.numbers.wrong_number import NumberLine, Quantity
from hangdog_models.reading.numbers import number_names
from hangdog_models.reading.numbers.number_line import lines

LOSS, NORM = Quantity.LOSS, Quantity.GRAD_NORM

#: Logger, line, loss, gradient norm, step. None: the line tells none.
LINES = [
    # Megatron-LM, https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/4024 (2026-05)
    ("megatron", "[2026-05-28 22:26:20] iteration       29/    6069 | consumed samples:        14848 | elapsed time per iteration (ms): 26813.0 | learning rate: 5.800000E-05 | global batch size:   512 | lm loss: 8.716962E-01 | seq_load_balancing_loss: 1.253194E+00 | mtp_1 loss: 1.115410E+00 | loss scale: 1.0 | grad norm: 0.852 | number of skipped iterations:   0 | number of nan iterations:   0 |", 0.8716962, 0.852, 29),
    # Megatron-DeepSpeed, https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/396: of a NaN loss nothing is written
    ("megatron-nan", " iteration     5426/  250000 | consumed samples:        43408 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: nan | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 1.886 | TFLOPs: 78.46 |", None, math.nan, 5426),
    # Transformers, https://github.com/chengtan9907/mc-cot/issues/2
    ("transformers-nan", "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.464285714285714e-07, 'epoch': 0.0}", 0.0, math.nan, None),
    ("transformers", "{'loss': 1.8998, 'grad_norm': 21.921875, 'learning_rate': 1.6000000000000003e-05, 'epoch': 0.4}\r", 1.8998, 21.921875, None),
    # torchtitan, https://github.com/pytorch/torchtitan/pull/3393 (2026-05)
    ("torchtitan", "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%", 3.24405, 0.8319, 14),
    ("torchtitan-nan", "\x1b[31mstep:  1  \x1b[32mloss: 12.78468  \x1b[38;2;180;60;0mgrad_norm:     nan  \x1b[36mmemory: 38.02GiB(40.02%)\x1b[39m", 12.78468, math.nan, 1),
    # NeMo on Lightning's bar, the output of AWS Neuron's tutorials
    ("nemo", "Epoch 0:   5%|\u258f| 3/62 [02:59<58:44,  0.02it/s, v_num=8-06, reduced_train_loss=6.930, chosen_rewards=-0.81, lr=2.73e-5, parameter_norm=1.95e+3, global_step=1.000, consumed_samples=32.00, throughput=0.108, gradient_norm=8.600]", 6.93, 8.6, 1),
    ("nemo-long", "Epoch 0: : 100%|\u2588| 2000/2000 [43:24:54<00:00, reduced_train_loss=0.139, global_step=2e+3, consumed_samples=2.56e+5, train_step_timing in s=68.70, val_loss=0.212]", 0.139, None, 2000),
    ("lightning", "Epoch 3:  12%|\u258f         | 12/100 [00:10<01:14,  1.18it/s, v_num=0, train_loss=0.231, val_loss=nan]", 0.231, None, None),
    # nanoGPT, https://github.com/karpathy/nanoGPT/issues/167
    ("nanogpt", "iter 36298: loss 5.8465, time 148.74ms, mfu 0.01%", 5.8465, None, 36298),
    ("nanogpt-nan", "iter 6000: loss nan, time 1443.47ms, mfu 0.29%", math.nan, None, 6000),
    # nanotron, https://github.com/huggingface/nanotron/issues/390
    ("nanotron", "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | global_batch_size: 64 | lm_loss: 2.38 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | grad_norm: 1.25", 2.38, 1.25, 327281),
    # DeepSpeed's pipeline engine
    ("deepspeed", "steps: 10 loss: 7.1318 iter time (s): 0.412 samples/sec: 38.803", 7.1318, None, 10),
    ("verl", "step:1 - timing_s/step:225.1 - actor/entropy:0.5 - actor/pg_loss:-7.62e-05 - actor/grad_norm:0.80 - critic/score/mean:0.25 - val/test_score:0.1", -7.62e-05, 0.8, 1),
    ("primus", "[20251202 06:56:28][rank-7/8][INFO ] [--------trainer.py:2560] : iteration 4408/ 5000 | lm loss: 4.142716E-03 | loss scale: 1.0 | grad norm: 0.003 | number of nan iterations: 0 |", 4.142716e-03, 0.003, 4408),
    ("maxtext", "completed step: 10, seconds: 1.211, TFLOP/s/device: 100.123, Tokens/s/device: 1690.5, total_weights: 65536, loss: 10.301", 10.301, None, 10),
    ("fairseq", '{"epoch": 1, "update": 0.1, "loss": "9.123", "ppl": "558.1", "gnorm": "1.2", "num_updates": "100", "loss_scale": "1"}', 9.123, 1.2, 100),
    ("json", '{"loss": NaN, "grad_norm": Infinity, "step": 7}', math.nan, math.inf, 7),
    ("json-text", '{"step": 7, "loss": "NaN", "grad_norm": null}', math.nan, None, 7),
    ("olmo", "    train/CrossEntropyLoss=2.317", 2.317, None, None),
    ("litgpt", "Epoch 1 | iter 10 step 2 | loss train: 3.211, val: n/a | iter time: 301.2 ms (step)", 3.211, None, 10),
    ("flair", "2021-02-22 08:40:43,913 epoch 1 - iter 21/219 - loss 14.28931536 - samples/sec: 19.11 - lr: 0.000500", 14.28931536, None, 21),
    ("tensor", "step 3, loss: tensor(2.31, device='cuda:0')", 2.31, None, 3),
    ("logging", "INFO:root:step=4 loss=2.5", 2.5, None, 4),
]  # fmt: skip
#: Lines that tell of no training step.
OTHERS = [
    " validation loss at iteration 1000 | lm loss value: 2.312452E+00 | lm loss PPL: 1.009912E+01 |",  # Megatron-LM
    "{'eval_loss': 2.1, 'eval_runtime': 3.1, 'eval_samples_per_second': 9.1, 'epoch': 0.4}",  # Transformers
    "Evaluating: step 3 loss nan",
    "[test] epoch 3: loss 2.31",
    "val: loss nan",
    "Validation DataLoader 0: 100%|#| 3/3 [00:00<00:00, loss=nan]",
    "packet loss: 5%",
    "aux_loss: nan | load_balancing_loss: nan | z_loss: nan",
    "number of nan iterations: 3, no loss here",
    "loss",
    "the loss of a rank: nanometres",
    "grad_norm: 1.0.0.1x",
    "",
]


def only(text: str) -> NumberLine:
    (line,) = lines(text)
    return line


def of(line: NumberLine, quantity: Quantity) -> float | None:
    return next((one.value for one in line.numbers if one.quantity is quantity), None)


@pytest.mark.parametrize(("name", "text", "loss", "norm", "step"), LINES)
def test_lines_of_the_usual_loggers_tell_loss_norm_and_step(
    name: str, text: str, loss: float | None, norm: float | None, step: int | None
) -> None:
    line = only(text)
    assert (repr(of(line, LOSS)), repr(of(line, NORM)), line.step) == (repr(loss), repr(norm), step)
    assert not line.skipped and not line.scaled


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_no_training_step_tells_nothing(text: str) -> None:
    assert not list(lines(text))


@pytest.mark.parametrize(
    ("text", "skipped", "scaled"),
    [
        ("[2024-09-15 00:13:28,261] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", True, True),
        ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0", True, True),
        ("2022-01-01 10:00:00 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0", True, True),
        ("1:  iteration       25/73242187 | lm loss: 1.086954E+01 | loss scale: 4294967296.0 | grad norm: 0.000 | number of skipped iterations:   1 |", True, True),
        ("1:  iteration       26/73242187 | lm loss: 1.086954E+01 | loss scale: 65536.0 | grad norm: 0.700 | number of skipped iterations:   0 |", False, True),
    ],
)  # fmt: skip
def test_a_loss_scaler_and_the_steps_it_leaves_out_are_known(text: str, skipped: bool, scaled: bool) -> None:
    line = only(text)
    assert (line.skipped, line.scaled) == (skipped, scaled)


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank3]: step: 1 loss: 2.0", 3),
        ("[rank: 3] step 1 loss 2.0", 3),
        ("rank=3 step 1 loss 2.0", 3),
        ("[20251202 06:56:28][rank-7/8] iteration 4/ 5 | lm loss: 4.1E-03 |", 7),
        ("step 1 loss 2.0 rank 3", None),  # it may speak of another number
        ("step 1 loss 2.0", None),
        ("rank 99999999 step 1 loss 2.0", None),
    ],
)
def test_a_line_may_say_whose_it_is(text: str, rank: int | None) -> None:
    assert only(text).rank == rank


def test_only_the_first_number_of_a_name_counts() -> None:
    assert [one.value for one in only("step 1 loss: 2.0 (avg) loss: 9.0").numbers] == [2.0]


#: What a pattern could stumble over when it is repeated.
PIECES = [
    "loss: 1",
    "loss",
    "nan",
    "1.1e",
    "+-",
    "rank ",
    "rank:",
    "loss 1 ",
    "val ",
    "| ",
    " - ",
    "tensor(",
    "[rank3]: ",
    "1" * 40,
    "\x1b[",
    "=",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_one_piece_takes_no_longer_than_seconds(piece: str) -> None:
    text = "loss" + piece * (200_000 // len(piece))
    begin = time.process_time()
    for form in (text, text.replace(" ", "\n")):
        list(lines(form))
    assert time.process_time() - begin < 4  # measured: 0.3 s


@given(st.text(alphabet="loss norm:=|,{}'\"[]()+-.0123456789eEnaifNI\r\n\x1b_/rk", max_size=400))
def test_whatever_stands_there_is_read(text: str) -> None:
    for line in lines(text):
        assert line.text.isprintable() and len(line.text) <= 300
        assert line.numbers or line.skipped


def test_every_logger_of_the_table_has_its_version_and_source() -> None:
    table = number_names.packaged()
    assert len(table.loggers) > 8 and all("https://" in one for one in table.loggers)
    assert table.quantities["lm loss"] is LOSS and table.quantities["grad norm"] is NORM and "iteration" in table.steps
    assert not any(word in name for name in table.quantities for word in ("val", "eval", "test"))


@pytest.mark.parametrize("text", ["", "name = 3", "name = 'x'\n[[logger]]\nname = 'a'", "]"])
def test_a_table_that_says_nothing_is_our_fault(text: str) -> None:
    with pytest.raises(OurFault):
        number_names.parse(text)
