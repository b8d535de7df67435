"""Spans of time as people write them on a command line."""

import re

import click

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds from `90`, `90s`, `10m`, `1.5h` or `2d`; a callback of an option."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhd]?)", value)
    if not found or not float(found[1]):
        raise click.BadParameter(f"{value!r} is no duration: write 90s, 10m, 1h or 2d", ctx, param)
    return float(found[1]) * UNITS[found[2]]


def optional_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The same of an option that may be left away."""
    return None if value is None else seconds(ctx, param, value)
