"""InfiniBand ports in a tree of the test's own: lost cards, links down, flapping, refused counters, bytes that move or not."""

import errno
import shutil
from pathlib import Path

import pytest

from hangdog_agent.checks import traffic
from hangdog_agent.checks.check_paths import CheckPaths, text
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.network import Network
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.traffic import Traffic
from hangdog_models.findings import Impact


class Fabric:
    """Cards below a pretended /sys, and the check, looked at every 30 s."""

    def __init__(self, folder: Path) -> None:
        self.places = CheckPaths(sys=folder / "sys", state=folder / "notes")
        self.root = self.places.sys / "class/infiniband"
        self._now = 1_000.0
        for card in ("mlx5_0", "mlx5_1"):
            for port in (1, 2):
                self.set(
                    f"{card}/{port}",
                    state="4: ACTIVE",
                    phys_state="5: LinkUp",
                    rate="400 Gb/sec (4X NDR)",
                    link_layer="InfiniBand",
                )
                self.count(f"{card}/{port}", port_rcv_data=1_000, port_xmit_data=2_000, link_downed=3, symbol_error=0)
                self.count(f"{card}/{port}", "hw_counters", local_ack_timeout_err=0, out_of_sequence=5)
        self.begin()

    def begin(self) -> None:
        self.check = Network(self.places, CheckSettings(), Notes(self.places.state, "boot-1"))

    def set(self, port: str, folder: str = "", **values: object) -> None:
        card, number = port.split("/")
        at = self.root / card / "ports" / number / folder
        at.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (at / name).write_text(f"{value}\n")

    def count(self, port: str, folder: str = "counters", **values: int) -> None:
        self.set(port, folder, **values)

    def look(self, seconds: float = 30.0) -> tuple[CheckResult, ...]:
        self._now += seconds
        return self.check.look(Moment(self._now, 1.8e9 + self._now, "boot-1"))


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    fabric = Fabric(tmp_path)
    assert fabric.check.supported() == ""
    assert fabric.look() == ()
    return fabric


def told(results: tuple[CheckResult, ...]) -> list[tuple[str, str, CheckVerdict, Impact]]:
    return [(result.code, result.component.name, result.kind, result.finding.impact) for result in results]


def test_a_machine_without_a_fabric_says_why(tmp_path: Path) -> None:
    check = Network(CheckPaths(sys=tmp_path), CheckSettings(), Notes(None, "boot-1"))
    assert "no InfiniBand" in check.supported()
    assert Traffic(CheckPaths(sys=tmp_path)).moved() is None


def test_a_card_that_is_gone_convicts_at_the_second_look(fabric: Fabric) -> None:
    shutil.rmtree(fabric.root / "mlx5_1")
    assert fabric.look() == ()
    gone = [("NIC lost", f"mlx5_1/{port}", CheckVerdict.CONVICT, Impact.CONVICTS) for port in (1, 2)]
    assert told(fabric.look()) == gone
    fabric.begin()  # the agent restarts, and remembers that it was there
    assert fabric.check.supported() == ""
    fabric.look()
    assert told(fabric.look()) == gone


def test_a_device_that_a_container_may_have_been_given_is_not_lost(fabric: Fabric) -> None:
    (fabric.root / "mlx5_0" / "device" / "physfn").mkdir(parents=True)  # a virtual function
    assert fabric.look() == ()
    shutil.rmtree(fabric.root / "mlx5_0")
    shutil.rmtree(fabric.root / "mlx5_1")
    mode = fabric.places.sys / "module/ib_core/parameters/netns_mode"
    mode.parent.mkdir(parents=True)
    mode.write_text("N\n")
    assert fabric.look() == ()
    gone = [("NIC gone", f"mlx5_1/{port}", CheckVerdict.TELEMETRY, Impact.TELLS_NOTHING) for port in (1, 2)]
    assert told(fabric.look()) == gone
    mode.write_text("Y\n")
    assert [result.code for result in fabric.look()] == ["NIC lost"] * 2


def test_the_whole_tree_may_go(fabric: Fabric) -> None:
    shutil.rmtree(fabric.root)
    fabric.look()
    assert len(fabric.look()) == 4


@pytest.mark.parametrize(("apart_s", "lost"), [(600.0, 0), (200.0, 2)])
def test_a_card_that_comes_back_at_once_is_tolerated_once(
    apart_s: float, lost: int, fabric: Fabric, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    (fabric.root / "mlx5_1").rename(away)
    assert fabric.look() == ()
    away.rename(fabric.root / "mlx5_1")
    assert fabric.look() == ()
    shutil.rmtree(fabric.root / "mlx5_1")
    assert len(fabric.look(apart_s)) == lost


def test_a_link_down_is_tolerated_then_suspect_then_convicts(fabric: Fabric) -> None:
    fabric.set("mlx5_0/1", state="1: DOWN", phys_state="3: Disabled")
    assert fabric.look() == ()
    (result,) = fabric.look()
    assert told((result,)) == [("link down", "mlx5_0/1", CheckVerdict.SUSPECT, Impact.SUSPECTS)]
    assert "state DOWN, phys_state Disabled, rate 400 Gb/sec (4X NDR)" in result.evidence[0]
    for _ in range(6):
        assert fabric.look()[0].kind is CheckVerdict.SUSPECT
    assert told(fabric.look()) == [("link down", "mlx5_0/1", CheckVerdict.CONVICT, Impact.CONVICTS)]
    fabric.set("mlx5_0/1", state="4: ACTIVE")
    assert fabric.look() == ()


def test_a_port_that_was_never_active_has_no_cable(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    fabric.set("mlx5_0/1", state="1: DOWN")
    assert [fabric.look() for _ in range(12)] == [()] * 12


@pytest.mark.parametrize(("apart_s", "bearing"), [(240.0, Impact.SUSPECTS), (600.0, Impact.PATH)])
def test_one_flap_is_tolerated_and_a_second_within_five_minutes_is_not(
    apart_s: float, bearing: Impact, fabric: Fabric
) -> None:
    fabric.count("mlx5_0/1", link_downed=4)
    (first,) = fabric.look()
    assert told((first,)) == [("link flap", "mlx5_0/1", CheckVerdict.TELEMETRY, Impact.PATH)]
    assert fabric.look() == ()
    fabric.count("mlx5_0/1", link_downed=5)
    (second,) = fabric.look(apart_s - 30.0)
    assert second.finding.impact is bearing
    assert first.identity != second.identity


def test_counters_tell_by_their_rise_and_a_fall_is_a_reset(fabric: Fabric) -> None:
    fabric.count("mlx5_0/1", symbol_error=7)
    fabric.count("mlx5_0/2", "hw_counters", local_ack_timeout_err=2, out_of_sequence=0)
    first, second = fabric.look()
    assert (first.code, first.finding.impact) == ("port errors", Impact.TELLS_NOTHING)
    assert first.words.endswith("symbol_error 7")
    assert (second.component.name, second.finding.impact) == ("mlx5_0/2", Impact.PATH)
    assert second.words.endswith("local_ack_timeout_err 2")
    fabric.count("mlx5_0/1", symbol_error=0, link_downed=0)
    assert fabric.look() == ()


def test_a_slower_link_slows(fabric: Fabric) -> None:
    fabric.set("mlx5_0/1", rate="200 Gb/sec (2X NDR)")
    assert fabric.look() == ()
    (slow,) = fabric.look()
    assert told((slow,)) == [("link rate", "mlx5_0/1", CheckVerdict.SUSPECT, Impact.SLOWS)]
    assert "200 of 400 Gb/s" in slow.words


def test_a_counter_that_refuses_is_never_read_again(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that answers EINVAL cannot be made without such a card, so the reading of files stands in for it."""
    asked: list[str] = []

    def refusing(path: Path, most: int = 64) -> str | int:
        if path.name != "symbol_error":
            return text(path, most)
        asked.append(str(path))
        return errno.EINVAL

    fabric.begin()
    monkeypatch.setattr(traffic, "text", refusing)
    for _ in range(3):
        assert fabric.look() == ()
    assert len(asked) == len(set(asked)) == 4


@pytest.mark.parametrize("content", ["", "nonsense", "-5", "9" * 99, "\0\0", "1 2"])
def test_what_is_no_counter_counts_nothing(content: str, fabric: Fabric) -> None:
    fabric.set("mlx5_0/1", "counters", symbol_error=content, link_downed=content, port_rcv_data=content)
    fabric.set("mlx5_0/2", rate=content)
    assert fabric.look() == ()


def test_bytes_that_moved_are_those_of_all_ports(fabric: Fabric) -> None:
    moving = Traffic(fabric.places)
    assert moving.moved() is None  # nothing to compare with
    assert moving.moved() == 0
    fabric.count("mlx5_0/1", port_rcv_data=1_010)
    fabric.count("mlx5_1/2", port_xmit_data=2_001)
    assert moving.moved() == 4 * 11
    fabric.count("mlx5_0/1", port_rcv_data=0)  # set back
    assert moving.moved() == 0
    shutil.rmtree(fabric.root / "mlx5_0")
    assert moving.moved() == 0
    shutil.rmtree(fabric.root)
    assert moving.moved() is None


def test_two_users_of_traffic_do_not_take_bytes_from_each_other(fabric: Fabric) -> None:
    first, second = Traffic(fabric.places), Traffic(fabric.places)
    first.moved(), second.moved()
    fabric.count("mlx5_0/1", port_rcv_data=1_001)
    assert (first.moved(), second.moved()) == (4, 4)
