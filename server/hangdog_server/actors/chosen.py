"""Reads the file in which an operator says how far hangdog may go, within which bounds, and by which actors."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hangdog_models.acting.caps import Caps, Mode
from hangdog_models.errors import WrongUse
from hangdog_server.actors.actor import Actor
from hangdog_server.actors.alertmanager import Alertmanager
from hangdog_server.actors.exclusion import Exclusion
from hangdog_server.actors.kube_api import KubeApi
from hangdog_server.actors.kubernetes import Kubernetes
from hangdog_server.actors.nothing import Nothing
from hangdog_server.actors.nvsentinel import SOCKET, NVSentinel
from hangdog_server.actors.slurm import Slurm
from hangdog_server.actors.webhook import Webhook
from hangdog_server.manifests import Manifests

#: Bytes of the file, and of a secret.
MOST, SECRET = 1 << 20, 4096
_EXAMPLE = "docs/acting.md has one to copy"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an operator chose: by itself hangdog touches nothing. While `stop` exists nothing is done either.

    `copies` tells who holds copies of a checkpoint; without it nobody asks.
    """

    mode: Mode = Mode.DRY_RUN
    caps: Caps = field(default_factory=Caps)
    actors: tuple[Actor, ...] = field(default_factory=lambda: (Nothing(),))
    stop: Path | None = None
    copies: Manifests | None = None


def chosen(path: Path, clock: Callable[[], float]) -> Chosen:
    """What the file says; raises WrongUse, naming what is wrong: a bound that is misspelt must not be none."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST).decode("utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongUse(f"cannot read {path}: {error}", _EXAMPLE) from error
    known = {"mode", "actors", "caps", "stop", "checkpoint", *_MAKERS}
    _only(document, known, str(path))
    mode = document.get("mode", Mode.DRY_RUN.value)
    if mode not in list(Mode):
        raise WrongUse(f"{path}: {mode!r} is no mode", f"give one of {', '.join(Mode)}")
    names = document.get("actors", [Nothing.name])
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in _MAKERS for name in names):
        raise WrongUse(f"{path}: actors = {names!r} names none", f"give a list of {', '.join(_MAKERS)}")
    caps = _table(document, "caps", path)
    bounds = {one.name: one.type for one in fields(Caps)}
    _only(caps, bounds.keys(), f"{path}, caps")
    for name, value in caps.items():
        if isinstance(value, bool) or not isinstance(value, int if bounds[name] is int else int | float):
            raise WrongUse(f"{path}: {name} = {value!r} is no bound", "give a number")
    try:
        bounded = Caps(**caps)
    except WrongUse as error:
        raise WrongUse(f"{path}: {error}", error.hint) from error
    stop = document.get("stop", f"{path}.stop")
    if not isinstance(stop, str):
        raise WrongUse(f"{path}: stop = {stop!r} is no path", _EXAMPLE)
    checkpoint = _Words(path, "checkpoint", _table(document, "checkpoint", path))
    copies = Manifests(checkpoint.take("copies")) if "checkpoint" in document else None
    checkpoint.end()
    actors = tuple(
        _MAKERS[name](_Words(path, name, _table(document, name, path)), clock) for name in dict.fromkeys(names)
    )
    return Chosen(Mode(mode), bounded, actors, Path(stop), copies)


class _Words:
    """One table of settings, from which everything that was said must be taken."""

    def __init__(self, path: Path, name: str, table: Mapping[str, Any]) -> None:
        self._where = f"{path}, {name}"
        self._table = dict(table)

    def take(self, key: str, default: str | None = None) -> str:
        value = self._table.pop(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise WrongUse(f"{self._where}: {key} is needed, as text", _EXAMPLE)
        return value

    def yes(self, key: str, default: bool) -> bool:
        value = self._table.pop(key, default)
        if not isinstance(value, bool):
            raise WrongUse(f"{self._where}: {key} = {value!r} is neither true nor false", _EXAMPLE)
        return value

    def secret(self, key: str) -> bytes:
        """What a file holds; the settings themselves are no place for it."""
        file = self.take(key)
        try:
            with Path(file).open("rb") as opened:
                found = opened.read(SECRET).strip()
        except OSError as error:
            raise WrongUse(
                f"{self._where}: cannot read {file}: {error.strerror}", "give a file that holds it"
            ) from error
        if len(found) < 16:
            raise WrongUse(
                f"{self._where}: the secret in {file} is too short", "give 16 bytes at least: openssl rand -hex 32"
            )
        return found

    def end(self) -> None:
        _only(self._table, (), self._where)


def _slurm(words: _Words, clock: Callable[[], float]) -> Actor:
    requeue = words.yes("requeue", True)
    words.end()
    return Slurm(requeue)


def _webhook(words: _Words, clock: Callable[[], float]) -> Actor:
    url, secret = words.take("url"), words.secret("secret_file")
    words.end()
    return Webhook(url, secret, clock)


def _alertmanager(words: _Words, clock: Callable[[], float]) -> Actor:
    url, cluster = words.take("url"), words.take("cluster", "")
    words.end()
    return Alertmanager(url, clock, cluster)


def _exclusion(words: _Words, clock: Callable[[], float]) -> Actor:
    path = words.take("path")
    words.end()
    return Exclusion(Path(path))


def _kubernetes(words: _Words, clock: Callable[[], float]) -> Actor:
    evict, api = words.yes("evict", True), _api(words)
    words.end()
    return Kubernetes(api, clock, evict)


def _nvsentinel(words: _Words, clock: Callable[[], float]) -> Actor:
    socket, act, api = words.take("socket", SOCKET), words.yes("act", False), _api(words)
    words.end()
    return NVSentinel(api, clock, socket, act)


def _api(words: _Words) -> KubeApi:
    url, token, ca = words.take("url", ""), words.take("token_file", ""), words.take("ca_file", "")
    return KubeApi(url, Path(token), ca) if url else KubeApi.own()


def _nothing(words: _Words, clock: Callable[[], float]) -> Actor:
    words.end()
    return Nothing()


_MAKERS: Mapping[str, Callable[[_Words, Callable[[], float]], Actor]] = {
    Nothing.name: _nothing,
    Slurm.name: _slurm,
    Kubernetes.name: _kubernetes,
    NVSentinel.name: _nvsentinel,
    Webhook.name: _webhook,
    Alertmanager.name: _alertmanager,
    Exclusion.name: _exclusion,
}


def _table(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise WrongUse(f"{path}: {name} is no table", f"write [{name}] and a setting a line below it")
    return table


def _only(table: Mapping[str, Any], known: Any, where: str) -> None:
    if unknown := sorted(set(table) - set(known)):
        named = ", ".join(sorted(known)) or "nothing"
        raise WrongUse(f"{where}: {', '.join(unknown)} is no setting", f"known: {named}")
