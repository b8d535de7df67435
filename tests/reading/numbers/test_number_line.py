"""The loss and the gradient norm of a log line, by lines of the usual loggers: excerpts of public logs, and lines made to their format."""

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

#: Logger, line, loss, gradient norm, step. None: the line tells none. Each is an excerpt of the public log named above it;
#: of the longest lines parts were left out.
PUBLIC = [
    # https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/4024
    ("megatron", "[2026-05-28 22:26:20] iteration       29/    6069 | consumed samples:        14848 | elapsed time per iteration (ms): 26813.0 | learning rate: 5.800000E-05 | global batch size:   512 | lm loss: 8.716962E-01 | seq_load_balancing_loss: 1.253194E+00 | mtp_1 loss: 1.115410E+00 | mtp_2 loss: 1.180141E+00 | loss scale: 1.0 | grad norm: 0.852 | number of skipped iterations:   0 | number of nan iterations:   0 |", 0.8716962, 0.852, 29),
    # https://github.com/epfLLM/Megatron-LLM/issues/11
    ("megatron-llm", " iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 | learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |", 2.50422, 0.231, 122),
    # https://github.com/alibaba/Pai-Megatron-Patch/issues/680
    ("megatron-nan-norm", " iteration        1/    5000 | consumed samples:          128 | elapsed time per iteration (ms): 140930.2 | throughput per GPU (TFLOP/s/GPU): 0.3 | learning rate: 5.000000E-08 | global batch size:   128 | lm loss: 1.196676E+01 | load_balancing_loss: 5.185859E-01 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   0 |", 11.96676, math.nan, 1),
    # https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/396: of a NaN loss nothing is written
    ("megatron-nan", " iteration     5426/  250000 | consumed samples:        43408 | consumed tokens:     88899584 | elapsed time per iteration (ms): 4247.9 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: nan | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 1.883 | TFLOPs: 78.36 |", None, math.nan, 5426),
    # GPT-NeoX in https://github.com/deepspeedai/DeepSpeed/issues/3742
    ("gpt-neox", " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |", 11.18665, None, 34),
    # https://github.com/SY-Xuan/Pink/issues/6, https://github.com/Time-MoE/Time-MoE/issues/71, https://github.com/huggingface/transformers/pull/35207
    ("transformers-nan", "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0005142857142857142, 'epoch': 0.01}                    ", 0.0, math.nan, None),
    ("transformers-nan-norm", "{'loss': 0.1474, 'grad_norm': nan, 'learning_rate': 0.0001, 'epoch': 0.04}", 0.1474, math.nan, None),
    ("transformers", "{'loss': 2.119, 'grad_norm': 37.657958984375, 'learning_rate': 4.5833333333333334e-05, 'epoch': 0.25}", 2.119, 37.657958984375, None),
    # https://github.com/pytorch/torchtitan/pull/3393, https://github.com/pytorch/torchtitan/pull/2389
    ("torchtitan", "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%", 3.24405, 0.8319, 14),
    ("torchtitan-2026", "[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%", 7.62585, 26.625, 4),
    # https://github.com/NVIDIA-NeMo/Speech/issues/5928: Lightning's bar fills `nan` up
    ("nemo-nan", "Epoch 0:   0%|          | 3/351750 [00:04<148:28:47,  1.52s/it, loss=nan, v_num=9-02, reduced_train_loss=nan.0, global_step=2.000, consumed_samples=384.0]", math.nan, None, 2),
    # https://github.com/NVIDIA/NeMo-Framework-Launcher/issues/55
    ("nemo-bar", "Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]", 3.1, None, 794),
    # https://github.com/NVIDIA-NeMo/Speech/pull/10128, https://github.com/NVIDIA-BioNeMo/bionemo-recipes/pull/740
    ("nemo", "Training epoch 0, iteration 2/9 | lr: 0.0006 | consumed_samples: 96 | global_batch_size: 32 | global_step: 2 | reduced_train_loss: 9.21", 9.21, None, 2),
    ("bionemo", "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106", 1.233, None, 120),
    # https://github.com/Lightning-AI/litgpt/issues/2151, https://github.com/Lightning-AI/pytorch-lightning/issues/4225
    ("lightning", "Epoch 0:   0%|          | 2/1793507 [00:02<611:40:05,  0.81it/s, v_num=12, train_loss=10.90] lr=[0.0] mean=-0.000124 std=0.024048", 10.9, None, None),
    ("lightning-1", "Epoch 0:  22%|\u2588\u2588\u258f       | 4/18 [00:17<01:02,  4.47s/it, loss=10.072, v_num=193315]", 10.072, None, None),
    # https://github.com/karpathy/nanoGPT/issues/167, https://github.com/karpathy/nanoGPT/issues/215
    ("nanogpt", "iter 36298: loss 5.8465, time 148.74ms, mfu 0.01%", 5.8465, None, 36298),
    ("nanogpt-nan", "2023-03-22 09:32:52 iter 3010: loss nan, time 1019.95ms, mfu 14.12%", math.nan, None, 3010),
    # https://github.com/huggingface/nanotron/issues/390, https://github.com/huggingface/nanotron/pull/23
    ("nanotron", "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.38 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.25", 2.38, 1.25, 327281),
    ("nanotron-2024", "01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: 992 / 1000 | consumed_tokens: 635K | elapsed_time_per_iteration_ms: 41.2 | tokens_per_sec: 15.5K | tokens_per_sec_per_gpu: 1.94K | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.0095 | hardware_tflops_per_gpu: 0.00951 | grad_norm: 0.507", 10.6, 0.507, 992),
    # https://github.com/verl-project/verl/issues/7412, https://github.com/verl-project/verl/pull/1037
    ("verl", "(TaskRunner pid=222265) step:34 - global_seqlen/min:419336 - actor/entropy:0.22266578674316406 - actor/ppo_kl:-8.163164312320433e-06 - actor/pg_loss:0.042396901015308686 - actor/kl_loss:0.0013280365410537343 - actor/loss:0.042398229241371155 - actor/grad_norm:0.129638671875 - training/global_step:34 - critic/score/mean:-0.0182796623557806", 0.042396901015308686, 0.129638671875, 34),
    ("verl-nan", "(TaskRunner pid=362057) step:2 - global_seqlen/min:407422.000 - actor/entropy_loss:0.218 - actor/kl_loss:0.000 - actor/pg_loss:0.006 - actor/grad_norm:nan - perf/mfu/actor:0.703 - training/global_step:2.000", 0.006, math.nan, 2),
    # https://github.com/AI-Hypercomputer/maxtext/issues/8, https://github.com/AI-Hypercomputer/maxtext/pull/4847
    ("maxtext-2023", "completed step: 15107, seconds: 2.167, TFLOP/s: 36.722, loss: 2.191", 2.191, None, 15107),
    ("maxtext", "I0811 21:54:55.531340 138304841739136 metric_logger.py:226] completed step: 1, seconds: 0.631, TFLOP/s/device: 5688.282, Tokens/s/device: 311629.521, total_weights: 1572864, loss: 12.979, lm_loss: 12.979, perplexity: 433358.281", 12.979, None, 1),
    # https://github.com/facebookresearch/metaseq/pull/507, https://github.com/facebookresearch/fairseq/issues/301
    ("fairseq-json", 'slurm_procid 0 : 2022-11-11 14:05:29 | INFO | train_inner | {"epoch": 1, "actv_norm": "0.035", "pos_norm": "0.192", "loss": "15.864", "ppl": "59660.5", "wps": "739601", "num_updates": "2", "lr": "5.60224e-07", "gnorm": "16.783", "clip": "100", "train_wall": "1", "wall": "75"}', 15.864, 16.783, 2),
    ("fairseq", "| epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, wpb=908, bsz=32, lr=0.001, clip=100%, gnorm=2.1427", 1.27, 2.1427, None),
    # https://github.com/allenai/OLMo/issues/692
    ("olmo", "    train/CrossEntropyLoss=12.18", 12.18, None, None),
    ("olmo-norm", "    optim/total_grad_norm=7.725906669975302e-08", None, 7.725906669975302e-08, None),
    # https://github.com/mosaicml/llm-foundry/issues/444
    ("composer", "- Train loss/train/total: 11.6525", 11.6525, None, None),
    # https://github.com/Lightning-AI/litgpt/issues/1224, https://github.com/Lightning-AI/litgpt/issues/689
    ("litgpt", "Epoch 1 | iter 46 step 1 | loss train: 3.724, val: n/a | iter time: 45.73 ms", 3.724, None, 46),
    ("litgpt-2023", "iter 77 step 39: loss 10.8259, iter time: 214.40ms (optimizer.step)", 10.8259, None, 77),
    # https://github.com/mlc-ai/pith-train/pull/7
    ("pith-train", "2026-04-01 14:07:05 | INFO | step 00000002/00000015 | step-time 28.823 sec | cross-entropy-loss 2.5949 | load-balance-loss 0.001803 | learning-rate 1.000000e-06 | gradient-norm 20.0672 | tokens-per-second 72,759", 2.5949, 20.0672, 2),
    # https://github.com/flairNLP/flair/issues/3028
    ("flair", "2022-12-13 02:43:23,390 epoch 10 - iter 175/1750 - loss 0.11955834 - samples/sec: 71.79 - lr: 0.000023", 0.11955834, None, 175),
]  # fmt: skip
#: Lines made here to the format of the code that the table names, or, the last four, to no logger's.
MADE = [
    ("torchtitan-nan", "\x1b[31mstep:  1  \x1b[32mloss: 12.78468  \x1b[38;2;180;60;0mgrad_norm:     nan  \x1b[36mmemory: 38.02GiB(40.02%)\x1b[39m", 12.78468, math.nan, 1),
    ("nemo-long", "Epoch 0: : 100%|\u2588| 2000/2000 [43:24:54<00:00, reduced_train_loss=0.139, global_step=2e+3, consumed_samples=2.56e+5, train_step_timing in s=68.70, val_loss=0.212]", 0.139, None, 2000),
    ("lightning-nan", "Epoch 3:  12%|\u258f         | 12/100 [00:10<01:14,  1.18it/s, v_num=0, train_loss_step=nan.0, val_loss=0.231]", math.nan, None, None),
    ("lightning-inf", "Epoch 3:  12%|\u258f         | 12/100 [00:10<01:14,  1.18it/s, v_num=0, train_loss=-inf., grad_2.0_norm_total=inf.0]", -math.inf, math.inf, None),
    ("deepspeed", "steps: 10 loss: 7.1318 iter time (s): 0.412 samples/sec: 38.803", 7.1318, None, 10),
    ("composer-loss", "\t Train loss/train/total: 11.6525", 11.6525, None, None),
    ("composer-norm", "\t Train l2_norm/grad/global: 0.8125", None, 0.8125, None),
    ("verl-critic", "step:1 - critic/vf_loss:0.250 - critic/grad_norm:1.500 - val/test_score:0.1", 0.25, 1.5, 1),
    ("verl-sft", "step:3 - train/loss:1.875 - train/lr(1e-3):0.010 - train/time(s):2.125", 1.875, None, 3),
    ("fairseq-epoch", '{"epoch": 1, "train_loss": "11.049", "train_nll_loss": "10.399", "train_num_updates": "100", "train_gnorm": "1.2"}', 11.049, 1.2, 100),
    ("json", '{"loss": NaN, "grad_norm": Infinity, "step": 7}', math.nan, math.inf, 7),
    ("json-text", '{"step": 7, "loss": "NaN", "grad_norm": null}', math.nan, None, 7),
    ("tensor", "step 3, loss: tensor(2.31, device='cuda:0')", 2.31, None, 3),
    ("logging", "INFO:root:step=4 loss=2.5", 2.5, None, 4),
]  # fmt: skip
#: Lines that tell of no training step.
OTHERS = [
    " validation loss at iteration 1000 | lm loss value: 2.312452E+00 | lm loss PPL: 1.009912E+01 |",  # Megatron-LM
    "{'eval_loss': 2.1, 'eval_runtime': 3.1, 'eval_samples_per_second': 9.1, 'epoch': 0.4}",  # Transformers
    "eval metrics after step: 5, loss=2.312, total_weights=65536",  # MaxText
    "\x1b[33mvalidate step: 10  \x1b[32mloss:  7.1318  \x1b[36mmemory: 38.02GiB(40.02%)  \x1b[34mtps: 7,282\x1b[39m",  # torchtitan
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


@pytest.mark.parametrize(("name", "text", "loss", "norm", "step"), PUBLIC + MADE)
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
        # https://github.com/deepspeedai/DeepSpeed/issues/5779
        ("[2024-07-17 19:44:06,945] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", True, True),
        # https://github.com/LEEYOONHYUNG/BVAE-TTS/issues/3
        ("Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 32768.0", True, True),
        # https://github.com/facebookresearch/fairseq/issues/515
        ("2023-01-18 06:21:13 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0", True, True),
        # https://github.com/facebookresearch/fairseq/issues/2332
        ("2020-07-17 04:08:14 | INFO | train_inner | epoch 001:    100 / 2952087 loss=16.348, ppl=83437.5, wps=8640.2, ups=4.66, wpb=1854, bsz=2, num_updates=100, lr=1e-06, gnorm=4.215, loss_scale=128, train_wall=22, wall=120", False, True),
        # https://github.com/NVIDIA/nccl/issues/743, the second one shortened
        (" iteration       10/ 1000000 | consumed samples:           40 | elapsed time per iteration (ms): 356.2 | learning rate: 0.000E+00 | global batch size:     4 | loss scale: 8388608.0 | number of skipped iterations:  10 | number of nan iterations:   0 |", True, True),
        (" iteration       20/ 1000000 | consumed samples:           80 | elapsed time per iteration (ms): 140.6 | learning rate: 2.020E-08 | global batch size:     4 | lm loss: 1.005022E+01 | sop loss: 8.174902E-01 | loss scale: 32768.0 | grad norm: 217.199 |", False, True),
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
