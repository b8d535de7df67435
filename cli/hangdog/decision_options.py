"""The options by which a verdict decides what to do; `hangdog triage` and `hangdog server` take the same."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from hangdog.options import Number
from hangdog_models.diagnosis.options import DEFAULTS, Options
from hangdog_models.diagnosis.prices import IsolationPolicy, priced
from hangdog_models.errors import WrongUse

Command = TypeVar("Command", bound=Callable[..., Any])


def decision_options(command: Command) -> Command:
    """`--coverage`, `--budget`, `--policy` and `--price`; given together as `options`."""

    @functools.wraps(command)
    def deciding(*args: Any, coverage: float, budget: int, policy: str, price: tuple[str, ...], **others: Any) -> Any:
        prices = priced(dict(_price(one) for one in price))
        options = Options(coverage, budget, policy=IsolationPolicy(policy), prices=prices)
        return command(*args, options=options, **others)

    for option in (
        click.option(
            "--price",
            multiple=True,
            metavar="NAME=MINUTES",
            help="What a step costs, such as test=25; may be repeated. See docs/settings.md.",
        ),
        click.option(
            "--policy",
            type=click.Choice([str(one) for one in IsolationPolicy]),
            default=str(DEFAULTS.policy),
            show_default=True,
            help="rapid: also isolate a whole suspected group if that costs less than waiting for evidence.",
        ),
        click.option(
            "--budget",
            type=click.IntRange(0),
            default=DEFAULTS.budget_machines,
            show_default=True,
            help="How many machines one verdict may evict.",
        ),
        click.option(
            "--coverage",
            type=Number(0, 1, min_open=True),
            default=DEFAULTS.coverage_target,
            show_default=True,
            help="How probable it must be that the evicted machines hold the fault.",
        ),
    ):
        deciding = option(deciding)
    return cast(Command, deciding)


def _price(setting: str) -> tuple[str, float]:
    """The name and the amount of `NAME=MINUTES`; raises WrongUse."""
    name, _, amount = setting.partition("=")
    try:
        return name, float(amount)
    except ValueError as error:
        raise WrongUse(
            f"--price {setting!r} says no number", "write NAME=MINUTES, such as test=25", code="not-a-number"
        ) from error
