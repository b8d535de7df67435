"""Archives open like the directory they were made of; hostile ones are bounded, and nothing is ever written."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangdog.evidence.open_bundle import open_bundle
from hangdog.evidence.packed.archive import archive_entries
from hangdog.evidence.packed.zst import zstd
from hangdog_models.errors import UnreadableBundle
from hangdog_models.reading.limits import DEFAULTS, Limits
from support.cases.evidence import flight, stacks, state
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]

FILES = {
    "job.toml": b'[job]\nid = "packed"\n',
    "rank0.json": stacks(7),
    "rank0.proc.json": state(7),
    "machine-a/round-1/rank1.json": stacks(8),
    "fr/rank0.json": flight(),
    "notes.txt": b"nothing",
}


def packed(path: Path, files: dict[str, bytes], under: str = "") -> Path:
    """An archive of these files, of the kind its name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(under + name, data)
        return path
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, data in files.items():
            archive.addfile(plain(under + name, data), io.BytesIO(data))
    if path.suffix == ".zst":
        path.write_bytes(zstd.compress(path.read_bytes()))
    return path


def plain(name: str, data: bytes = b"") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member


KINDS = ("b.zip", "b.tar.gz", "b.tgz", "b.tar", "b.tar.zst")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("under", ["", "./", "bundle-2026/", "./a/"])
def test_an_archive_opens_like_its_directory(fill: Fill, tmp_path: Path, kind: str, under: str) -> None:
    assert open_bundle(packed(tmp_path / kind, FILES, under)) == open_bundle(fill(FILES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_a_meaning_is_not_taken_off(tmp_path: Path, kind: str) -> None:
    _, layout = open_bundle(packed(tmp_path / kind, {"rank0.json": stacks()}, "machine-a/"))
    assert layout.machines == {"a": (0,)}


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_lead_outside_are_refused_and_nothing_is_written(tmp_path: Path, kind: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    names = ("../rank1.json", "/rank2.json", "a/../../rank3.json", "..\\rank4.json")
    archive = packed(inside / kind, {"rank0.json": stacks(), **dict.fromkeys(names, stacks())})
    before = sorted(tmp_path.rglob("*"))
    snapshot, _ = open_bundle(archive)
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0]
    assert len(snapshot.account.unreadable) == 4
    assert all("outside the archive" in why for why in snapshot.account.unreadable.values())
    assert sorted(tmp_path.rglob("*")) == before


def test_links_pipes_and_devices_in_a_tar_are_refused(tmp_path: Path) -> None:
    kinds = {
        "rank1.json": tarfile.SYMTYPE,
        "rank2.json": tarfile.LNKTYPE,
        "rank3.json": tarfile.FIFOTYPE,
        "rank4.json": tarfile.CHRTYPE,
    }
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, kind in kinds.items():
            member = plain(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        archive.addfile(plain("rank0.json", stacks()), io.BytesIO(stacks()))
    snapshot, _ = open_bundle(tmp_path / "b.tar")
    assert len(snapshot.rounds[0].traces) == 1
    assert [reason.partition(";")[0] for reason in snapshot.account.unreadable.values()] == [
        "a symbolic link", "a hard link", "a named pipe", "a device",
    ]  # fmt: skip


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        link = zipfile.ZipInfo("rank1.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("rank0.json", stacks())
    snapshot, _ = open_bundle(tmp_path / "b.zip")
    (reason,) = snapshot.account.unreadable.items()
    assert reason[0] == "rank1.json" and "symbolic link" in reason[1]


@pytest.mark.parametrize("kind", ["b.zip", "b.tar.gz", "b.tar.zst"])
def test_a_bomb_is_not_unpacked(tmp_path: Path, kind: str) -> None:
    zeros = {f"rank{number}.json": bytes(33 << 20) for number in range(1, 4)}
    archive = packed(tmp_path / kind, {"rank0.json": stacks(), **zeros})
    assert archive.stat().st_size < 1 << 20
    snapshot, _ = open_bundle(archive)
    (told,) = set(snapshot.account.unreadable.values())
    assert all(value in told for value in ("33.0 MiB", "32.0 MiB", "limit file_bytes"))
    snapshot, _ = open_bundle(archive, Limits(file_bytes=64 << 20, total_bytes=90 << 20))
    assert "limit total_bytes" in snapshot.account.unreadable["."]


def test_a_frame_that_wants_more_memory_than_is_given_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "b.tar", {"rank0.json": stacks()})
    wanting: dict[int, int] = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.checksum_flag: 1}
    packing = zstd.ZstdCompressor(options=wanting)
    # without the size in its header a frame's reader must make room for the whole window
    (tmp_path / "b.tar.zst").write_bytes(packing.compress(archive.read_bytes()) + packing.flush())
    with refused("no-evidence", UnreadableBundle, "a damaged tar archive"):
        open_bundle(tmp_path / "b.tar.zst")


def test_a_zip_that_lies_about_a_size_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    archive = packed(tmp_path / "b.zip", {"rank0.json": stacks(), "rank1.json": bytes(1 << 20)})
    data = archive.read_bytes()
    archive.write_bytes(data.replace((1 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    snapshot, _ = open_bundle(archive, Limits(file_bytes=4096))
    assert list(snapshot.account.unreadable) == ["rank1.json"]


def test_endless_headers_are_not_read(tmp_path: Path) -> None:
    endless = tarfile.TarInfo("rank1.json")
    endless.pax_headers = {"comment": "x" * (1 << 20)}
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(plain("rank0.json", stacks()), io.BytesIO(stacks()))
        archive.addfile(endless)
    snapshot, _ = open_bundle(tmp_path / "b.tar")
    assert "headers" in snapshot.account.unreadable["."] and "256 KiB" in snapshot.account.unreadable["."]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_one_name_are_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("rank0.json", stacks(function="first"))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("rank0.json", stacks(function="second"))
    else:
        with tarfile.open(path, "w:gz" if path.suffix != ".tar" else "w") as tar:
            for function in ("first", "second"):
                data = stacks(function=function)
                tar.addfile(plain("rank0.json", data), io.BytesIO(data))
    snapshot, _ = open_bundle(path)
    assert snapshot.rounds[0].traces[0].threads[0].frames[0].function == "first"
    assert "two files" in snapshot.account.unreadable["rank0.json"]


def test_limits_of_archives_are_named(tmp_path: Path) -> None:
    archive = packed(tmp_path / "b.tar.gz", FILES)
    with refused("no-evidence", UnreadableBundle, "archive_bytes"):
        open_bundle(archive, Limits(archive_bytes=100))
    with refused("no-evidence", UnreadableBundle, "limit files"):
        open_bundle(packed(tmp_path / "b.zip", {f"{n}.txt": b"" for n in range(20)}), Limits(files=2))


@pytest.mark.parametrize("kind", ["b.tar.gz", "b.tar", "b.tar.zst"])
def test_a_truncated_archive_is_used_as_far_as_it_goes(tmp_path: Path, kind: str) -> None:
    noise = {f"noise{n}.txt": os.urandom(50_000).hex().encode() for n in range(9)}
    archive = packed(tmp_path / kind, {"rank0.json": stacks(), **noise, "rank1.json": stacks()})
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    snapshot, _ = open_bundle(archive)
    assert len(snapshot.rounds[0].traces) == 1
    assert "a damaged tar archive" in snapshot.account.unreadable["."]


def test_a_tar_cut_between_two_files_is_told(tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "b.tar", {f"rank{n}.json": b"[]".ljust(512) for n in range(9)} | {"rank9.json": stacks()}
    )
    with archive.open("r+b") as opened:
        opened.truncate(10 * 1024)
    snapshot, _ = open_bundle(archive)
    assert "end mark" in snapshot.account.unreadable["."]


def test_an_encrypted_file_is_told(tmp_path: Path) -> None:
    archive = packed(tmp_path / "b.zip", {"rank0.json": stacks()})
    data = bytearray(archive.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    archive.write_bytes(data)
    with refused("no-evidence", UnreadableBundle, "rank0.json: encrypted"):
        open_bundle(archive)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(KINDS), data=st.data())
def test_a_damaged_archive_never_crashes(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    damaged = bytearray(packed(tmp_path / kind, FILES).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / f"damaged-{kind}"
    file.write_bytes(damaged)
    for entry in archive_entries(file, DEFAULTS, lambda done, total: None):
        assert entry.path
