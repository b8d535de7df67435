"""The laws of every actor, held by each: marks are ours and once, another's are never touched, failures say what to do."""

import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from hangdog_server.actions.backends.alertmanager import Alertmanager
from hangdog_server.actions.backends.backend import OURS, Backend, BackendFailed, IsolationCase, Mark
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kubernetes_cordon import Kubernetes
from hangdog_server.actions.backends.no_action import Nothing
from hangdog_server.actions.backends.nvsentinel import OPTED_OUT, NVSentinel
from hangdog_server.actions.backends.slurm_drain import Slurm
from hangdog_server.actions.backends.webhook import Webhook
from support.fakes import fake_kube, fake_nvsentinel
from support.fakes.fake_kube import RIGHT, Kube
from support.fakes.fake_nvsentinel import Connector
from support.fakes.receiver import receiving
from support.real.real_kube import ACTING, RealKube

SECRET = b"0123456789abcdef"
#: Names that a scheduler might take for more than one machine, or for an option.
HOSTILE = (
    "ALL",
    "all",
    "node[1-3]",
    "node1,node2",
    "-f",
    "",
    "a b",
    "../x",
    "#node1",
    "node1\nnode2",
    "node1 state=down",
)


#: Real schedulers, of which each worker has its own.
REAL = pytest.mark.slow, pytest.mark.parallel


@dataclass
class Subject:
    """An actor and its world: `foreign` has another owner mark a machine, `reason` is what stands at one ('': nothing).

    `words` are the other owner's.
    """

    actor: Backend
    away: Backend
    foreign: Callable[[str], None] | None = None
    reason: Callable[[str], str] | None = None
    words: str = "ops: fan 3"


@pytest.fixture(
    params=[
        "none", "exclude-file", "webhook", "kubernetes", "nvsentinel",
        pytest.param("alertmanager", marks=REAL), pytest.param("slurm", marks=REAL),
        pytest.param("kube-apiserver", marks=REAL),
    ]
)  # fmt: skip
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with AsyncExitStack() as stack:
        if request.param == "none":
            found = Subject(Nothing(), Nothing())
        elif request.param == "exclude-file":
            file = tmp_path / "excluded"
            file.write_text("# kept by hand\nother-7\n")
            found = Subject(ExcludeFile(file), ExcludeFile(tmp_path / "no" / "such"), _line(file), _lines(file))
        elif request.param == "webhook":
            receiver = await stack.enter_async_context(receiving())
            found = Subject(
                Webhook(receiver.url, SECRET, time.monotonic), Webhook("http://127.0.0.1:9/", SECRET, time.monotonic)
            )
        elif request.param == "kubernetes":
            kube = await stack.enter_async_context(fake_kube.serving())
            found = _kubernetes(kube, tmp_path / "token")
        elif request.param == "kube-apiserver":
            real: RealKube = request.getfixturevalue("apiserver")
            found = _real_kubernetes(real, tmp_path / "token")
            stack.callback(real.restore)
        elif request.param == "nvsentinel":
            kube = await stack.enter_async_context(fake_kube.serving())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # a socket's path has 107 characters
            connector = await stack.enter_async_context(fake_nvsentinel.serving(folder / "s"))
            found = _nvsentinel(kube, connector, tmp_path / "token")
        elif request.param == "alertmanager":
            now = time.time  # noqa: TID251  # it goes by the clock of this machine
            found = Subject(
                Alertmanager(request.getfixturevalue("alerts"), now), Alertmanager("http://127.0.0.1:9", now)
            )
        else:
            cluster = request.getfixturevalue("cluster")
            nowhere = tmp_path / "slurm.conf"
            nowhere.write_text(cluster.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1#"))

            def foreign(machine: str) -> None:
                cluster.say("scontrol", "update", f"nodename={machine}", "state=drain", "reason=ops: fan 3")

            def reason(machine: str) -> str:
                state, reason = cluster.state(machine)
                return reason if "drain" in state else ""

            found = Subject(
                Slurm(environ=cluster.environ),
                Slurm(environ={**cluster.environ, "SLURM_CONF": str(nowhere)}),
                foreign,
                reason,
            )
            stack.callback(cluster.restore)
        stack.push_async_callback(found.actor.close)
        stack.push_async_callback(found.away.close)
        yield found


def _kubernetes(kube: Kube, token: Path) -> Subject:
    token.write_text(RIGHT)
    for number in (1, 2, 3):
        kube.add_node(f"node{number}")

    def foreign(machine: str) -> None:
        kube.change(machine, unschedulable=True)
        kube.nodes[machine]["metadata"]["annotations"] = {"ops/cordon-reason": "ops: fan 3"}

    def reason(machine: str) -> str:
        node = kube.nodes[machine]
        told = node["metadata"].get("annotations", {})
        words = "".join(told.values())
        return str(words) if node["spec"].get("unschedulable") else ""

    def actor(url: str) -> Kubernetes:
        return Kubernetes(KubeApi(url, token, ""), lambda: 0.0)

    return Subject(actor(kube.url), actor("http://127.0.0.1:9"), foreign, reason)


def _real_kubernetes(kube: RealKube, token: Path) -> Subject:
    token.write_text(ACTING)
    for number in (1, 2, 3):
        kube.add_node(f"node{number}")

    def foreign(machine: str) -> None:
        kube.change(machine, {"ops/cordon-reason": "ops: fan 3"}, unschedulable=True)

    def reason(machine: str) -> str:
        node = kube.node(machine)
        words = "".join(node["metadata"].get("annotations", {}).values())
        return words if node["spec"].get("unschedulable") else ""

    def actor(url: str) -> Kubernetes:
        return Kubernetes(KubeApi(url, token, str(kube.ca)), lambda: 0.0)

    return Subject(actor(kube.url), actor("https://127.0.0.1:9"), foreign, reason)


def _nvsentinel(kube: Kube, connector: Connector, token: Path) -> Subject:
    token.write_text(RIGHT)
    for number in (1, 2, 3):
        kube.add_node(f"node{number}")

    def foreign(machine: str) -> None:
        kube.nodes[machine]["metadata"]["labels"][OPTED_OUT] = "false"

    def reason(machine: str) -> str:
        said: dict[str, str] = {}
        for event in connector.events:
            told = MessageToDict(event)
            if told["nodeName"] == machine:
                (part,) = told["entitiesImpacted"]
                said |= {part["entityValue"]: "" if told.get("isHealthy") else told["message"]}
        return "".join(said.values())

    def actor(socket: Path) -> NVSentinel:
        return NVSentinel(KubeApi(kube.url, token, ""), lambda: 0.0, str(socket))

    away = actor(connector.socket.with_name("away"))
    return Subject(actor(connector.socket), away, foreign, reason, f"{OPTED_OUT}=false")


def _line(file: Path) -> Callable[[str], None]:
    def foreign(machine: str) -> None:
        file.write_text(f"{file.read_text()}{machine} # ops: fan 3\n")

    return foreign


def _lines(file: Path) -> Callable[[str], str]:
    def reason(machine: str) -> str:
        lines = [line.partition("#") for line in file.read_text().splitlines()]
        assert lines[0][2] == " kept by hand" and lines[1][0] == "other-7", "what others wrote stays"
        return "".join(reason.strip() for name, _, reason in lines if name.strip() == machine)

    return reason


CASE = IsolationCase("0a1b", "node1", "llama", "rank 3 is in gc_collect | x = [1]\nand stands")


def test_it_is_an_actor(subject: Subject) -> None:
    assert isinstance(subject.actor, Backend) and subject.actor.again_s >= 0


async def test_a_mark_is_ours_and_once_and_is_taken_away_again(subject: Subject) -> None:
    actor = subject.actor
    tells = (await actor.look(CASE)).mark is not Mark.UNKNOWN
    await actor.unmark(CASE)
    if tells:
        assert (await actor.look(CASE)).mark is Mark.NONE
    for _ in range(2):
        await actor.mark(CASE)
        if tells:
            standing = await actor.look(CASE)
            assert (standing.mark, standing.incident) == (Mark.OURS, "0a1b")
            assert standing.reason == CASE.reason and "\n" not in CASE.reason and CASE.reason.startswith(OURS)
    for _ in range(2):
        await actor.unmark(CASE)
        if tells:
            assert (await actor.look(CASE)).mark is Mark.NONE


async def test_the_mark_of_one_incident_is_not_anothers(subject: Subject) -> None:
    if subject.reason is None:
        pytest.skip("whoever is told keeps one mark for each incident, or none")
    actor, other = subject.actor, replace(CASE, incident="0c2d")
    await actor.mark(CASE)
    await actor.mark(other)
    if (standing := await actor.look(other)).mark is not Mark.UNKNOWN:
        assert standing.incident == "0a1b"
    await actor.unmark(other)
    assert subject.reason("node1") == CASE.reason
    await actor.unmark(CASE)
    assert subject.reason("node1") == ""


async def test_what_another_owner_marked_is_left_alone(subject: Subject) -> None:
    if subject.foreign is None or subject.reason is None:
        pytest.skip("there are no other owners here")
    subject.foreign("node1")
    before = subject.reason("node1")
    assert (await subject.actor.look(CASE)).mark is Mark.ANOTHERS
    for act in (subject.actor.mark, subject.actor.unmark):
        with pytest.raises(BackendFailed) as caught:
            await act(CASE)
        assert caught.value.code == "already-isolated" and subject.words in str(caught.value)
        assert caught.value.hint and not caught.value.again
    assert subject.reason("node1") == before


async def test_a_name_means_one_machine_or_nothing(subject: Subject) -> None:
    for name in HOSTILE:
        with suppress(BackendFailed):
            await subject.actor.mark(replace(CASE, machine=name))
        if subject.reason is not None:
            assert [subject.reason(f"node{number}") for number in (1, 2, 3)] == ["", "", ""], name


async def test_who_is_away_is_tried_again(subject: Subject) -> None:
    if isinstance(subject.away, Nothing):
        return
    with pytest.raises(BackendFailed) as caught:
        await subject.away.mark(CASE)
    assert caught.value.again and str(caught.value) and caught.value.hint
