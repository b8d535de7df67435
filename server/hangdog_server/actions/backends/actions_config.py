"""Reads the file in which an operator says how far hangdog may go, within which bounds, and by which actors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.errors import WrongUse
from hangdog_server.actions.backends.alertmanager import Alertmanager
from hangdog_server.actions.backends.backend import Backend
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kubernetes_cordon import Kubernetes
from hangdog_server.actions.backends.no_action import Nothing
from hangdog_server.actions.backends.nvsentinel import SOCKET, NVSentinel
from hangdog_server.actions.backends.slurm_drain import Slurm
from hangdog_server.actions.backends.webhook import Webhook
from hangdog_server.actions.checkpoint_copies import Manifests
from hangdog_server.toml_config import TomlTable, document, only, table

#: Bytes of a secret at the least: 16 random ones are not guessed.
LEAST = 16
_EXAMPLE = "docs/acting.md has one to copy"


#: What is asked of people, and what is done without them.
_ASK, _AUTO = "ask", "auto"


@dataclass(frozen=True, slots=True)
class PolicyOfTests:
    """Whether machines that are out of use are tested without being asked, and whether those that pass are brought back so."""

    test: bool = False
    release: bool = False


@dataclass(frozen=True, slots=True)
class ActionsConfig:
    """What an operator chose: by itself hangdog touches nothing. While `stop` exists nothing is done either.

    `copies` tells who holds copies of a checkpoint; without it nobody asks.
    """

    mode: Mode = Mode.DRY_RUN
    caps: Caps = field(default_factory=Caps)
    actors: tuple[Backend, ...] = field(default_factory=lambda: (Nothing(),))
    stop: Path | None = None
    copies: Manifests | None = None
    testing: PolicyOfTests = PolicyOfTests()

    @property
    def reaches(self) -> bool:
        """Whether anything could be done to a machine or undone: not where nobody chose a backend."""
        return self.mode is not Mode.DRY_RUN or any(not isinstance(actor, Nothing) for actor in self.actors)


def chosen(path: Path, clock: Callable[[], float]) -> ActionsConfig:
    """What the file says; raises WrongUse, naming what is wrong: a bound that is misspelt must not be none."""
    stated = document(path, _EXAMPLE)
    only(stated, {"mode", "actors", "caps", "stop", "checkpoint", "policy", *_MAKERS}, str(path))
    mode = stated.get("mode", Mode.DRY_RUN.value)
    if mode not in list(Mode):
        raise WrongUse(f"{path}: {mode!r} is no mode", f"give one of {', '.join(Mode)}")
    names = stated.get("actors", [Nothing.name])
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in _MAKERS for name in names):
        raise WrongUse(f"{path}: actors = {names!r} is not a list of backends", f"give a list of {', '.join(_MAKERS)}")
    caps = table(stated, "caps", str(path))
    bounds = {one.name: one.type for one in fields(Caps)}
    only(caps, bounds.keys(), f"{path}, caps")
    for name, value in caps.items():
        if isinstance(value, bool) or not isinstance(value, int if bounds[name] is int else int | float):
            raise WrongUse(f"{path}: {name} = {value!r} is no bound", "give a number")
    try:
        bounded = Caps(**caps)
    except WrongUse as error:
        raise WrongUse(f"{path}: {error}", error.hint) from error
    stop = stated.get("stop", f"{path}.stop")
    if not isinstance(stop, str):
        raise WrongUse(f"{path}: stop = {stop!r} is no path", _EXAMPLE)
    checkpoint = TomlTable(f"{path}, checkpoint", table(stated, "checkpoint", str(path)), _EXAMPLE)
    copies = Manifests(checkpoint.take("copies")) if "checkpoint" in stated else None
    checkpoint.end()
    actors = tuple(
        _MAKERS[name](TomlTable(f"{path}, {name}", table(stated, name, str(path)), _EXAMPLE), clock)
        for name in dict.fromkeys(names)
    )
    policy = TomlTable(f"{path}, policy", table(stated, "policy", str(path)), _EXAMPLE)
    return ActionsConfig(Mode(mode), bounded, actors, Path(stop), copies, _testing(policy))


def _testing(words: TomlTable) -> PolicyOfTests:
    test, release = (_without_people(words, key) for key in ("test", "release"))
    words.end()
    if release and not test:
        raise WrongUse(
            f'{words.where}: release = "{_AUTO}" needs test = "{_AUTO}"', "set that too, or leave both to people"
        )
    return PolicyOfTests(test, release)


def _without_people(words: TomlTable, key: str) -> bool:
    value = words.take(key, _ASK)
    if value not in (_ASK, _AUTO):
        raise WrongUse(f"{words.where}: {key} = {value!r} is no choice", f'give "{_ASK}" or "{_AUTO}"')
    return value == _AUTO


def _slurm(words: TomlTable, clock: Callable[[], float]) -> Backend:
    requeue = words.yes("requeue", True)
    words.end()
    return Slurm(requeue)


def _webhook(words: TomlTable, clock: Callable[[], float]) -> Backend:
    url, secret = words.take("url"), words.secret("secret_file")
    if len(secret) < LEAST:
        raise WrongUse(
            f"{words.where}: the secret of secret_file is too short",
            f"give {LEAST} bytes at least: openssl rand -hex 32",
        )
    words.end()
    return Webhook(url, secret, clock)


def _alertmanager(words: TomlTable, clock: Callable[[], float]) -> Backend:
    url, cluster = words.take("url"), words.take("cluster", "")
    words.end()
    return Alertmanager(url, clock, cluster)


def _exclusion(words: TomlTable, clock: Callable[[], float]) -> Backend:
    path = words.take("path")
    words.end()
    return ExcludeFile(Path(path))


def _kubernetes(words: TomlTable, clock: Callable[[], float]) -> Backend:
    evict, api = words.yes("evict", True), _api(words)
    words.end()
    return Kubernetes(api, clock, evict)


def _nvsentinel(words: TomlTable, clock: Callable[[], float]) -> Backend:
    socket, act, api = words.take("socket", SOCKET), words.yes("act", False), _api(words)
    words.end()
    return NVSentinel(api, clock, socket, act)


def _api(words: TomlTable) -> KubeApi:
    url, token, ca = words.take("url", ""), words.take("token_file", ""), words.take("ca_file", "")
    return KubeApi(url, Path(token), ca) if url else KubeApi.own()


def _nothing(words: TomlTable, clock: Callable[[], float]) -> Backend:
    words.end()
    return Nothing()


_MAKERS: Mapping[str, Callable[[TomlTable, Callable[[], float]], Backend]] = {
    Nothing.name: _nothing,
    Slurm.name: _slurm,
    Kubernetes.name: _kubernetes,
    NVSentinel.name: _nvsentinel,
    Webhook.name: _webhook,
    Alertmanager.name: _alertmanager,
    ExcludeFile.name: _exclusion,
}
