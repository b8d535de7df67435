"""Known cases judged anew with one number of the table of likelihoods changed: what hangdog answers then.

A case is written as in the table: `incident SEED RANKS FAULT: EVIDENCE` of the benchmark's simulator, `bundle FOLDER/NAME` of the
corpus beside the repository, or `test FILE::FUNCTION` below tests/, of which every answer counts that it asks for: verdicts, slow
jobs, and what hardware says of machines.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from accuracy.simulator.incident import Incident
from accuracy.simulator.make import incident
from hangdog.offline import open_case
from hangdog_models.rules import likelihoods
from hangdog_models.rules.likelihoods import Likelihood
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology

TESTS = Path(__file__).resolve().parents[2]
CORPUS = TESTS.parents[1] / "shared" / "corpus"
DIAGNOSIS = "hangdog_models.diagnosis"
#: What is looked at of an answer: the contract prints three digits.
DIGITS = 3
#: Answers to a case, as they can be compared.
Answers = tuple[object, ...]

_incident: Callable[[int, int, str], Incident] = cache(incident)


def changed(name: str, cause: str, times: float) -> Mapping[str, Likelihood]:
    """The packaged table with one number multiplied."""
    rows = dict(likelihoods.packaged())
    value = rows[name].value
    multiplied = {**value, cause: value[cause] * times} if isinstance(value, Mapping) else value * times
    rows[name] = replace(rows[name], value=multiplied)
    return rows


def answers(case: str) -> Answers:
    """What the diagnosis that is imported now answers to a case."""
    kind, _, rest = case.partition(" ")
    if kind == "test":
        return _of_test(*rest.split("::"))
    snapshot, topology = _bundle(rest) if kind == "bundle" else _simulated(rest)
    return (_verdict(_module("judge").diagnose(snapshot, topology)),)


def _simulated(text: str) -> tuple[Snapshot, Topology]:
    which, _, evidence = text.partition(": ")
    seed, ranks, fault = which.split(" ", 2)
    one = _incident(int(seed), int(ranks), fault)
    return next(found for level, found in one.snapshots.items() if level == evidence), one.topology


@cache
def _bundle(name: str) -> tuple[Snapshot, Topology]:
    if not CORPUS.is_dir():
        pytest.skip("no corpus beside the repository (../shared/corpus)")
    case = open_case(CORPUS / name)
    return case.snapshot, case.topology


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{DIAGNOSIS}.{name}")


def _of_test(file: str, function: str) -> Answers:
    """Every answer that the code of a test gets, up to the one that it does not expect."""
    given: list[object] = []
    _listen(_module("verdict.conclude"), "conclude", _verdict, given)
    _listen(_module("stragglers.fail_slow"), "find", _slowness, given)
    _listen(_module("stragglers.straggler"), "find", _slowness, given)
    _listen(_module("findings.hardware"), "weigh", _factors, given)
    _listen(_module("verdict.eviction"), "smallest", lambda chosen: chosen.machines, given)
    asked = vars(_loaded(TESTS / file))[function]
    try:
        for arguments in _arguments(asked):
            asked(**arguments)
    except AssertionError:
        given.append("not as expected")
    return tuple(given)


def _listen(module: ModuleType, name: str, written: Callable[[Any], object], given: list[object]) -> None:
    asked = vars(module)[name]

    def answering(*positional: Any, **named: Any) -> Any:
        answer = asked(*positional, **named)
        given.append(written(answer))
        return answer

    vars(module)[name] = answering


def _loaded(path: Path) -> ModuleType:
    """The module of a test, loaded anew, so that it asks the diagnosis that is imported now."""
    spec = importlib.util.spec_from_file_location(f"reweighed_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


def _arguments(function: Callable[..., object]) -> Iterator[dict[str, object]]:
    """The arguments that pytest would call a test with."""
    choices = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
            rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
            choices.append([dict(zip((name.strip() for name in names), row, strict=True)) for row in rows])
    for chosen in product(*choices):
        yield {name: value for one in chosen for name, value in one.items()}


def _verdict(verdict: Any) -> object:
    suspects = tuple((one.ranks, one.machines, round(one.probability, DIGITS)) for one in verdict.suspects)
    causes = {str(cause): round(p, DIGITS) for cause, p in verdict.causes.items()}
    culprit = verdict.culprit and (verdict.culprit.ranks, round(verdict.culprit.probability, DIGITS))
    return str(verdict.kind), round(verdict.confidence, DIGITS), suspects, verdict.evict.machines, culprit, causes


def _slowness(slowness: Any) -> object:
    if slowness is None:
        return None
    suspects = tuple((one.ranks, round(one.probability, DIGITS)) for one in slowness.suspects)
    return str(slowness.kind), suspects, slowness.looks_used


def _factors(evidence: Any) -> object:
    return tuple((one.machine, one.factor, one.slow_factor) for one in evidence.values())
