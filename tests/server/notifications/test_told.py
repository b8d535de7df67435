"""The file that says who is told: what is misspelt is refused, and addresses come from files of their own."""

import re
from pathlib import Path

import pytest

from hangdog_models.errors import WrongUse
from hangdog_server.main import serve
from hangdog_server.notifications.notify_config import PER_HOUR, NotifyConfig, Receiver, Subjects, read_config
from support.refused import refused
from support.servers.cast import verdict

WHOLE = """
link = "https://head:7413/"
per_hour = 5
[to.on-call]
url_file = "URL"
about = ["judged", "approval", "judged"]
[to.everybody]
url_file = "URL"
"""
TO = "[to.x]\nurl_file = 'URL'\n"
#: Codes of errors.
WRONG, UNKNOWN, UNREADABLE = "wrong-setting", "unknown-setting", "unreadable-file"


def read(folder: Path, text: str, url: str = "json://127.0.0.1/s3cret-address\n") -> NotifyConfig:
    (folder / "url").write_text(url)
    file = folder / "notify.toml"
    file.write_text(text.replace("URL", str(folder / "url")))
    return read_config(file)


def test_all_of_it(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    first = Receiver("on-call", "json://127.0.0.1/s3cret-address", frozenset({"judged", "approval"}))
    assert found == NotifyConfig((first, Receiver("everybody", first.url, frozenset(Subjects))), "https://head:7413", 5)
    assert (read(tmp_path, TO).link, read(tmp_path, TO).per_hour) == ("", PER_HOUR)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("", WRONG, "`to`"),
        ("to = 1", WRONG, "to: `int`"),
        ("[to]", WRONG, "to:"),
        ("[to]\nx = 1", WRONG, "to.x: `int`"),
        ("[to.x]", WRONG, "to.x: `url_file`"),
        ("[to.x]\nurl = 'json://x'", UNKNOWN, "to.x: `url` url_file"),
        ("[to.x]\nurl_file = '/nowhere/at/all'", UNREADABLE, "to.x: /nowhere/at/all"),
        ("[to.x]\nurl_file = '/dev/null'", WRONG, "to.x: url_file"),
        (TO + "about = ['juged']", WRONG, "to.x.about[0]: 'juged' judged"),
        (TO + "about = []", WRONG, "to.x.about:"),
        (TO + "abuot = ['judged']", UNKNOWN, "to.x: `abuot` about"),
        ("links = 'https://x'\n" + TO, UNKNOWN, "`links` link"),
        ("link = 'head:7413'\n" + TO, WRONG, "link 'head:7413'"),
        ("link = 'javascript://x'\n" + TO, WRONG, "link 'javascript://x'"),
        ("link = 'http://['\n" + TO, WRONG, "URL link"),
        ("per_hour = 0\n" + TO, WRONG, "per_hour: 1"),
        ("per_hour = true\n" + TO, WRONG, "per_hour: `bool`"),
        ("per_hour = 1.5\n" + TO, WRONG, "per_hour: `float`"),
        ("[to.'a\u202eb']\nurl_file = 'URL'", WRONG, "to: u202e"),
        (f"[to.{'x' * 101}]\nurl_file = 'URL'", WRONG, "to: xxx"),
        ("link = ", UNREADABLE, "docs/notifications.md"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, code: str, named: str) -> None:
    with pytest.raises(WrongUse, match=r"notify\.toml") as caught:
        read(tmp_path, text)
    said = f"{caught.value} {caught.value.hint}"
    assert caught.value.code == code and caught.value.hint and [one for one in named.split() if one not in said] == []
    assert "s3cret" not in said and "\u202e" not in said


def test_the_page_shows_a_file_that_is_taken_and_lists_all_there_is_to_be_told_of(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "notifications.md").read_text("utf-8")
    for name in ("on-call.url", "ml-infra.url"):
        (tmp_path / name).write_text("json://127.0.0.1/")
    example = page.partition("```toml\n")[2].partition("```")[0]
    found = read(tmp_path, example.replace("/etc/hangdog", str(tmp_path)))
    assert [to.name for to in found.receivers] == ["on-call", "ml-infra"] and found.receivers[1].about == set(Subjects)
    assert found.per_hour == PER_HOUR
    listed = page.partition("## Of what")[2].partition("\n\n**")[0]
    assert re.findall(r"^\| `(\w+)` \|", listed.partition("|---|")[2], re.MULTILINE) == list(Subjects)


def test_two_lines_are_no_address(tmp_path: Path) -> None:
    with refused("wrong-setting", WrongUse, "to.x", "url_file"):
        read(tmp_path, TO, "json://a/\njson://b/")


async def test_an_address_of_nothing_is_refused_before_the_server_serves(tmp_path: Path) -> None:
    read(tmp_path, TO, "nonsense://s3cret-address")
    with refused("wrong-setting", WrongUse, "to.x", "url_file") as caught:
        await serve("127.0.0.1:0", tmp_path / "s.db", verdict, lambda _: None, notify=tmp_path / "notify.toml")
    assert "s3cret" not in str(caught.value) and not (tmp_path / "s.db").exists()


def test_without_the_extra_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as caught:
        read(tmp_path, TO)
    assert caught.value.name == "apprise"
