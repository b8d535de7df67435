"""The files in deploy/: they parse, what they name exists, and they grant what `hangdog doctor` names and no more."""

import configparser
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hangdog.commands.operate.server import command as server_command
from hangdog.main import LINES
from hangdog_agent import main as agent_main
from hangdog_agent.confinement.capabilities import CAPABILITIES, SYSLOG, RuntimePlace, grant
from hangdog_models.errors import HangdogError
from hangdog_proto.client.server_address import DEFAULT_ADDRESS
from hangdog_server.actions.backends.kube_restarts import READ
from hangdog_server.settings import ServerSettings
from support.cases.manifests import documents

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sh"))
PORT = int(DEFAULT_ADDRESS.rpartition(":")[2])


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod that the manifests describe, by its file."""
    for path in MANIFESTS:
        for document in documents(path):
            if document["kind"] == "Pod":
                yield path.name, document["spec"]
            elif "template" in document.get("spec", {}):
                yield path.name, document["spec"]["template"]["spec"]


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every container of ours, by its file."""
    for name, spec in pods():
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if container["image"].startswith("hangdog-"):
                yield name, container


def manifest(name: str, kind: str) -> Any:
    return next(made for made in documents(DEPLOY / "kubernetes" / name) if made["kind"] == kind)


def test_acting_takes_the_rights_it_uses_and_no_more() -> None:
    rules = manifest("acting.yaml", "ClusterRole")["rules"]
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    used = {
        ("", "nodes", "get"),
        ("", "nodes", "patch"),
        ("", "nodes/status", "patch"),
        ("", "pods", "list"),
        ("", "pods/eviction", "create"),
    }
    assert granted == used | {(group, plural, "get") for (group, _), plural in READ.items()}


def test_there_is_something_to_test() -> None:
    assert [path.name for path in MANIFESTS] == [
        "acting.yaml",
        "agent.yaml",
        "server.yaml",
        "sidecar.yaml",
        "spares.yaml",
        "tester.yaml",
    ]
    assert [path.name for path in UNITS] == ["hangdog-agent.service", "hangdog-server.service"]
    assert [path.name for path in SCRIPTS] == ["epilog.sh", "gate.sh", "prolog.sh"]
    assert len(list(containers())) == 4


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_what_kubectl_reads(path: Path) -> None:
    """The fields, too: `set env` reads objects by their types, and drops what those do not have."""
    ours = documents(path)
    assert all(document["apiVersion"] and document["metadata"]["name"] for document in ours)
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: its reading cannot be compared with ours")
    with_pods = [document for document in ours if "containers" in json.dumps(document)]
    for command in (("label", "x=y"), ("set", "env", "X=y")):
        *verb, change = command
        call = ("kubectl", *verb, "--local", "-f", os.fspath(path), change, "-o", "json")
        said = subprocess.run(call, capture_output=True, text=True, check=False)
        if verb == ["label"]:
            assert said.returncode == 0, said.stderr
        theirs = several(said.stdout)
        for mine in ours if verb == ["label"] else with_pods:
            same = next(their for their in theirs if their["kind"] == mine["kind"])
            assert not list(lacks(mine, same)), f"{path.name}: {list(lacks(mine, same))}"


def several(text: str) -> list[Any]:
    """JSON documents written one after the other."""
    found: list[Any] = []
    decoder = json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found, text = [*found, *document.get("items", [document])], text[end:]
    return found


def lacks(mine: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What stands in one document and not, or otherwise, in the other."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key, value in mine.items():
            yield from lacks(value, theirs[key], f"{where}.{key}") if key in theirs else [f"{where}.{key}"]
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) <= len(theirs):
        for at, value in enumerate(mine):
            yield from lacks(value, theirs[at], f"{where}[{at}]")
    elif str(mine) != str(theirs):
        yield where


def test_images_are_targets_of_the_dockerfile_of_this_version() -> None:
    targets = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    for name, container in containers():
        image, _, tag = container["image"].partition(":")
        assert image.removeprefix("hangdog-") in targets, name
        assert tag == version("hangdog"), name


def test_arguments_are_options_that_exist() -> None:
    for name, container in containers():
        if "args" in container:
            parser = agent_main._parser()
            assert {word for word in container["args"] if word.startswith("--")} <= set(parser._option_string_actions)
            options = parser.parse_args(container["args"])
            assert options.server == f"hangdog-server.hangdog.svc:{PORT}", name
            names = [variable["name"] for variable in container["env"]]
            assert options.machine == "$(NODE_NAME)" and "NODE_NAME" in names, name
    with pytest.raises(HangdogError):
        agent_main._parser().parse_args(["--no-such-option"])


def test_agents_reach_the_server_s_port_under_the_name_they_use() -> None:
    service, policy = manifest("server.yaml", "Service"), manifest("server.yaml", "NetworkPolicy")
    deployment, daemon = manifest("server.yaml", "Deployment"), manifest("agent.yaml", "DaemonSet")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == ("hangdog-server", "hangdog")
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (port,) = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert service["spec"]["ports"] == [{"name": port["name"], "port": PORT, "targetPort": port["name"]}]
    assert port["containerPort"] == PORT
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": PORT}]
    allowed = [source["podSelector"]["matchLabels"] for source in rule["from"]]
    agents = [daemon["spec"]["template"]["metadata"]["labels"], manifest("sidecar.yaml", "Pod")["metadata"]["labels"]]
    agents.append(manifest("tester.yaml", "Job")["spec"]["template"]["metadata"]["labels"])
    assert all(any(one.items() <= agent.items() for one in allowed) for agent in agents)


def test_the_store_lies_where_the_image_s_server_writes() -> None:
    spec = manifest("server.yaml", "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert f'"--store", "{mounts["store"]}/' in (ROOT / "Dockerfile").read_text("utf-8")
    (volume,) = (each for each in spec["template"]["spec"]["volumes"] if each["name"] == "store")
    claim = manifest("server.yaml", "PersistentVolumeClaim")["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim


def test_each_finds_its_certificate_where_it_is_mounted() -> None:
    """The machine's own, read-only, never one secret for all; the server's where its image looks for it."""
    for name, spec in pods():
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if not container["image"].startswith("hangdog-"):
                continue
            told = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            image = re.search(r"^ENV HANGDOG_TLS=(\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
            assert image is not None
            place = image[1] if name == "server.yaml" else told["HANGDOG_TLS"]
            (mount,) = (each for each in container["volumeMounts"] if each["mountPath"] == place)
            assert mount["readOnly"] is True, name
            (volume,) = (each for each in spec["volumes"] if each["name"] == mount["name"])
            if name == "server.yaml":
                assert volume["secret"]["defaultMode"] == 0o440
            else:
                assert volume["hostPath"] == {"path": place, "type": "Directory"}, name


def test_probes_ask_a_server_that_speaks_tls() -> None:
    """Kubernetes' own gRPC probes know none."""
    (container,) = manifest("server.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        program, command = container[probe]["exec"]["command"]
        assert program == "hangdog" and command in LINES
        assert container[probe]["timeoutSeconds"] < container[probe]["periodSeconds"]


def test_pods_that_hold_spares_give_way_to_any_other_and_are_one_a_machine() -> None:
    priority, spares = manifest("spares.yaml", "PriorityClass"), manifest("spares.yaml", "Deployment")["spec"]
    pod, labels = spares["template"]["spec"], spares["template"]["metadata"]["labels"]
    assert pod["priorityClassName"] == priority["metadata"]["name"]
    assert priority["value"] < 0 and priority["preemptionPolicy"] == "Never" and priority["globalDefault"] is False
    assert spares["selector"]["matchLabels"] == labels and pod["terminationGracePeriodSeconds"] == 0
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] > 0


def test_a_tester_takes_the_place_of_the_agent_on_the_machines_that_are_marked_for_it() -> None:
    job, agent = manifest("tester.yaml", "Job")["spec"], manifest("agent.yaml", "DaemonSet")["spec"]["template"]["spec"]
    pod, labels = job["template"]["spec"], job["template"]["metadata"]["labels"]
    (term,) = agent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (mark,) = pod["nodeSelector"]
    assert term["matchExpressions"] == [{"key": mark, "operator": "DoesNotExist"}]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    assert job["parallelism"] == job["completions"] and job["activeDeadlineSeconds"] == ServerSettings().max_campaign_s
    assert pod["tolerations"] == agent["tolerations"] == [{"operator": "Exists"}]
    (tester,), (resident,) = pod["containers"], agent["containers"]
    assert tester["resources"]["limits"]["nvidia.com/gpu"] > 0
    places = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert places == {volume["hostPath"]["path"] for volume in agent["volumes"] if "hostPath" in volume}
    ordered = [agent_main._parser().parse_args(one["args"]).set for one in (tester, resident)]
    assert ordered == [[], ["diagnose=0"]], "no campaign is spent on an agent that cannot test"


def test_containers_hold_the_capabilities_that_doctor_names_and_no_others() -> None:
    named = [capability.name for capability in CAPABILITIES]
    without_log = [name for name in named if name != SYSLOG.name]
    expected = {"agent.yaml": named, "sidecar.yaml": without_log, "server.yaml": [], "tester.yaml": []}
    for name, container in containers():
        context = container["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"], name
        assert context["capabilities"].get("add", []) == expected[name], name
        assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True, name
        assert (context.get("runAsUser") == 0) is (name != "server.yaml"), name
        assert "privileged" not in context, name
    for name, spec in pods():
        assert spec.get("hostPID", False) is (name == "agent.yaml")
        assert spec.get("shareProcessNamespace", False) is (name == "sidecar.yaml")
        assert not spec.get("hostNetwork") and not spec.get("hostIPC")


def test_each_capability_stands_beside_its_reason() -> None:
    texts = [path.read_text("utf-8") for path in (DEPLOY / "kubernetes" / "agent.yaml", UNITS[0])]
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    for capability in CAPABILITIES:
        assert all(capability.use in text for text in texts), capability.name
        assert f"| `{capability.name}` |" in page
        for line in (grant([capability], where, root=True) for where in RuntimePlace):
            assert capability.name in line


def unit(name: str) -> dict[str, str]:
    """The [Service] of a unit; of a key that stands twice, its last value."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / name, encoding="utf-8")
    assert parser["Install"]["WantedBy"] == "multi-user.target"
    return dict(parser["Service"])


def test_the_agent_s_unit_may_do_what_doctor_names_and_no_more() -> None:
    service = unit("hangdog-agent.service")
    assert service["CapabilityBoundingSet"].split() == [f"CAP_{capability.name}" for capability in CAPABILITIES]
    assert service["NoNewPrivileges"] == "yes"
    assert "User" not in service  # root, for whom the bounding set bounds
    for hides in ("ProtectProc", "ProcSubset", "PrivateDevices", "ProtectKernelLogs", "PrivateUsers"):
        assert hides not in service, f"{hides} would hide what is captured or checked"
        assert hides in UNITS[0].read_text("utf-8")


def test_the_units_start_programs_that_exist_with_options_they_know() -> None:
    scripts = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.scripts]")[2].partition("\n\n")[0]
    for name in ("hangdog-agent.service", "hangdog-server.service"):
        program, *arguments = unit(name)["ExecStart"].split()
        assert f"\n{Path(program).name} = " in scripts
        if arguments:
            assert arguments.pop(0) == "server"
            parsed = server_command.make_context("server", arguments).params
            assert parsed["listen"] == "${HANGDOG_LISTEN}"
            assert Path(parsed["store"]).parent == Path("/var/lib") / unit(name)["StateDirectory"]
    module = unit("hangdog-agent.service")["ExecStartPre"].rpartition(" -m ")[2]
    assert module == "hangdog_agent.doctor"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_knows_every_line_of_a_unit(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    copy = tmp_path / path.name  # it wants the programs to be there
    copy.write_text(re.sub(r"/opt/hangdog/bin/[\w-]+", "/bin/true", path.read_text("utf-8")), encoding="utf-8")
    said = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
