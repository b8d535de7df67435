"""Which machine this is, and which of its starts: told where the kernel and the firmware tell it, else left empty."""

from pathlib import Path

from hangdog_agent.checks.check_paths import CheckPaths


def test_a_start_and_a_serial_number_are_read_where_they_are(tmp_path: Path) -> None:
    places = CheckPaths(proc=tmp_path / "proc", sys=tmp_path / "sys")
    assert (places.boot(), places.serial()) == ("unknown", "")
    boot, dmi = tmp_path / "proc/sys/kernel/random/boot_id", tmp_path / "sys/class/dmi/id"
    boot.parent.mkdir(parents=True)
    boot.write_text("7f9c24e8\n")
    dmi.mkdir(parents=True)
    (dmi / "product_serial").write_text("  \n")
    (dmi / "product_uuid").write_text("4c4c-4544\n")
    assert (places.boot(), places.serial()) == ("7f9c24e8", "4c4c-4544")
    (dmi / "product_serial").write_text("J7QK2X3\n")
    assert places.serial() == "J7QK2X3"
