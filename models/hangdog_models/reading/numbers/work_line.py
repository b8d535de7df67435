"""Reads a job's throughput from one line of its log: tokens, floating point operations or samples a second, and MFU.

A line tells it under a name (`tps: 7,282`, `tokens_per_sec_per_gpu: 11.4K`, `throughput per GPU (TFLOP/s/GPU): 412.3`), or with
the unit behind the number (`123456 tok/s`, `45.2% bf16 MFU`). The names are those of torchtitan (components/metrics.py),
Megatron-LM (training/training.py), nanotron (trainer.py), MaxText (metric_logger.py), DeepSpeed (utils/timer.py), fairseq,
Composer (callbacks/speed_monitor.py), OLMo, verl, InternLM, nanoGPT and llm.c. Work is linear in the length of the line.
"""

import re

from hangdog_models.numbers.work_rate import WorkRates, WorkUnit

#: Characters looked at of a line.
_LINE = 4096
#: Any of these is in a line that says something here.
HINTS = re.compile(r"/s|per[ _-]?sec|persec|tps|wps|tgs|mfu|flop|perf/throughput", re.IGNORECASE)
#: Of training: the rates of serving, of an evaluation and of a download are another matter.
_TRAINS = re.compile(r"loss|step|iter|epoch|update|train|throughput|perf/", re.IGNORECASE)
_OTHER = re.compile(
    r"(?<![A-Za-z])(?:val|valid|validate|validation|validating|eval|evaluation|evaluating|test|testing|dev|generation|prompt|inference"
    r"|download(?:ing)?|tokeniz(?:e|ing)|preprocess(?:ing)?)(?![A-Za-z])",
    re.IGNORECASE,
)
_PER = r"[ _-]?(?:/|per)[ _-]?"
_DEVICE = rf"(?:{_PER}(?:gpu|device|chip|rank))?"
_SECOND = rf"{_PER}s(?:ec(?:ond)?s?)?(?![a-z])"
_NAMES = {
    WorkUnit.TOKENS: rf"(?:tok(?:en)?s?|words?){_DEVICE}{_SECOND}{_DEVICE}|tps|wps|tgs|perf/throughput",
    WorkUnit.FLOPS: rf"t(?:era)?flops?(?:{_SECOND})?{_DEVICE}",
    WorkUnit.MFU: r"mfu(?:/actor)?",
    WorkUnit.SAMPLES: rf"(?:curr)?(?:samples?|sequences?|images?|examples?){_DEVICE}{_SECOND}{_DEVICE}",
}
_NUMBER = r"(\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,9})?|\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?)\s?([kmbg]?)(?![a-z0-9.,]*[a-z0-9])"
_NAMED = {
    unit: re.compile(rf"(?<![a-z0-9])(?:{names})(?:\([^()]{{0,32}}\)|[ )'\"]){{0,2}}[:= ][ '\"]{{0,8}}{_NUMBER}")
    for unit, names in _NAMES.items()
}
_BEHIND = {
    unit: re.compile(rf"(?<![a-z0-9.,]){_NUMBER[: _NUMBER.index('(?!')]}\s?{words}(?![a-z])")
    for unit, words in {
        WorkUnit.TOKENS: rf"tok(?:en)?s?{_DEVICE}{_SECOND}",
        WorkUnit.FLOPS: rf"tflops?(?:{_SECOND})?",
        WorkUnit.MFU: r"% (?:bf16 |fp8 )?mfu",
        WorkUnit.SAMPLES: rf"samples?{_DEVICE}{_SECOND}",
    }.items()
}
#: Digits that a number must have: a change of a tenth is told by no fewer.
_DIGITS = 3
#: Rates beyond these are of no job, and their times of a unit could not be told to a server.
_LEAST, _MOST = 1e-6, 1e12
_TIMES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


def read(line: str) -> WorkRates:
    """The rates that a line of a training log tells; empty where it tells none. Raises nothing."""
    text = line[:_LINE].lower()
    if not HINTS.search(text) or not _TRAINS.search(text) or _OTHER.search(text):
        return {}
    rates: dict[WorkUnit, float] = {}
    for unit in WorkUnit:
        found = _NAMED[unit].search(text) or _BEHIND[unit].search(text)
        if found is None or _digits(found[1]) < _DIGITS:
            continue
        value = float(found[1].replace(",", "")) * _TIMES[found[2]]
        if _LEAST <= value <= _MOST:
            rates[unit] = value
    return rates


def _digits(number: str) -> int:
    return len(number.partition("e")[0].replace(",", "").replace(".", "").lstrip("0"))
