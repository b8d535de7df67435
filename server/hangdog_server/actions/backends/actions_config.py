"""Reads the file that says what hangdog may do to machines: the mode, the bounds and the backends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.errors import WrongUse
from hangdog_models.planning.campaign.level_planner import REPLAY_S
from hangdog_models.planning.campaign.replay_planner import FEWEST, LEAST_REPLAY_S, MOST_NAME, MOST_REPLAY_S
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
from hangdog_server.settings import ServerSettings
from hangdog_server.store.machine_history import MOST
from hangdog_server.toml_config import SettingsTable, Text, document, secret, table

#: Least bytes of a secret: 16 random ones cannot be guessed.
LEAST = 16
#: Machines that no campaign exceeds.
_MACHINES = ServerSettings().campaign_machines
_HINT = "docs/acting.md has an example"
_Clock = Callable[[], float]
_Policy = Literal["ask", "auto"]


@dataclass(frozen=True, slots=True)
class PolicyOfReplays:
    """What level 5 replays on isolated machines without a person: a name, by the first pattern of `jobs` that fits the job.

    The name "" stands for the small GPT. More than `machines` are not replayed. One replay takes `time_s` seconds at most.
    A group has `group_size` machines, 0: as many as tell machines apart best.
    """

    jobs: Mapping[str, str]
    machines: int
    time_s: float
    group_size: int

    def name(self, job: str) -> str | None:
        """What is replayed for a job; None: nothing."""
        return next((name for pattern, name in self.jobs.items() if fnmatchcase(job, pattern)), None)


@dataclass(frozen=True, slots=True)
class PolicyOfTests:
    """Whether isolated machines are tested without a person, and whether those that pass are released without one.

    With `replay` level 5 follows without a person where the other levels convicted nobody.
    """

    test: bool = False
    release: bool = False
    replay: PolicyOfReplays | None = None


@dataclass(frozen=True, slots=True)
class ActionsConfig:
    """What hangdog may do; by default it touches no machine. While `stop` exists, nothing is done either.

    `copies` tells which machines hold copies of a checkpoint; without it that is not checked.
    """

    mode: Mode = Mode.DRY_RUN
    caps: Caps = field(default_factory=Caps)
    actors: tuple[Backend, ...] = (Nothing(),)
    stop: Path | None = None
    copies: Manifests | None = None
    testing: PolicyOfTests = PolicyOfTests()

    @property
    def reaches(self) -> bool:
        """Whether a machine can be isolated or released: not if only the backend `none` is configured."""
        return self.mode is not Mode.DRY_RUN or any(not isinstance(actor, Nothing) for actor in self.actors)


class BackendTable(SettingsTable, frozen=True):
    """The settings of one backend. The backend `none` has no settings."""

    def backend(self, where: str, clock: _Clock) -> Backend:
        """The backend with these settings; raises WrongUse, which says `where` they are."""
        return Nothing()


class SlurmTable(BackendTable, frozen=True):
    requeue: bool = True

    def backend(self, where: str, clock: _Clock) -> Backend:
        return Slurm(self.requeue)


class KubeTable(BackendTable, frozen=True):
    url: str = ""
    token_file: str = ""
    ca_file: str = ""

    def api(self) -> KubeApi:
        return KubeApi(self.url, Path(self.token_file), self.ca_file) if self.url else KubeApi.own()


class KubernetesTable(KubeTable, frozen=True):
    evict: bool = True

    def backend(self, where: str, clock: _Clock) -> Backend:
        return Kubernetes(self.api(), clock, self.evict)


class NVSentinelTable(KubeTable, frozen=True):
    socket: str = SOCKET
    act: bool = False

    def backend(self, where: str, clock: _Clock) -> Backend:
        return NVSentinel(self.api(), clock, self.socket, self.act)


class WebhookTable(BackendTable, frozen=True):
    url: Text
    secret_file: Text

    def backend(self, where: str, clock: _Clock) -> Backend:
        key = secret(self.secret_file, where)
        if len(key) < LEAST:
            hint = f"at least {LEAST} bytes: openssl rand -hex 32"
            raise WrongUse(f"{where}: the secret in secret_file is too short", hint, code="wrong-setting")
        return Webhook(self.url, key, clock)


class AlertmanagerTable(BackendTable, frozen=True):
    url: Text
    cluster: str = ""

    def backend(self, where: str, clock: _Clock) -> Backend:
        return Alertmanager(self.url, clock, self.cluster)


class ExcludeFileTable(BackendTable, frozen=True):
    path: Text

    def backend(self, where: str, clock: _Clock) -> Backend:
        return ExcludeFile(Path(self.path))


_BACKENDS: Mapping[str, type[BackendTable]] = {
    Nothing.name: BackendTable,
    Slurm.name: SlurmTable,
    Kubernetes.name: KubernetesTable,
    NVSentinel.name: NVSentinelTable,
    Webhook.name: WebhookTable,
    Alertmanager.name: AlertmanagerTable,
    ExcludeFile.name: ExcludeFileTable,
}


class CheckpointTable(SettingsTable, frozen=True):
    copies: Text


class ReplayTable(SettingsTable, frozen=True):
    #: Pattern of a job's name -> name of what is replayed.
    jobs: dict[Text, Annotated[str, Meta(max_length=MOST_NAME)]] = msgspec.field(default_factory=dict)
    #: A hypothesis of more machines says nothing about any of them, and the more are sound, the more rounds show it.
    machines: Annotated[int, Meta(ge=FEWEST, le=_MACHINES)] = MOST
    time_s: Annotated[float, Meta(ge=LEAST_REPLAY_S, le=MOST_REPLAY_S)] = REPLAY_S
    group_size: Annotated[int, Meta(ge=0, le=_MACHINES)] = 0

    def __post_init__(self) -> None:
        if self.group_size == 1:
            raise ValueError("a replay needs groups of two machines or more")


class PolicyTable(SettingsTable, frozen=True):
    test: _Policy = "ask"
    release: _Policy = "ask"
    replay: _Policy = "ask"

    def __post_init__(self) -> None:
        if "auto" in (self.release, self.replay) and self.test != "auto":
            what = "release" if self.release == "auto" else "replay"
            raise ValueError(f'{what} = "auto" needs test = "auto"')


class ActingFile(SettingsTable, frozen=True, rename={"exclude_file": ExcludeFile.name}):
    """The whole file. The table of a backend is checked only if `actors` names the backend."""

    mode: Mode = Mode.DRY_RUN
    actors: Annotated[
        tuple[Literal["none", "slurm", "kubernetes", "nvsentinel", "webhook", "alertmanager", "exclude-file"], ...],
        Meta(min_length=1),
    ] = ("none",)
    caps: Caps = Caps()
    stop: Text = ""
    checkpoint: CheckpointTable = CheckpointTable("")
    policy: PolicyTable = PolicyTable()
    replay: ReplayTable = ReplayTable()
    none: dict[str, Any] = msgspec.field(default_factory=dict)
    slurm: dict[str, Any] = msgspec.field(default_factory=dict)
    kubernetes: dict[str, Any] = msgspec.field(default_factory=dict)
    nvsentinel: dict[str, Any] = msgspec.field(default_factory=dict)
    webhook: dict[str, Any] = msgspec.field(default_factory=dict)
    alertmanager: dict[str, Any] = msgspec.field(default_factory=dict)
    exclude_file: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy.replay == "auto" and not self.replay.jobs:
            raise ValueError('replay = "auto" needs [replay.jobs], which says what is replayed for which job')

    @property
    def replays(self) -> PolicyOfReplays | None:
        """What is replayed without a person; None: nothing."""
        if self.policy.replay != "auto":
            return None
        chosen = self.replay
        return PolicyOfReplays(chosen.jobs, chosen.machines, chosen.time_s, chosen.group_size)


def chosen(path: Path, clock: _Clock) -> ActionsConfig:
    """What the file says; raises WrongUse, which names each setting that is wrong or unknown."""
    found = document(path, _HINT)
    file = table(found, ActingFile, _HINT, path)
    actors = tuple(
        table(found.get(name, {}), _BACKENDS[name], _HINT, path, name).backend(f"{path}: {name}", clock)
        for name in dict.fromkeys(file.actors)
    )
    copies = Manifests(file.checkpoint.copies) if file.checkpoint.copies else None
    policy = PolicyOfTests(file.policy.test == "auto", file.policy.release == "auto", file.replays)
    return ActionsConfig(file.mode, file.caps, actors, Path(file.stop or f"{path}.stop"), copies, policy)
