"""Who has an incident, notes and ends of it on its page: two people, each once, neither over the other's head."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import jsonschema

from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from support.servers.browsed import visitor
from support.servers.cast import NOON
from support.servers.deciding import Deciding, deciding

HOSTILE = "</p><script>alert(1)</script>\x1b[31m é"


def form(page: str, what: str) -> dict[str, str]:
    """The hidden fields of one form of a page."""
    found = re.search(rf'action="[^"]*/{what}">(.*?)</form>', page, re.DOTALL)
    assert found is not None, what
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', found[1]))


def second(on: Deciding) -> httpx.AsyncClient:
    token = tokens.new(on.folder / "tokens.json", "bob", Role.ACT, NOON)
    return visitor(on.site.address, headers={"authorization": f"Bearer {token}"})


async def test_a_second_person_sees_who_has_it_and_takes_nothing_unawares(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on, second(on) as bob, asyncio.timeout(120):
        path, alice = f"/incidents/{on.incident}", on.alice
        before = (await alice.get(path)).text
        assert "Nobody has it yet." in before and "I have it" in before
        assert "I have it" not in (await on.people[Role.VIEW].get(path)).text
        taken = form(before, "ack")
        twice = [await alice.post(f"{path}/ack", data=taken) for _ in range(2)]
        assert [one.status_code for one in twice] == [303, 303]
        late = await bob.post(f"{path}/ack", data=taken)
        assert late.status_code == 409 and "alice has it" in late.text
        page = (await bob.get(path)).text
        assert "alice has it" in page and "Take it over" in page and ">I have it<" not in page
        assert "alice has it" in (await bob.get("/")).text
        assert (await bob.post(f"{path}/take-over", data=form(page, "take-over"))).status_code == 303
        assert (await alice.post(f"{path}/give-back", data=taken)).status_code == 409
        page = (await alice.get(path)).text
        note = {**form(page, "note"), "because": HOSTILE}
        assert [(await alice.post(f"{path}/note", data=note)).status_code for _ in range(2)] == [303, 303]
        assert (await alice.post(f"{path}/note", data={**note, "because": " "})).status_code == 400
        page = (await bob.get(path)).text
        assert page.count("alice notes: &lt;") == 1 and "<script>alert" not in page
        for role in (Role.VIEW, Role.TRIGGER):
            assert (await on.people[role].post(f"{path}/ack", data=taken)).status_code == 403
        evil = {"origin": "http://evil.example"}
        assert (await alice.post(f"{path}/ack", data=taken, headers=evil)).status_code == 403
        assert (await alice.post(f"{path}/ack", data={})).status_code == 400


async def test_from_a_dismissal_to_what_it_was_on_page_and_in_json(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on, second(on) as bob, asyncio.timeout(120):
        path, alice = f"/incidents/{on.incident}", on.alice
        resolving = (await bob.get(f"{path}/resolve")).text
        seen = re.search(r'name="seen" value="(\d+)"', resolving)
        assert seen is not None
        assert (await on.posted("dismiss", "a drill")).status_code == 303
        assert (
            "dismissed by alice" in (await bob.get(path)).text and "taken back" in (await bob.get("/machines/a")).text
        )
        typed = {"seen": seen[1], "cause": "machine", "machines": "a", "because": "I saw the fan"}
        late = await bob.post(f"{path}/resolve", data=typed)
        assert late.status_code == 409 and "were shown it" in late.text and typed["because"] in late.text
        wrong = await bob.post(f"/api{path}/resolve", json={"cause": "software", "machines": "a"})
        assert wrong.status_code == 400 and wrong.json()["code"] == "conflicting-options"
        done = await bob.post(f"/api{path}/resolve", json={"cause": "machine", "machines": "a", "because": "the fan"})
        assert done.json()["settled"]["machines"] == ["a"] and done.json()["response"]["state"] == "resolved"
        assert (await alice.post(f"/api{path}/ack")).status_code == 409
        assert (await alice.post(f"/api{path}/reopen", json={"because": " "})).status_code == 400
        opened = await alice.post(f"/api{path}/reopen", json={"because": "it hangs again"})
        assert opened.json()["response"]["state"] == "open" and opened.json()["settled"] is None
        whole = (await alice.get(f"/api{path}")).json()
        assert [one["what"] for one in whole["entries"]] == ["dismissed", "resolved", "reopened"]
        schemas = (await alice.get("/api/openapi.json")).json()["components"]["schemas"]
        jsonschema.validate(whole, {**schemas["Incident"], "components": {"schemas": schemas}})
        page = (await alice.get(path)).text
        assert "alice reopened" in page and ": it hangs again" in page
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(one["what"], one["who"], one["outcome"]) for one in lines if one["outcome"] in ("resolved", "reopened")]
    assert told == [("resolve machine a", "bob", "resolved"), ("reopen", "alice", "reopened")]
