"""What schemathesis makes of the OpenAPI document is asked of a running server: it answers as it says, and never breaks."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdog_server.auth.tokens import Role
from support.servers.deciding import Deciding, deciding

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(300)]

#: Cases of each kind for each path: enough to see each answer that the document names. By hand, thousands found no more.
EXAMPLES = 5


def described(document: dict[str, Any], on: Deciding) -> dict[str, Any]:
    """The document, saying also what there is: a name made up at random is no incident's."""
    known = {"id": [on.incident, on.incident[:6]], "name": ["a", "x"], "incident": [on.incident], "job": ["llama"]}
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in known:
                    parameter["schema"] = {"anyOf": [{"enum": known[parameter["name"]]}, parameter["schema"]]}
    return document


@pytest.mark.parametrize(
    ("role", "origin", "phases"),
    [
        (Role.ACT, "", "coverage,fuzzing"),
        (Role.VIEW, "", "coverage"),
        (Role.ACT, "https://elsewhere.example", "coverage"),
    ],
    ids=["who may act", "who may look", "a page of another site"],
)
async def test_nothing_that_is_asked_gets_another_answer_than_the_document_says(
    tmp_path: Path, role: Role, origin: str, phases: str
) -> None:
    """Streams of events have no end, and are left to their own tests."""
    async with deciding(tmp_path) as on:
        file = tmp_path / "openapi.json"
        file.write_text(json.dumps(described((await on.alice.get("/api/openapi.json")).json(), on)))
        asked = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")), "--no-color", "run", str(file),
            "--url", on.site.address, "--header", f"Authorization: Bearer {on.tokens[role]}",
            "--exclude-path-regex", "/events$", "--checks", "all", "--continue-on-failure", "--max-examples", str(EXAMPLES),
            "--seed", "1", "--generation-deterministic", "--request-timeout", "60",
            "--phases", phases, *(("--header", f"Origin: {origin}") if origin else ()),
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        told, _ = await asked.communicate()
        assert asked.returncode == 0, told.decode()
        (act,) = (await on.acts())["actions"]
        assert (act["state"] != "waiting") is (role is Role.ACT and not origin), (
            "who may not decide has decided nothing"
        )
