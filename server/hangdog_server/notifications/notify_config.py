"""Reads the file in which an operator says who is told, and of what; addresses hold secrets and stand in files of their own."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from hangdog_models.errors import WrongUse
from hangdog_server.toml_config import TomlTable, document, table

#: Messages to one receiver within an hour, without a word: more than a night of sixty different hangs, and fewer than a chat
#: takes for an attack (Slack takes one a second). What is left out stands on the pages.
PER_HOUR = 60
_EXAMPLE = "docs/notifications.md has one to copy"


class Subjects(StrEnum):
    """What somebody may want to be told of."""

    OPENED = "opened"  # a job stands still, or somebody asked: it is being looked at
    JUDGED = "judged"  # there is a verdict, another one, or none can be had
    RESPONSE = "response"  # somebody has it, gave it back, resolved, dismissed or reopened it
    RECOVERED = "recovered"  # a job that stood still goes on
    APPROVAL = "approval"  # machines wait for a person to decide
    ACTED = "acted"  # what was done to machines, or was not, and why
    CONVICTED = "convicted"  # a campaign of tests named a machine
    BREAKER = "breaker"  # nothing is done to machines any more, or again


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody who is told: `url` says how, as Apprise writes it, and is a secret."""

    name: str
    url: str = field(repr=False)
    about: frozenset[str]


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Who is told, how many messages an hour each gets at most, and where pages are for people (empty: nowhere)."""

    receivers: tuple[Receiver, ...] = ()
    link: str = ""
    per_hour: int = PER_HOUR


def read_config(path: Path) -> NotifyConfig:
    """What the file says; raises WrongUse, naming what is wrong, and ModuleNotFoundError where the extra is not installed."""
    stated = document(path, _EXAMPLE)
    receivers = tuple(_receiver(f"{path}, to.{name}", name, to) for name, to in table(stated, "to", str(path)).items())
    stated.pop("to", None)
    words = TomlTable(str(path), stated, _EXAMPLE)
    link, per_hour = words.take("link", "").rstrip("/"), words.number("per_hour", PER_HOUR)
    words.end()
    if link and (urlsplit(link).scheme not in ("http", "https") or not urlsplit(link).netloc or not link.isprintable()):
        raise WrongUse(
            f"{path}: link = {link!r} is not the address of the web pages", 'write link = "https://head-node:7413"'
        )
    if not receivers:
        raise WrongUse(f"{path} names no receiver", _EXAMPLE)
    if importlib.util.find_spec("apprise") is None:
        raise ModuleNotFoundError("apprise sends notifications", name="apprise")
    return NotifyConfig(receivers, link, per_hour)


def _receiver(where: str, name: str, to: object) -> Receiver:
    if not isinstance(to, Mapping):
        raise WrongUse(f"{where} is no table", _EXAMPLE)
    if not name.isprintable() or len(name) > 100:
        raise WrongUse(f"{where} is no name", "give a short one")
    words = TomlTable(where, to, _EXAMPLE)
    about, url = words.names("about", Subjects), words.secret("url_file")
    words.end()
    try:
        written = url.decode("ascii")
    except UnicodeDecodeError:
        written = ""
    if not written.isprintable() or "://" not in written:
        raise WrongUse(f"{where}: its url_file holds no address", "write one line, such as mailto://...")
    return Receiver(name, written, frozenset(about))
