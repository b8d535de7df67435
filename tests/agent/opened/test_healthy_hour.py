"""An hour of a real agent beside healthy trainers, pressed into a minute or two, under strace: it opens what is listed, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import hangdog_agent
from attacking.stage import folder, needs_root
from attacking.whole import server
from opening.footprint import Footprint, features
from opening.trace import CALLS, Event, events

pytestmark = [
    needs_root,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not all(map(shutil.which, ("strace", "unshare"))), reason="needs strace and unshare: apt-get install strace"
    ),
]

#: Of <linux/capability.h>, in their order.
BITS = {name: bit for bit, name in enumerate((
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE",
    "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME",
    "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
))}  # fmt: skip
TESTS = Path(__file__).parents[2]
#: Every period is shortened so much: an hour takes as long as the agent needs under strace, and at most so many seconds.
FASTER = 100.0
MOST_S = 200.0
#: The periods of the agent's settings, with their defaults. Seconds.
PERIODS = {
    "beat_s": 1.0, "scan_s": 4.0, "log_every_s": 1.0, "touch_every_s": 1.0, "ras_every_s": 30.0, "traffic_every_s": 5.0,
    "metrics_s": 15.0, "kernel_every_s": 2.0, "gpu_every_s": 10.0, "gpu_full_s": 60.0, "network_every_s": 30.0,
    "nfs_every_s": 30.0, "tcp_every_s": 5.0, "disk_every_s": 10.0, "memory_every_s": 10.0, "pcie_every_s": 60.0,
    "check_again_s": 300.0,
}  # fmt: skip
TRAINERS = 2
#: What is opened for some of them, where that can be told apart: the hour is over once each was opened as often as in one.
PACED = {"/schedstat": "beat_s", "/proc/meminfo": "memory_every_s", "/sys/class/infiniband": "network_every_s"}
OFTEN = {
    path: int(3600 / PERIODS[setting]) * (TRAINERS if setting == "beat_s" else 1) for path, setting in PACED.items()
}


@dataclass(frozen=True, slots=True)
class Hour:
    """What happened in it, and the agent's CapEff."""

    events: tuple[Event, ...]
    places: Mapping[str, Sequence[str]]
    capabilities: int
    log: str


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Hour:
    path = tmp_path_factory.mktemp("hour")
    state, replays = path / "state", path / "replays.toml"
    state.mkdir()
    replays.write_text('[tests.replay]\nours = ["/usr/bin/true"]\n')
    replays.chmod(0o644)
    with server(path) as address, ExitStack() as stack:
        homes = [os.fspath(stack.enter_context(folder())) for _ in range(TRAINERS)]
        agent = [sys.executable, "-B", "-P", "-m", "hangdog_agent.main", "--server", address, "--machine", "m"]
        agent += ["--state", os.fspath(state), "--metrics-file", os.fspath(path / "agent.prom")]
        agent += ["--replays", os.fspath(replays)]
        for name, period in PERIODS.items():
            agent += ["--set", f"{name}={period / FASTER:.4f}"]
        agent += [
            "--set",
            "calm_beats=1",
            "--set",
            "calm_scans=1",
            "--set",
            "suspicious_s=0.5",
            "--set",
            "patience_s=60",
            "--set",
            "settle_s=2",
        ]
        orders = {
            "homes": homes,
            "trace": os.fspath(path / "trace"),
            "log": os.fspath(path / "agent.log"),
            "calls": ",".join(CALLS),
            "agent": agent,
            "enough": OFTEN,
            "most_s": MOST_S,
        }
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        call = [*alone, sys.executable, "-m", "opening.hour", json.dumps(orders)]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(one for one in (os.fspath(TESTS), *sys.path) if one)}
        told = subprocess.run(call, check=False, env=environ, capture_output=True, text=True, timeout=MOST_S + 120)
        log = (path / "agent.log").read_text()
        assert told.returncode == 0, told.stderr + log
        places = {
            "code": (
                *{sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)},
                *(path for path in sys.path if path.endswith("-packages")),
                *_packages(),
                "/usr",
                "/lib",
                "/lib64",
                "/bin",
            ),
            "state": (os.fspath(state),),
            "metrics": (os.fspath(path / "agent.prom"), os.fspath(path / ".agent.prom")),
            "trainer": homes,
            "server": (address.rpartition(":")[2],),
            "replays": (os.fspath(replays),),
            "tls": (),
        }
    return Hour(tuple(events(path / "trace")), places, int(told.stdout.split()[0], 16), log)


def _packages() -> list[str]:
    """Where our own packages lie, and the folder above, in which Python looks for others."""
    home = Path(hangdog_agent.__file__).parents[2]
    return [os.fspath(home / room) for room in ("agent", "proto", "models", "cli", "server")]


def test_nothing_is_opened_that_is_not_listed(hour: Hour) -> None:
    footprint = Footprint(features(), hour.places)
    counted = Counter(hour.events)
    strange = Counter({event: count for event, count in counted.items() if not footprint.of(event)})
    assert not strange, "\n".join(f"{count} x {event}" for event, count in strange.most_common(50))


def test_it_was_at_work_all_the_time(hour: Hour) -> None:
    """Each thing that is done now and then was done as often as in an hour, and trainers were looked at and followed."""
    count = Counter(event.what for event in hour.events if event.kind == "reads")
    for path, times in OFTEN.items():
        opened = sum(number for what, number in count.items() if what.endswith(path))
        assert opened >= times, (path, opened)
    footprint = Footprint(features(), hour.places)
    seen = {name for event in set(hour.events) for name in footprint.of(event)}
    assert {"finding trainers", "pulse", "logs and heartbeats", "looks", "metrics file", "own state"} <= seen
    assert "Traceback" not in hour.log


def test_each_line_of_the_list_is_needed_by_its_feature(hour: Hour) -> None:
    """What such a machine has: a line that nothing ever opens is a gap, not a permission."""
    footprint = Footprint(features(), hour.places)
    used = {name for event in set(hour.events) for name in footprint.of(event)}
    elsewhere = {"check: GPU", "check: NFS"}
    assert {one.name for one in features()} - used <= elsewhere


def test_it_holds_no_capability_that_is_not_listed(hour: Hour) -> None:
    """It was started as root with all of them."""
    listed = {name for one in features() for name in one.capabilities}
    held = {name for name, bit in BITS.items() if hour.capabilities >> bit & 1}
    assert held <= listed, f"it still holds {sorted(held - listed)}"
    assert hour.capabilities >> len(BITS) == 0
