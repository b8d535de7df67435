"""What `ncclras -m` prints: its own example (NCCL's user guide, troubleshooting/ras.rst, 2.31) in both writings, and more of the kind."""

import json

from hangdog_models.collectives import RasMember, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.collectives import ras_events, ras_json
from hangdog_models.reading.limits import Limits
from support.refused import refused

WELCOME = "RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...\n=====\n\n"


def line(event: str, pid: int = 1524345, gpus: str = "GPU 1") -> str:
    return f"[2025-12-19 13:07:07] {event}: Process {pid} on node 172.16.64.245 managing {gpus}\n"


def event(name: str, devices: list[int]) -> str:
    peer = {"host": "172.16.64.245", "pid": 1524345, "cuda_devs": [0], "nvml_devs": devices}
    return json.dumps({"timestamp": "2025-12-19 13:07:07", "group": "LIFECYCLE", "event": name, "peer": peer}, indent=2)


def test_a_process_declared_dead_is_lost_in_either_writing() -> None:
    dead = (RasMember(-1, RasStatus.DEAD, "172.16.64.245", 1524345, 1),)
    for text in (WELCOME + line("PEER_DEAD"), event("PEER_DEAD", [1]), event("PEER_DEAD", [1]) + "\n" + '{"timest'):
        assert ras_events.recognises(text) and ras_events.read(text).lost == dead


def test_the_last_event_of_a_process_counts() -> None:
    assert ras_events.read(line("PEER_UNRESPONSIVE") + line("PEER_RECOVERED")).lost == ()
    (lost,) = ras_events.read(line("PEER_UNRESPONSIVE", gpus="GPUs 0,1")).lost
    assert (lost.status, lost.device) == (RasStatus.UNRESPONSIVE, None)


def test_only_an_event_that_ends_the_trouble_makes_a_process_well() -> None:
    for going_on in ("PEER_RETRY", "PEER_CONNECTING", "PEER_DISCONNECTED", "PEER_OF_A_LATER_VERSION"):
        (lost,) = ras_events.read(line("PEER_UNRESPONSIVE") + line(going_on)).lost
        assert lost.status is RasStatus.UNRESPONSIVE
        assert ras_events.read(line(going_on)).lost == ()
    for well in ("PEER_NEW", "PEER_CONNECTED", "PEER_RECOVERED"):
        assert ras_events.read(line("PEER_SEND_STUCK") + line(well)).lost == ()
    (dead,) = ras_events.read(line("PEER_TIMEOUT_DEAD") + line("PEER_KEEPALIVE_TIMEOUT")).lost
    assert dead.status is RasStatus.DEAD


def test_the_device_is_that_of_nvml_where_cuda_counts_otherwise() -> None:
    for gpus, device in (
        ("GPU 0 (NVML 5)", 5),
        ("GPU 3 last heard of 20 s ago, retrying", 3),
        ("GPUs 0,1 (NVML 4,5)", None),
    ):
        (lost,) = ras_events.read(line("PEER_DEAD", gpus=gpus)).lost
        assert lost.device == device


def test_a_monitor_that_saw_nothing_tells_nothing() -> None:
    assert ras_events.recognises(WELCOME) and ras_events.read(WELCOME).lost == ()


def test_too_much_is_refused() -> None:
    with refused("too-large", UnreadableEvidence, "file_bytes"):
        ras_events.read(line("PEER_DEAD"), Limits(file_bytes=20))


def test_a_report_of_the_raw_protocol_is_read_past_its_first_lines() -> None:
    text = 'SERVER PROTOCOL 2\nOK\n{"nccl_version": "2.28.7", "communicators_count": 0, "communicators": []}'
    assert ras_json.recognises_text(text) and ras_json.read_text(text).communicators == ()


def test_a_recorder_dump_that_holds_the_version_is_no_report() -> None:
    assert not ras_json.recognises_text('{"nccl_version": "2.27.3", "pg_config": {}, "entries": []}')
