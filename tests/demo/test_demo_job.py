"""What the demo's trainer does without torch: its live settings, and its log with the bug that sleeps in it."""

import threading
from pathlib import Path

import pytest

from hangdog.demo.job.journal import Journal
from hangdog.demo.job.settings import LiveSettings, read_settings, write_settings

#: Far longer than two threads need to meet, and the whole time a passing test may lose. Seconds.
PATIENCE_S = 10.0


def test_settings_are_the_defaults_until_somebody_changes_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    assert read_settings(path, LiveSettings) == LiveSettings()
    write_settings(path, {"report_every": 7})
    assert read_settings(path, LiveSettings) == LiveSettings(report_every=7)


def test_the_journal_writes_what_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    journal = Journal(path)
    for step in range(5):
        journal.record(f"step {step}", backlog=1000)
    written = threading.Event()

    def wait_for_all() -> None:
        while path.read_text().count("\n") < 5:
            pass
        written.set()

    threading.Thread(target=wait_for_all, daemon=True).start()
    assert written.wait(PATIENCE_S)
    assert path.read_text() == "".join(f"step {step}\n" for step in range(5))


def test_a_backlog_of_one_entry_blocks_two_threads_on_each_other_every_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.log")
    trainer = threading.Thread(target=journal.record, args=("step 1", 1), daemon=True)
    trainer.start()
    trainer.join(0.5)  # it never returns: half a second is a thousand times what recording takes
    assert trainer.is_alive()
    assert (tmp_path / "journal.log").read_text() == ""


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    write_settings(tmp_path / "settings.json", {"sleep": 1})
    with pytest.raises(TypeError):
        read_settings(tmp_path / "settings.json", LiveSettings)
