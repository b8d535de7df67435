"""A job's throughput by lines of the usual loggers, and how much work is done by the rates that follow each other."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.numbers.work_rate import WorkDone, WorkUnit
from hangdog_models.reading.numbers.work_line import read

TOKENS, FLOPS, MFU, SAMPLES = WorkUnit

#: Excerpts of public logs (their sources stand in test_number_line.py), and lines made to a logger's format.
LINES = {
    "torchtitan": ("step:  4  loss:  7.62585  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%", {TOKENS: 10050.0, FLOPS: 314.71, MFU: 13.99}),
    "nanotron": ("iteration: 327281 / 378950 | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | lm_loss: 2.38 | model_tflops_per_gpu: 38.3 | grad_norm: 1.25", {TOKENS: 22800.0, FLOPS: 38.3}),
    "megatron": (" iteration 10/ 100 | elapsed time per iteration (ms): 2681.0 | throughput per GPU (TFLOP/s/GPU): 412.3 | lm loss: 1.1E+00 |", {FLOPS: 412.3}),
    "megatron-deepspeed": (" iteration     5426/  250000 | global batch size:     8 | samples per second: 1.883 | TFLOPs: 78.36 |", {FLOPS: 78.36, SAMPLES: 1.883}),
    "gpt-neox": (" samples/sec: 7.799 | iteration       34/   10000 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 |", {FLOPS: 112.9, SAMPLES: 7.799}),
    "maxtext": ("completed step: 1, seconds: 0.631, TFLOP/s/device: 5688.282, Tokens/s/device: 311629.521, total_weights: 1572864, loss: 12.979", {TOKENS: 311629.521, FLOPS: 5688.282}),
    "fairseq": ("| epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, wpb=908, bsz=32, lr=0.001", {TOKENS: 962.0}),
    "fairseq-json": ('train_inner | {"epoch": 1, "loss": "15.864", "wps": "739601", "num_updates": "2"}', {TOKENS: 739601.0}),
    "pith-train": ("step 00000002/00000015 | step-time 28.823 sec | tokens-per-second 72,759", {TOKENS: 72759.0}),
    "flair": ("epoch 10 - iter 175/1750 - loss 0.11955834 - samples/sec: 71.79 - lr: 0.000023", {SAMPLES: 71.79}),
    "deepspeed": ("epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=11.25, MemAllocated=1.2GB", {SAMPLES: 11.25}),
    "nanogpt": ("iter 3010: loss 2.5, time 1019.95ms, mfu 14.12%", {MFU: 14.12}),
    "llm.c": ("step 10/19560 | loss 9.5 | norm 2.3 | 123.45 ms | 45.2% bf16 MFU | 123456 tok/s", {TOKENS: 123456.0, MFU: 45.2}),
    "verl": ("step:34 - actor/loss:0.042 - perf/mfu/actor:0.414 - perf/throughput:1234.5", {TOKENS: 1234.5, MFU: 0.414}),
    "internlm": ("tgs (tokens/gpu/second)=4190.33 step=3 loss=2.3", {TOKENS: 4190.33}),
    "composer": ("\t Train throughput/device/tokens_per_sec: 8123.4567", {TOKENS: 8123.4567}),
    "olmo": ("    throughput/device/tokens_per_second=7,282", {TOKENS: 7282.0}),
    "a dictionary": ("{'loss': 2.1, 'tokens_per_second_per_gpu': 1234.5, 'epoch': 0.1}", {TOKENS: 1234.5}),
}  # fmt: skip
OTHERS = [
    "{'eval_loss': 2.1, 'eval_samples_per_second': 9.123, 'epoch': 0.4}",
    "validate step: 10  loss:  7.1318  tps: 7,282",
    "Avg prompt throughput: 3599.9 tokens/s, Avg generation throughput: 199.6 tokens/s, Running: 6 reqs",
    "Tokenizing: step 3, 12345 tokens/s",
    "downloading shard, step 2: 123.4MB/s",
    "iter 3: mfu 0.01%",  # a change of a tenth would not show
    "iter 3: tps: 0.00",
    "step 3: steps per second 1.234",  # steps are counted by themselves
    "step 3: 12.34it/s",
    "step 3: tps: 123e200",  # a sum of such has no end
    "step 3: tps: 1.23e-300",
    "tps reports are due, step 123",
    "12345 tokens/s",  # of what, nothing says
    "",
]


@pytest.mark.parametrize("logger", LINES)
def test_lines_of_the_usual_loggers_tell_the_throughput(logger: str) -> None:
    text, rates = LINES[logger]
    assert read(text) == rates


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_no_throughput_of_training_tells_nothing(text: str) -> None:
    assert read(text) == {}


@pytest.mark.parametrize(
    "piece", ["tokens/s", "tokens per ", "tps: 1,", "1,", "1" * 40, "tps (", "1 ", "flop", "mfu:", "% mfu", "samples"]
)
def test_a_line_of_one_piece_takes_no_longer_than_others(piece: str) -> None:
    text = "step " + piece * (200_000 // len(piece)) + " tps"
    begin = time.process_time()
    read(text)
    assert time.process_time() - begin < 1.0


@given(st.text(alphabet="tokensflpmu/_ :=|,{}'\"()%+-.0123456789eEK\x1b", max_size=300))
def test_whatever_stands_there_is_read(text: str) -> None:
    assert all(0 < value < float("inf") for value in read("step " + text).values())


def test_work_done_is_what_the_rates_come_to() -> None:
    work = WorkDone()
    assert not work.take([], 1.0) and not work.take([{}], 1.0) and work.unit is None
    assert work.take([{SAMPLES: 10.0}], 10.0) and work.unit is SAMPLES and work.done == 0.0
    assert work.take([{SAMPLES: 10.0}, {SAMPLES: 20.0}], 14.0) and work.done == 60.0
    assert work.take([{SAMPLES: 10.0, TOKENS: 500.0}], 15.0) and work.unit == TOKENS and work.done == 0.0
    assert not work.take([{SAMPLES: 10.0}], 16.0) and not work.take([{TOKENS: 500.0}], 15.0)
    assert work.take([{TOKENS: 500.0}], 17.0) and (work.done, work.at) == (1000.0, 17.0)
