"""Bad and hostile input: each gets a clear word and the right exit status, and whatever else is readable is still used."""

import os
import random
import re
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle, WrongUse
from hangdog_models.reading.limits import Limits
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import build
from support.cases.evidence import stacks, state
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]


def account_of_the_rest(root: Path, limits: Limits = Limits()) -> dict[str, str]:  # noqa: B008  # frozen
    """What is reported as unreadable, after checking that the good file beside it was used."""
    snapshot, _ = open_bundle(root, limits)
    assert used(snapshot) == [0]
    return snapshot.account.unreadable


def used(snapshot: Snapshot) -> list[int]:
    return [trace.rank for round_ in snapshot.rounds for trace in round_.traces if trace.threads]


@pytest.fixture
def good(fill: Fill) -> Path:
    """A bundle with one good file; the tests put the bad ones beside it."""
    return fill({"rank0.json": stacks()})


def test_nothing_at_the_path(tmp_path: Path) -> None:
    with refused("no-such-path", WrongUse, "absent") as caught:
        open_bundle(tmp_path / "absent")
    assert caught.value.exit_code == 64 and caught.value.hint


def test_a_path_that_is_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with refused("unreadable-file", WrongUse):
        open_bundle(tmp_path / "a")


def test_an_empty_directory(fill: Fill) -> None:
    with refused("no-evidence", UnreadableBundle, "empty") as caught:
        open_bundle(fill({}))
    assert caught.value.exit_code == 65 and "py-spy dump" in caught.value.hint


def test_a_declaration_alone_is_no_evidence(fill: Fill) -> None:
    with refused("no-evidence", UnreadableBundle):
        open_bundle(fill({"job.toml": b"[job]\nworld_size = 8\n"}))


def test_holiday_photos(fill: Fill) -> None:
    chance = random.Random(7)
    photos = {f"IMG_{n}.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + chance.randbytes(100_000) for n in range(20)}
    with refused("no-evidence", UnreadableBundle, "20 files"):
        open_bundle(fill(photos))


def test_a_photo_named_like_a_rank_is_ignored(good: Path, fill: Fill) -> None:
    fill({"rank1.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(range(256)) * 50})
    snapshot, _ = open_bundle(good)
    assert used(snapshot) == [0] and snapshot.account.ignored == ("rank1.jpg",)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("rank1.json", stacks()[:-30], "not JSON: "),
        ("rank1.json", b"[" * 200 + b"]" * 200, "64 levels (limit depth)"),
        ("rank1.json", b"[" * 500_000, "64 levels (limit depth)"),
        ("rank1.json", stacks().replace(b"train", b"tr\xff\xfein"), "not JSON: byte "),
        ("rank1.json", b'[{"frames": [{}]}]', "a frame without a name"),
        ("rank1.proc.json", b'{"pid": 3}', "not a process state"),
        ("rank1.json", state().replace(b'"S"', b'"!"'), "not a process state"),
        ("rank1.pickle", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.", " GLOBAL at byte 2: "),
        ("rank1/rank2.json", stacks(), "ranks 1 and 2"),
        ("rank99999999.json", stacks(), "a rank above"),
        ("job.toml", b"[job", "not TOML"),
        ("job.toml", b"[topology]\ntp = 0", "tp = 0 "),
        ("job.toml", b"\xff\xfe", "not TOML: byte 0 "),
        ("rounds.toml", b"interval_s = 'soon'", "seconds"),
        ("rank-0.json", stacks(), " by rank-0.json"),
    ],
)  # fmt: skip
def test_one_bad_file_is_reported_and_the_rest_is_used(
    good: Path, fill: Fill, name: str, data: bytes, reason: str
) -> None:
    fill({name: data})
    (told,) = account_of_the_rest(good).values()
    assert reason in told and told.isprintable()


def test_a_gigabyte_of_zeros_is_not_read(good: Path) -> None:
    with (good / "rank1.json").open("wb") as sparse:
        sparse.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reasons = account_of_the_rest(good)
    assert list(reasons) == ["rank1.json"]
    assert all(value in reasons["rank1.json"] for value in ("1024.0 MiB", "32.0 MiB", "limit file_bytes"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_zeros_within_the_limit_are_no_evidence(good: Path) -> None:
    with (good / "rank1.json").open("wb") as sparse:
        sparse.truncate(1 << 20)
    snapshot, _ = open_bundle(good)
    assert snapshot.account.ignored == ("rank1.json",)


def test_links_are_not_followed(good: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_bytes(stacks())
    (good / "rank1.json").symlink_to(tmp_path / "outside.json")
    (good / "rank2.json").symlink_to("rank2.json")
    (good / "again").symlink_to(good, target_is_directory=True)
    reason = "a symbolic link; links are not followed"
    assert account_of_the_rest(good) == dict.fromkeys(("again", "rank1.json", "rank2.json"), reason)


def test_pipes_sockets_and_devices_are_not_opened(good: Path) -> None:
    os.mkfifo(good / "rank1.json")  # without a writer, to open it would wait for ever
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(good / "rank2.json"))
        reasons = account_of_the_rest(good)
    assert {name: reason.partition(";")[0] for name, reason in reasons.items()} == {
        "rank1.json": "a named pipe",
        "rank2.json": "a socket",
    }


def test_a_device_is_no_bundle() -> None:
    with refused("no-evidence", UnreadableBundle, "a character device"):
        open_bundle(Path("/dev/zero"))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything: as root the test goes on as nobody, and comes back."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, whose parents are closed to nobody
        root, closed = Path(folder), Path(folder) / "closed"
        root.chmod(0o755)
        closed.mkdir()
        for file in (root / "rank0.json", root / "rank1.json", closed / "rank2.json"):
            file.write_bytes(stacks())
        (root / "rank1.json").chmod(0)
        closed.chmod(0)
        with unprivileged():
            reasons = account_of_the_rest(root)
        closed.chmod(0o700)
    assert reasons == {"closed": "permission denied", "rank1.json": "permission denied"}


def test_names_with_control_characters_are_escaped(good: Path) -> None:
    (good / "rank1\x1b[2J\n.json").write_bytes(b"[{]")
    with (good / os.fsdecode(b"rank2\xff.json")).open("wb") as file:
        file.write(b"[{]")
    assert list(account_of_the_rest(good)) == [r"rank1\x1b[2J\n.json", r"rank2\udcff.json"]


def test_many_files_stop_at_the_limit(fill: Fill) -> None:
    root = fill({f"rank{number}.json": stacks() for number in range(50)})
    snapshot, _ = open_bundle(root, Limits(files=20))
    assert len(used(snapshot)) == 20
    (reason,) = snapshot.account.unreadable.items()
    assert reason[0] == "." and "20 files" in reason[1] and "(limit files)" in reason[1]


def test_deep_folders_stop_at_the_limit(good: Path, fill: Fill) -> None:
    fill({"d/" * 60 + "rank1.json": stacks()})
    (reason,) = account_of_the_rest(good).values()
    assert "32 folders" in reason and "(limit folders)" in reason


def test_the_sum_of_all_files_is_bounded(good: Path, fill: Fill) -> None:
    fill({f"rank{number}.json": stacks() for number in range(1, 9)})
    reasons = account_of_the_rest(good, Limits(total_bytes=2 * len(stacks()) - 1))
    assert "limit total_bytes" in reasons["."]


def test_a_topology_that_does_not_fit_the_ranks_is_told_and_the_stacks_are_used(good: Path, fill: Fill) -> None:
    fill({"job.toml": b"[topology]\ntp = 2\npp = 2\n", "rank11.json": stacks()})
    snapshot, layout = open_bundle(good)
    topology, notes = build(layout, snapshot.highest_rank())
    assert used(snapshot) == [0, 11] and topology.world_size == 12
    assert any(re.search(r"tp 2 x pp 2 .*\b4 ranks\b.*\b12\b", note) for note in notes)
