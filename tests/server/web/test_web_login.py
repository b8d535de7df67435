"""Who may open the pages: tokens, cookies, other sites' pages, names that lead here and are not ours, TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.errors import WrongUse
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import ListenerConfig
from hangdog_server.web.credentials import inside
from support.refused import refused
from support.servers.browsed import browsed, hang
from support.servers.cast import NOON, stage
from support.servers.guarded import made, now

PATHS = ("/", "/machines", "/incidents/x", "/api/now", "/api/incidents", "/api/incidents/x", "/api/machines",
         "/api/events", "/api/incidents/x/events", "/api/openapi.json")  # fmt: skip


def door(folder: Path) -> tuple[ListenerConfig, str]:
    """A door for whoever has the token given."""
    file = folder / "tokens.json"
    return ListenerConfig(tokens=file), tokens.new(file, "alice", Role.VIEW, NOON)


async def test_without_a_token_nothing_is_shown_once_there_are_any(tmp_path: Path) -> None:
    opened, _ = door(tmp_path)
    async with browsed(tmp_path / "s.db", door=opened) as site:
        for path in PATHS:
            found = await site.http.get(path)
            if path.startswith("/api/"):
                assert found.status_code == 401 and found.headers["www-authenticate"] == "Bearer", path
            else:
                assert found.status_code == 303 and found.headers["location"] == f"/login?next={path}"


async def test_a_token_opens_the_pages_until_it_is_revoked(tmp_path: Path) -> None:
    opened, token = door(tmp_path)
    async with browsed(tmp_path / "s.db", door=opened) as site:
        assert (await site.http.get("/api/now", headers={"authorization": f"Bearer {token}"})).status_code == 200
        found = await site.http.post("/login", data={"token": token, "next": "/machines"})
        assert found.status_code == 303 and found.headers["location"] == "/machines"
        cookie = found.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie
        assert "Log out alice" in (await site.http.get("/machines")).text
        tokens.revoke(tmp_path / "tokens.json", "alice")
        assert (await site.http.get("/machines")).status_code == 303


async def test_logging_out_forgets_the_token(tmp_path: Path) -> None:
    opened, token = door(tmp_path)
    async with browsed(tmp_path / "s.db", door=opened) as site:
        await site.http.post("/login", data={"token": token})
        await site.http.post("/logout")
        assert (await site.http.get("/")).status_code == 303


async def test_a_wrong_token_is_said_and_no_cookie_is_set(tmp_path: Path) -> None:
    opened, _ = door(tmp_path)
    async with browsed(tmp_path / "s.db", door=opened) as site:
        for wrong in ("hangdog_x", "", "é" * 10):
            found = await site.http.post("/login", data={"token": wrong})
            assert found.status_code == 403 and "set-cookie" not in found.headers
        assert (await site.http.post("/login", content=b"x" * 5000)).status_code == 413


async def test_a_form_that_never_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_server.web.request_guard.PATIENCE_S", 0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"token="
        await asyncio.sleep(0.5)
        yield b"x"

    async with browsed(tmp_path / "s.db") as site, asyncio.timeout(50):
        found = await site.http.post("/login", content=slow())
        assert found.status_code == 408 and "request-too-slow" in found.text


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
async def test_another_sites_page_logs_nobody_in_or_out(tmp_path: Path, headers: dict[str, str]) -> None:
    opened, token = door(tmp_path)
    async with browsed(tmp_path / "s.db", door=opened) as site:
        found = await site.http.post("/login", data={"token": token}, headers=headers)
        assert found.status_code == 403 and "set-cookie" not in found.headers
        assert (await site.http.post("/logout", headers=headers)).status_code == 403


async def test_a_name_that_was_made_to_lead_here_shows_nothing_without_a_token(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        assert (await site.http.get("/api/now")).status_code == 200
        assert (await site.http.get("/api/now", headers={"host": "localhost:7413"})).status_code == 200
        assert (await site.http.get("/api/now", headers={"host": "evil.example"})).status_code == 401


async def test_a_proxy_that_is_trusted_says_who_somebody_is_and_nobody_else_does(tmp_path: Path) -> None:
    opened, _ = door(tmp_path)
    said = {"x-hangdog-user": "bob", "x-hangdog-role": "view"}
    async with browsed(tmp_path / "s.db", door=replace(opened, proxies=("127.0.0.1",))) as site:
        assert (await site.http.get("/api/now", headers=said)).status_code == 200
        twice = [*said.items(), ("x-hangdog-user", "alice")]
        assert (await site.http.get("/api/now", headers=twice)).status_code == 401
    async with browsed(tmp_path / "t.db", door=replace(opened, proxies=("10.0.0.1",))) as site:
        assert (await site.http.get("/api/now", headers=said)).status_code == 401


async def test_every_answer_forbids_frames_foreign_content_and_keeping(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        for path in ("/", f"/incidents/{name}", "/machines", "/login", "/api/now", "/nowhere", "/favicon.ico"):
            headers = (await site.http.get(path)).headers
            policy = headers["content-security-policy"]
            assert (
                policy.startswith("default-src 'none'")
                and "unsafe" not in policy
                and "frame-ancestors 'none'" in policy
            )
            assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store", path
            assert "server" not in headers


async def test_with_a_certificate_pages_go_over_tls_and_the_cookie_with_them(tmp_path: Path) -> None:
    folder = made(tmp_path / "ca").home / "server"
    file = tmp_path / "tokens.json"
    token = tokens.new(file, "alice", Role.VIEW, now())
    trusted = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    secure = ListenerConfig(tls=folder, tokens=file)
    async with browsed(tmp_path / "s.db", door=secure, verify=trusted, clock=now) as site:
        found = await site.http.post("/login", data={"token": token})
        cookie = found.headers["set-cookie"]
        assert cookie.startswith("__Host-hangdog=") and "Secure" in cookie
        assert (await site.http.get("/")).status_code == 200


async def test_pages_in_plain_text_beyond_this_machine_are_refused(tmp_path: Path) -> None:
    with refused("unencrypted-connection"):
        async with stage(tmp_path / "s.db", door=ListenerConfig(web="0.0.0.0:0")):
            pass


@pytest.mark.parametrize("web", ["127.0.0.1", "nonsense:x", "no.such.host.invalid:7413"])
async def test_an_address_that_is_none_is_said(tmp_path: Path, web: str) -> None:
    with pytest.raises(WrongUse):
        async with stage(tmp_path / "s.db", door=ListenerConfig(web=web)):
            pass


@pytest.mark.parametrize(
    ("asked", "gone"),
    [("/machines", "/machines"), ("//evil.example", "/"), ("/\\evil.example", "/"), ("https://evil.example", "/"), ("", "/"),
     ("/x\r\nset-cookie: a=b", "/")],
)  # fmt: skip
def test_a_login_leads_to_pages_of_ours_alone(asked: str, gone: str) -> None:
    assert inside(asked) == gone
