"""Messages reach real receivers over real sockets, unharmed and harmless; receivers that are away, slow or wrong are named."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from hangdog_server.notifications.message import Message, message
from hangdog_server.notifications.notify_config import NotifyConfig, Receiver
from hangdog_server.notifications.send import check, post
from support.fakes.receiver import Receiver as Http
from support.fakes.receiver import receiving
from support.servers.cast import cluster, stage, trainer
from support.servers.notified import receiver
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

SECRET = "3ccdd113474722377935511fc85d3dd4"
HOSTILE = message(
    "llama <!channel> & @here", ("a <@U123> b", "[click](http://evil.example) *x*", "<script>alert(1)</script>"), "https://head/i/1"
)  # fmt: skip


def chat(http: Http) -> Receiver:
    """Mattermost, whose webhooks are those of Slack, at an address that can be given."""
    return receiver("chat", f"mmost://{http.url.partition('//')[2].rpartition('/')[0]}/{SECRET}")


@dataclass
class Mail:
    """A mail server of the tests' own."""

    port: int = 0
    came: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:  # aiosmtpd's name
        found = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(found, EmailMessage)
        self.came.append(found)
        return "250 taken"


@asynccontextmanager
async def mailed() -> AsyncIterator[Mail]:
    mail = Mail()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mail, hostname="localhost", loop=loop), "127.0.0.1", 0)
    mail.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mail


async def test_a_chat_that_takes_slacks_webhooks_is_told_what_wakes_nobody() -> None:
    async with receiving() as http:
        posted = await post(chat(http), HOSTILE)
    assert (posted.service, posted.failed) == ("Mattermost", "")
    [(path, _, content)] = http.requests
    assert path == f"POST /hooks/{SECRET}"
    told = json.loads(content)
    assert told["text"].splitlines() == [HOSTILE.title, *HOSTILE.lines, "https://head/i/1"]
    assert "<" not in told["text"] and "@" not in told["text"] and "](" not in told["text"]
    assert "icon_url" not in told, "no picture that a reader's program would fetch from elsewhere"


async def test_slack_is_told_the_same() -> None:
    async with receiving() as http:
        http.says = b"ok"
        # Slack's own address cannot be had here; all else is as it is
        there = f"from apprise.plugins.slack import NotifySlack as S; S.webhook_url = {http.url!r}"
        url = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"{there}; from hangdog_server.notifications.apprise_process import main; main()",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        given = json.dumps({"url": url, "title": HOSTILE.title, "body": HOSTILE.body})
        said, _ = await process.communicate(given.encode())
    assert json.loads(said) == {"service": "Slack", "failed": ""}
    [(path, _, content)] = http.requests
    assert path == "POST /hook/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    [told] = json.loads(content)["attachments"]
    assert "https://head/i/1" in told["text"] and "\u2039script\u203a" in told["text"]
    assert not set("<@[]") & set(told["title"] + told["text"])


async def test_a_mail_comes_with_its_subject_and_nothing_in_it_is_markup() -> None:
    raw = Message(
        "a", ("<b>bold</b> & *x*",)
    )  # as if nothing had been replaced: the library is told that it is plain text
    async with mailed() as mail:
        url = f"mailto://127.0.0.1:{mail.port}?from=hangdog@example.org&to=oncall@example.org&mode=insecure"
        assert [(await post(receiver("mail", url), one)).failed for one in (HOSTILE, raw)] == ["", ""]
    came, plain = mail.came
    assert came["subject"] == HOSTILE.title and "oncall@example.org" in came["to"]
    for text in texts(came):
        assert "https://head/i/1" in text and "alert(1)" in text and "<script" not in text and "<@" not in text
    assert texts(plain) and all("<b>bold" not in text or kind == "plain" for kind, text in kinds(plain))


def kinds(mail: EmailMessage) -> list[tuple[str, str]]:
    return [(part.get_content_subtype(), part.get_content()) for part in mail.walk() if not part.is_multipart()]


def texts(mail: EmailMessage) -> list[str]:
    return [text for _, text in kinds(mail)]


async def test_a_redirect_is_not_followed_and_a_refusal_is_said() -> None:
    async with receiving() as http, receiving() as other:
        http.status, http.headers = 307, f"Location: {other.url}\r\n"
        posted = await post(chat(http), HOSTILE)
        assert "307" in posted.failed and SECRET not in posted.failed
        assert len(http.requests) == 1 and other.requests == []


async def test_who_is_away_or_no_receiver_at_all_is_said_without_the_secret() -> None:
    away = await post(receiver("chat", f"mmost://127.0.0.1:1/{SECRET}"), HOSTILE)
    assert "onnection error" in away.failed and SECRET not in away.failed
    said = await post(receiver("chat", f"twilio://{SECRET.upper()}:none@12345678900"), HOSTILE)
    assert "invalid Twilio" in said.failed and SECRET not in said.failed.lower(), "the library names it"


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("bytearray(2 << 30)", "ended with 1: MemoryError"),
        ("os.kill(os.getpid(), 9)", "ended with -9"),
        ("sys.exit(unquote(url))", "ended with 1: mmost://user:...@host/"),
    ],
)
async def test_what_the_library_breaks_on_is_not_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, words: str
) -> None:
    """A fake library, for none is known on which the real one breaks."""
    fake = "import os, sys", "from urllib.parse import unquote", "AppriseAsset = dict", "class Apprise:"
    (tmp_path / "apprise.py").write_text("\n".join((*fake, f"    def instantiate(url, **more): {does}")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    posted = await post(receiver("chat", "mmost://user:s%33cr%65t@host/"), HOSTILE)
    assert words in posted.failed and "s3cret" not in posted.failed


async def test_a_service_of_ones_own_is_told_as_json() -> None:
    async with receiving() as http:
        host = http.url.partition("//")[2].rpartition("/")[0]
        assert (await post(receiver("own", f"json://{host}/hangdog"), HOSTILE)).failed == ""
    [(path, _, content)] = http.requests
    told = json.loads(content)
    assert path == "POST /hangdog" and (told["title"], told["message"]) == (HOSTILE.title, HOSTILE.body)


async def test_a_machine_too_busy_to_look_at_the_addresses_serves_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hangdog_server.notifications.send.WITHIN_S", 0.001)
    await check(NotifyConfig((receiver("chat", "nonsense://x"),)))
    assert names(caplog.text, "cannot check", "to.chat")


async def test_who_never_answers_is_left_and_the_secret_is_on_no_command_line() -> None:
    called, others = asyncio.Event(), children()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await reader.read()  # until the other side is gone
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        to = receiver("chat", f"mmost://127.0.0.1:{port}/{SECRET}?rto=100")
        sending = asyncio.create_task(post(to, HOSTILE, 100.0))
        async with asyncio.timeout(90):
            await called.wait()
        (mine,) = children() - others
        assert SECRET not in (Path("/proc") / mine / "cmdline").read_text()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert mine not in children(), "killed and reaped"
    assert "longer than 0.001 s" in (await post(to, HOSTILE, 0.001)).failed


def children() -> set[str]:
    return {*(Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split()}


@pytest.mark.slow
async def test_a_running_server_tells_of_a_verdict(tmp_path: Path) -> None:
    async with receiving() as http:
        tells = NotifyConfig((chat(http),), "https://head:7413")
        async with stage(tmp_path / "s.db", tells=tells) as on, cluster(on, a=[0]) as (agent,):
            asking = asyncio.create_task(on.snapshot("llama", rounds=1))
            await agent.answer(await agent.order(), trainer(0), last=True)
            incident = (await asking)[-1].incident
            async with asyncio.timeout(90):
                while not any(b"cause unknown" in content for _, _, content in http.requests):
                    await asyncio.sleep(0.05)
    texts = [json.loads(content)["text"] for _, _, content in http.requests]
    assert len(texts) == len(set(texts)) and texts[-1].endswith(f"https://head:7413/incidents/{incident}")


async def asked(*args: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hangdog", "notify", *args,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.slow
async def test_the_command_sends_a_test_message_and_says_who_did_not_take_it(tmp_path: Path) -> None:
    async with receiving() as http:
        (tmp_path / "chat").write_text(chat(http).url + "\n")
        (tmp_path / "away").write_text(f"mmost://127.0.0.1:1/{SECRET}")
        file = tmp_path / "notify.toml"
        file.write_text("".join(f'[to.{one}]\nurl_file = "{tmp_path / one}"\n' for one in ("chat", "away")))
        status, said = await asked("--notify", str(file), "--dry-run", "--to", "chat")
        assert status == 0 and "chat: would be" in said
        assert http.requests == [] and "away" not in said
        status, said = await asked("--notify", str(file))
        assert status == 69 and "chat: sent (Mattermost)" in said and "away: not sent:" in said and SECRET not in said
        assert "This is a test." in json.loads(http.requests[0][2])["text"]
        status, said = await asked("--notify", str(file), "--to", "nobody")
        assert status == 64 and "chat, away" in said


def test_the_addresses_are_shown_by_nothing() -> None:
    assert SECRET not in repr(NotifyConfig((receiver("chat", f"mmost://x/{SECRET}"),)))
    assert Message("a", ("b", "c"), "").body == "b\nc"
