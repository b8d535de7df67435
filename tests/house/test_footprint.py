"""The list of what the agent opens: shown by its page, true of the units and manifests, and of settings that exist."""

import runpy
from pathlib import Path

from hangdog_agent.confinement.capabilities import CAPABILITIES
from hangdog_agent.settings import chosen
from opening.footprint import KINDS, Footprint, features
from opening.trace import Event
from support.cases.manifests import documents

ROOT = Path(__file__).resolve().parents[2]
LISTED = {name for one in features() for name in one.capabilities}


def test_its_page_shows_the_list() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "footprint.py"))
    page = tool["PAGE"].read_text(encoding="utf-8")
    assert tool["renewed"](page, tool["TABLE"].read_text(encoding="utf-8")) == page, "run `make docs FIX=1`"
    assert "[footprint](footprint.md)" in (ROOT / "docs" / "README.md").read_text("utf-8")


def test_each_feature_has_a_name_of_its_own_and_a_reason() -> None:
    names = [one.name for one in features()]
    assert len(names) == len(set(names))
    for one in features():
        assert one.why and one.rights in ("agent", "trainer"), one.name
        assert any(getattr(one, kind) for kind in KINDS), one.name


def test_what_turns_a_feature_off_is_a_setting_that_exists() -> None:
    for one in features():
        if "=" in one.switch:
            chosen(one.switch.split())


def test_the_agent_is_granted_what_is_listed_and_no_more() -> None:
    assert {each.name for each in CAPABILITIES} == LISTED
    unit = (ROOT / "deploy" / "systemd" / "hangdog-agent.service").read_text("utf-8")
    (bound,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    assert set(bound.partition("=")[2].split()) == {f"CAP_{name}" for name in LISTED}
    for file, kind in (("agent.yaml", "DaemonSet"), ("sidecar.yaml", "Pod")):
        for document in documents(ROOT / "deploy" / "kubernetes" / file):
            if document["kind"] != kind:
                continue
            spec = document["spec"].get("template", document)["spec"]
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                if container["image"].startswith("hangdog-agent"):
                    assert set(container["securityContext"]["capabilities"]["add"]) <= LISTED, file


def test_a_path_belongs_to_the_feature_that_lists_it_and_to_no_other() -> None:
    footprint = Footprint(features(), {"trainer": ["/data/her/run"], "code": ["/opt/hangdog"], "state": ["/var/lib/h"]})
    assert footprint.of(Event("reads", "/proc/7/environ")) == {"finding trainers"}
    assert footprint.of(Event("writes", "/var/lib/h/gpu.json")) == {"own state"}
    for strange in ("/etc/shadow", "/data/her/.ssh/id_rsa", "/proc/7/root/etc/shadow", "/proc/1/mem/x"):
        assert not footprint.of(Event("reads", strange)), strange
    assert not footprint.of(Event("writes", "/proc/7/environ"))
    assert not footprint.of(Event("sockets", "tcp connect 443"))


def test_what_only_a_trainer_may_open_is_not_opened_by_the_agent() -> None:
    (one, *_) = (each for each in features() if each.name == "logs and heartbeats")
    footprint = Footprint([type(one)("x", "y", rights="trainer", reads=("/a",))], {})
    assert footprint.of(Event("reads", "/a", as_trainer=True)) == {"x"}
    assert not footprint.of(Event("reads", "/a"))
