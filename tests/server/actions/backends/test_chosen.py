"""The file in which an operator chooses: nothing acts by itself, and what is misspelt is refused, not ignored."""

import re
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.errors import WrongUse
from hangdog_server.actions.backends.actions_config import ActionsConfig, PolicyOfTests, chosen
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.no_action import Nothing

#: Codes of errors.
WRONG, UNKNOWN, UNREADABLE = "wrong-setting", "unknown-setting", "unreadable-file"
ACTING = (Path(__file__).resolve().parents[4] / "docs" / "acting.md").read_text("utf-8")

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


REPLAYS = """
[policy]
test = "auto"
replay = "auto"
[replay]
machines = 16
time_s = 300
group_size = 4
[replay.jobs]
"llama-*" = "llama"
"*" = ""
"""


def test_what_is_replayed_for_which_job_is_a_name_by_the_first_pattern(tmp_path: Path) -> None:
    replay = read(tmp_path, REPLAYS).testing.replay
    assert replay is not None and (replay.machines, replay.time_s, replay.group_size) == (16, 300.0, 4)
    assert (replay.name("llama-70b-1"), replay.name("Llama-70b")) == ("llama", "")
    bare = read(tmp_path, "[policy]\ntest = 'auto'\nreplay = 'auto'\n[replay.jobs]\nllama = 'a'").testing.replay
    assert bare is not None and (bare.machines, bare.time_s, bare.group_size) == (64, 180.0, 0)
    assert bare.name("llama-2") is None
    assert read(tmp_path, REPLAYS.replace('replay = "auto"', "")).testing.replay is None


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("mode = 'on'", WRONG, "mode: 'on' dry-run"),
        ("mode = 1", WRONG, "mode: auto"),
        ("actors = ['slrum']", WRONG, "actors[0]: 'slrum' slurm"),
        ("actors = []", WRONG, "actors:"),
        ("[cap]\nper_hour = 1", UNKNOWN, "`cap` caps exclude-file"),
        ("[policy]\ntest = 'always'", WRONG, "policy.test: 'always' ask"),
        ("[policy]\ntest = true", WRONG, "policy.test: `bool`"),
        ("[policy]\nrelease = 'auto'", WRONG, 'policy: needs test = "auto"'),
        ("[policy]\ntset = 'auto'", UNKNOWN, "policy: `tset` test"),
        ("[policy]\nreplay = 'auto'", WRONG, 'policy: replay = "auto" needs test = "auto"'),
        ("[policy]\ntest = 'auto'\nreplay = 'auto'", WRONG, "needs [replay.jobs]"),
        ("[replay]\nmachines = 2", WRONG, "replay.machines: 3"),
        ("[replay]\nmachines = 2000", WRONG, "replay.machines: 1024"),
        ("[replay]\ntime_s = 1", WRONG, "replay.time_s: 5"),
        ("[replay]\ntime_s = nan", WRONG, "replay.time_s:"),
        ("[replay]\ngroup_size = 1", WRONG, "replay: two machines"),
        ("[replay]\ncommand = 'sh'", UNKNOWN, "replay: `command` jobs"),
        ("[replay.jobs]\nllama = ['sh']", WRONG, "replay.jobs `array`"),
        ("[caps]\nper_houer = 1", UNKNOWN, "caps: `per_houer` per_hour"),
        ("[caps]\nper_hour = true", WRONG, "caps.per_hour: `bool`"),
        ("[caps]\nper_hour = 1.5", WRONG, "caps.per_hour: `float`"),
        ("[caps]\nper_hour = -1", WRONG, "caps.per_hour: 0"),
        ("[caps]\nshare = nan", WRONG, "caps.share:"),
        ("[caps]\nbreaker_share = 1.5", WRONG, "caps.breaker_share: 1"),
        ("[caps]\nagain_s = inf", WRONG, "caps.again_s:"),
        ("caps = 1", WRONG, "caps: `int`"),
        ("stop = 1", WRONG, "stop: `int`"),
        ("stop = ''", WRONG, "stop:"),
        ("actors = ['slurm']\n[slurm]\nrequeue = 'yes'", WRONG, "slurm.requeue: `bool` `str`"),
        ("actors = ['slurm']\n[slurm]\nforce = true", UNKNOWN, "slurm: `force` requeue"),
        ("actors = ['slurm']\nslurm = 1", WRONG, "slurm: `int`"),
        ("actors = ['none']\n[none]\nforce = true", UNKNOWN, "none: `force`"),
        ("actors = ['webhook']", WRONG, "webhook: `url`"),
        ("actors = ['webhook']\n[webhook]\nurl = ''\nsecret_file = 'SECRET'", WRONG, "webhook.url:"),
        ("actors = ['webhook']\n[webhook]\nurl = 'x'\nsecret_file = '/no/such'", UNREADABLE, "webhook: /no/such:"),
        ("actors = ['webhook']\n[webhook]\nurl = 'x'\nsecret_file = '/dev/null'", WRONG, "webhook: secret_file 16"),
        ("[checkpoint]", WRONG, "checkpoint: `copies`"),
        ("[checkpoint]\ncopies = 1", WRONG, "checkpoint.copies: `int`"),
        ("[checkpoint]\ncopies = '/x'\nprice = 1", UNKNOWN, "checkpoint: `price` copies"),
        ("checkpoint = 1", WRONG, "checkpoint: `int`"),
        ("'x - at `$.y' = 1", UNKNOWN, "`x docs/acting.md"),
        ("actors = [", UNREADABLE, "docs/acting.md"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, code: str, named: str) -> None:
    with pytest.raises(WrongUse, match=r"acting\.toml") as caught:
        read(tmp_path, text)
    said = f"{caught.value} {caught.value.hint}"
    assert caught.value.code == code and caught.value.hint and [one for one in named.split() if one not in said] == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="No such file") as caught:
        chosen(tmp_path / "acting.toml", lambda: 0.0)
    assert caught.value.code == UNREADABLE


def test_the_table_of_a_backend_that_is_not_used_is_not_checked(tmp_path: Path) -> None:
    assert [actor.name for actor in read(tmp_path, "[webhook]\nurl = 'https://planned'\n").actors] == ["none"]


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", ACTING, re.DOTALL | re.MULTILINE))
def test_each_file_that_the_page_shows_is_taken(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setattr(KubeApi, "own", lambda: KubeApi("https://127.0.0.1", tmp_path / "token", ""))
    assert read(tmp_path, text.replace("/etc/hangdog/webhook.key", "SECRET")).actors
