"""Metrics as they are really exported, beside the page, the dashboard and the alerts that name them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.cases.manifests import documents
from support.fakes.targets import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
RULES = ROOT / "deploy" / "prometheus" / "hangdog.rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "hangdog.json"
Exported = dict[str, dict[str, set[str]]]
#: What Prometheus and node_exporter add by themselves.
FOREIGN: Exported = {"node_textfile_mtime_seconds": {"file": set()}}
ADDED = {"instance", "job"}


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen((sys.executable, "-m", *command), stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a server and an agent export that have just been started."""
    folder = tmp_path_factory.mktemp("metrics")
    file = folder / "hangdog.prom"
    server = (
        "hangdog",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--store",
        str(folder / "s.db"),
    )
    agent = ("hangdog_agent.main", "--server", "127.0.0.1:1", "--match-env", f"HANGDOG_TEST_NAMES={os.getpid()}")
    with started(*server) as process, started(*agent, "--metrics-file", str(file)):
        assert process.stderr is not None
        address = next(found[1] for line in process.stderr if (found := re.search(r"metrics at (http://\S+)", line)))
        with urllib.request.urlopen(address, timeout=10) as answer:
            served = str(answer.read().decode())
        until(file.exists)
        return served + file.read_text("utf-8")


@pytest.fixture(scope="module")
def exported(text: str) -> Exported:
    """Every series' name with its labels and their values."""
    found: Exported = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ")
            for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                found[name + suffix] = {}
        elif not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                found[name].setdefault(label, set()).add(value)
    return found


def test_the_page_names_every_metric_with_its_type_and_its_labels(text: str, exported: Exported) -> None:
    rows = re.findall(r"^\| `((?:hangdog|process)_\w+)` \| (\w+) \| (?:(.*?) )?\| ", PAGE, re.MULTILINE)
    written = {name: kind for name, kind, _ in rows}
    assert len(rows) == len(written), "a metric stands there twice"
    types = (line.split(" ")[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    assert written == dict(types)
    for name, kind, told in rows:
        labels = dict(re.findall(r"`(\w+)`(?:: ([\w, ]+))?", told))
        mine = exported[name + "_bucket" * (kind == "histogram")]
        assert labels.keys() - {"step"} == mine.keys() - {"le", "step"}, name
        for label, values in labels.items():
            assert not values or set(values.split(", ")) == mine[label], f"{name}: {label}"


def test_there_are_no_more_series_than_the_page_says(text: str) -> None:
    served = [line for line in text.splitlines() if not line.startswith(("#", "hangdog_agent_"))]
    assert len(served) < 400


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of rules and dashboard, with where it stands."""
    (rules,) = documents(RULES)
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning", "info") and len(rule["annotations"]) == 2
            yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_dashboard_and_alerts_ask_for_what_there_is(exported: Exported) -> None:
    asked, known = set(), exported | FOREIGN
    for where, expression in expressions():
        named = re.findall(r"\b((?:hangdog|process|node)_\w+)(?:\{([^}]*)\})?", expression)
        assert named, where
        for name, selector in named:
            assert name in known, f"{where}: {name}"
            asked.add(name)
            for label, equals, value in re.findall(r"(\w+)(!?=~?)'([^']*)'", selector):
                if label not in ADDED and "~" not in equals:
                    assert value in known[name][label], f"{where}: {name}, {label}={value}"
        by = {word for words in re.findall(r"by \(([^)]*)\)", expression) for word in words.split(", ")}
        given = {label for name, _ in named for label in known[name]} | ADDED | {"le", "step"}
        assert by <= given, f"{where}: {by - given}"
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in asked if name.startswith("hangdog_")}
    never = {re.sub("_(bucket|sum|count)$", "", name) for name in exported if name.startswith("hangdog_")} - ours
    assert never <= QUIET, "on no panel and in no alert"


#: What nobody has to look at by itself.
QUIET = {
    "hangdog_agent_connections_total", "hangdog_agent_connection_failures_total", "hangdog_agent_info",
    "hangdog_agent_jobs", "hangdog_agent_trainers", "hangdog_agent_orders_total", "hangdog_agent_orders_dropped_total",
    "hangdog_agent_looks_total", "hangdog_agent_open_fds", "hangdog_looks_recorded_total",
    "hangdog_agent_certificate_end_time_seconds",
}  # fmt: skip


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text("utf-8"))
    assert dashboard["uid"] == "hangdog" and dashboard["schemaVersion"] >= 36 and "id" not in dashboard
    names = {one["name"] for one in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text("utf-8"))) - {"__rate_interval"} == names
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, f"{panel['title']} lies upon another"
        taken |= cells


def test_prometheus_reads_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    said = subprocess.run(("promtool", "check", "rules", RULES), capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


#: Series of a server or an agent in trouble, minute by minute, and the alert that fires of them, alone, at the 13th.
TROUBLE = {
    "HangdogStoreFailing": {"hangdog_store_failures_total": "0x10 1x9"},
    "HangdogStoreSlow": {
        "hangdog_store_seconds_bucket{le='1.0'}": "0x20",
        "hangdog_store_seconds_bucket{le='2.5'}": "0+9x20",
        "hangdog_store_seconds_bucket{le='+Inf'}": "0+9x20",
    },
    "HangdogVerdictLate": {
        "hangdog_verdict_seconds_count{origin='suspected'}": "0x10 1x9",
        "hangdog_verdict_seconds_bucket{origin='suspected',le='20.0'}": "0x20",
    },
    "HangdogSuspicionLate": {
        "hangdog_suspicion_age_seconds_count": "0x10 1x9",
        "hangdog_suspicion_age_seconds_bucket{le='15.0'}": "0x20",
    },
    "HangdogIncidentsFail": {"hangdog_incidents_total{state='failed'}": "0x10 1x9"},
    "HangdogCertificateEnds": {"hangdog_certificate_left_seconds": "1000000x20"},
    "HangdogMachineCertificateEnds": {"hangdog_machine_certificate_left_seconds{machine='gpu-a'}": "100000x20"},
    "HangdogRequestsRefused": {"hangdog_requests_refused_total{reason='bad_token'}": "0+2x20"},
    "HangdogEventLoopLagging": {
        "hangdog_event_loop_lag_seconds_bucket{le='1.0'}": "0x20",
        "hangdog_event_loop_lag_seconds_bucket{le='2.5'}": "0+120x20",
        "hangdog_event_loop_lag_seconds_bucket{le='+Inf'}": "0+120x20",
    },
    "HangdogServerMemory": {"process_resident_memory_bytes": "3e9x20"},
    "HangdogServerFiles": {"process_open_fds": "90x20", "process_max_fds": "100x20"},
    "HangdogAgentsSilent": {"hangdog_agents{state='silent'}": "3x20"},
    "HangdogAgentsLost": {"hangdog_agents{state='lost'}": "3x20"},
    "HangdogAgentsRefused": {"hangdog_agents_refused_total{reason='name_taken'}": "0+2x20"},
    "HangdogAnswersUnreadable": {"hangdog_looks_answered_total{outcome='unreadable'}": "0x10 1x9"},
    "HangdogAgentStale": {"node_textfile_mtime_seconds{file='/x/hangdog.prom'}": "0x20"},
    "HangdogAgentAlone": {"hangdog_agent_connected": "0x20"},
    "HangdogAgentBlind": {"hangdog_agent_processes_total{outcome='not_permitted'}": "0+8x20"},
    "HangdogMachineBroken": {"hangdog_agent_findings{bearing='convicts'}": "1x20"},
}


def test_each_alert_fires_at_its_trouble_and_at_no_other(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    (rules,) = documents(RULES)
    written = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert written - TROUBLE.keys() == {"HangdogServerGone", "HangdogAgentCostly"}, "the latter takes half an hour"
    firing = "count by (alertname) (ALERTS{alertstate='firing'})"
    cases = [
        {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in {"hangdog_build_info": "1x20", **series}.items()
            ],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": "13m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
                }
            ],
        }
        for alert, series in TROUBLE.items()
    ]
    file = tmp_path / "trouble.json"
    file.write_text(
        json.dumps({"rule_files": [os.fspath(RULES)], "evaluation_interval": "1m", "tests": cases}), "utf-8"
    )
    said = subprocess.run(("promtool", "test", "rules", file), capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
