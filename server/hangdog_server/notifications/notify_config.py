"""Reads the file that says who is notified, and of what. Addresses contain secrets and are in files of their own."""

import importlib.util
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

from hangdog_models.errors import WrongUse
from hangdog_server.toml_config import SettingsTable, Text, document, secret, table

#: Messages to one receiver within an hour by default: enough for a night of sixty different hangs, and fewer than a chat
#: takes for an attack (Slack takes one a second). The pages show what is left out.
PER_HOUR = 60
_HINT = "docs/notifications.md has an example"


class Subjects(StrEnum):
    """What a receiver can be notified of."""

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
    """A receiver of notifications. `url` is its address as Apprise writes it, and a secret."""

    name: str
    url: str = field(repr=False)
    about: frozenset[str]


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """The receivers, the most messages to each within an hour, and the address of the web pages (empty: none)."""

    receivers: tuple[Receiver, ...] = ()
    link: str = ""
    per_hour: int = PER_HOUR


class ReceiverTable(SettingsTable, frozen=True):
    """A table `[to.NAME]`."""

    url_file: Text
    about: Annotated[tuple[Subjects, ...], Meta(min_length=1)] = tuple(Subjects)


class NotifyFile(SettingsTable, frozen=True):
    """The whole file. The tables in `to` are read one by one, so that an error names the receiver."""

    to: Annotated[dict[str, Any], Meta(min_length=1)]
    link: str = ""
    per_hour: Annotated[int, Meta(ge=1)] = PER_HOUR

    def __post_init__(self) -> None:
        where = urlsplit(self.link)
        if self.link and (where.scheme not in ("http", "https") or not where.netloc or not self.link.isprintable()):
            raise ValueError(
                f'link = {self.link!r} is not the address of the web pages, such as "https://head-node:7413"'
            )


def read_config(path: Path) -> NotifyConfig:
    """What the file says. Raises WrongUse, which names the setting, and ModuleNotFoundError if the extra is not installed."""
    file = table(document(path, _HINT), NotifyFile, _HINT, path)
    receivers = tuple(_receiver(path, name, to) for name, to in file.to.items())
    if importlib.util.find_spec("apprise") is None:
        raise ModuleNotFoundError("apprise sends notifications", name="apprise")
    return NotifyConfig(receivers, file.link.rstrip("/"), file.per_hour)


def _receiver(path: Path, name: str, to: object) -> Receiver:
    if not name.isprintable() or len(name) > 100:
        raise WrongUse(f"{path}: to: {name[:100]!r} is not a name", "use a short name", code="wrong-setting")
    where = f"to.{name}"
    found = table(to, ReceiverTable, _HINT, path, where)
    url = secret(found.url_file, f"{path}: {where}").decode("ascii", "replace")
    if not url.isascii() or not url.isprintable() or "://" not in url:
        what = f"{path}: {where}: its url_file holds no address"
        raise WrongUse(what, "write one line, such as mailto://...", code="wrong-setting")
    return Receiver(name, url, frozenset(found.about))
