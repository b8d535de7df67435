"""The file in which an operator chooses: nothing acts by itself, and what is misspelt is refused, not ignored."""

from pathlib import Path

import pytest

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.errors import WrongUse
from hangdog_server.actions.backends.actions_config import ActionsConfig, PolicyOfTests, chosen
from hangdog_server.actions.backends.no_action import Nothing

WHOLE = """
mode = "auto"
actors = ["slurm", "webhook", "alertmanager", "exclude-file", "none"]
stop = "/run/hangdog.stop"
[caps]
per_hour = 2
share = 0.25
[slurm]
requeue = false
[webhook]
url = "https://ops.example/hangdog"
secret_file = "SECRET"
[alertmanager]
url = "http://alerts:9093"
cluster = "north"
[exclude-file]
path = "/shared/excluded"
"""


def read(folder: Path, text: str) -> ActionsConfig:
    (folder / "secret").write_text("0123456789abcdef\n")
    file = folder / "acting.toml"
    file.write_text(text.replace("SECRET", str(folder / "secret")))
    return chosen(file, lambda: 0.0)


def test_all_of_it(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.mode, found.caps, found.stop) == (Mode.AUTO, Caps(per_hour=2, share=0.25), Path("/run/hangdog.stop"))
    assert [actor.name for actor in found.actors] == ["slurm", "webhook", "alertmanager", "exclude-file", "none"]


def test_without_a_word_nothing_is_touched(tmp_path: Path) -> None:
    for found in (ActionsConfig(), read(tmp_path, "")):
        assert found.mode is Mode.DRY_RUN and [type(actor) for actor in found.actors] == [Nothing]
    assert read(tmp_path, "").stop == tmp_path / "acting.toml.stop"


def test_what_is_done_without_people_is_said_in_so_many_words(tmp_path: Path) -> None:
    assert read(tmp_path, "").testing == PolicyOfTests(test=False, release=False)
    assert read(tmp_path, "[policy]\ntest = 'auto'").testing == PolicyOfTests(test=True, release=False)
    assert read(tmp_path, "[policy]\ntest = 'auto'\nrelease = 'auto'").testing == PolicyOfTests(test=True, release=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode = 'on'", "'on' is no mode"),
        ("mode = 1", "1 is no mode"),
        ("actors = ['slrum']", "is not a list of backends"),
        ("actors = []", "is not a list of backends"),
        ("[cap]\nper_hour = 1", "cap is no setting"),
        ("[policy]\ntest = 'always'", "test = 'always' is no choice"),
        ("[policy]\ntest = true", "test needs a text value"),
        ("[policy]\nrelease = 'auto'", 'needs test = "auto"'),
        ("[policy]\ntset = 'auto'", "tset is no setting"),
        ("[caps]\nper_houer = 1", "per_houer is no setting"),
        ("[caps]\nper_hour = true", "True is no bound"),
        ("[caps]\nper_hour = 1.5", "1.5 is no bound"),
        ("[caps]\nper_hour = -1", "-1 is no bound"),
        ("[caps]\nshare = nan", "nan is no bound"),
        ("caps = 1", "caps is no table"),
        ("stop = 1", "is no path"),
        ("actors = ['slurm']\n[slurm]\nrequeue = 'yes'", "neither true nor false"),
        ("actors = ['slurm']\n[slurm]\nforce = true", "force is no setting"),
        ("actors = ['webhook']", "url needs a text value"),
        ("actors = ['webhook']\n[webhook]\nurl = 'x'\nsecret_file = '/no/such'", "cannot read /no/such"),
        ("actors = ['webhook']\n[webhook]\nurl = 'x'\nsecret_file = '/dev/null'", "too short"),
        ("[checkpoint]", "copies needs a text value"),
        ("[checkpoint]\ncopies = 1", "copies needs a text value"),
        ("[checkpoint]\ncopies = '/x'\nprice = 1", "price is no setting"),
        ("checkpoint = 1", "checkpoint is no table"),
        ("actors = [", "cannot read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WrongUse, match=r"acting\.toml") as caught:
        read(tmp_path, text)
    assert words in str(caught.value) and caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="No such file"):
        chosen(tmp_path / "acting.toml", lambda: 0.0)
