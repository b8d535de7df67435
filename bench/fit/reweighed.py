"""The diagnosis by another table of likelihoods than the packaged one."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import exp

import hangdog_models
from fit.traced import Row
from hangdog_models.rules import likelihoods
from hangdog_models.rules.likelihoods import Likelihood

_DIAGNOSIS = "hangdog_models.diagnosis"


@contextmanager
def judging_by(rows: Mapping[str, Likelihood]) -> Iterator[None]:
    """Within, whoever imports the diagnosis gets one that reads these rows; afterwards the one there was before."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(_DIAGNOSIS)}
    packaged = likelihoods.packaged
    package = vars(hangdog_models).get("diagnosis")
    vars(likelihoods)["packaged"] = lambda: rows
    _forget()
    try:
        yield
    finally:
        vars(likelihoods)["packaged"] = packaged
        vars(hangdog_models)["diagnosis"] = package  # an import has put another one there
        _forget()
        sys.modules.update(before)


def moved(rows: Mapping[str, Likelihood], moves: Mapping[Row, float]) -> Mapping[str, Likelihood]:
    """The table with the logarithms of some numbers moved."""
    found = dict(rows)
    for number, by in moves.items():
        name, _, cause = number.partition(".")
        value = found[name].value
        if isinstance(value, Mapping):
            found[name] = replace(found[name], value={**value, cause: value[cause] * exp(by)})
        else:
            found[name] = replace(found[name], value=value * exp(by))
    return found


def judged(rows: Mapping[str, Likelihood]) -> Mapping[str, Likelihood]:
    """The table as it was set by judgement, before any fit."""
    return {name: replace(row, value=row.judged or row.value, judged=None) for name, row in rows.items()}


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith(_DIAGNOSIS)]:
        del sys.modules[name]
