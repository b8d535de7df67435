"""What each page, command, answer and notice says of one incident, reduced to the same few facts."""

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import httpx
from click.testing import CliRunner
from playwright.async_api import Page

from hangdog.main import main
from support.fakes.receiver import Receiver

#: Facts by name. `job`: how it is, in one word; `verdict`: its kind; `machine`: the one to evict; `act`: what came of that;
#: `has`: who has the incident; `closed`: by whom and how it was closed; `notes`: how many; `over`: whether the job went on.
Facts = dict[str, str]
Read = Callable[[], Awaitable[Facts]]

KINDS = "machine|group|software|dependency|slow|none|undetermined"
#: How pages and commands speak of a job, by its state in JSON.
SPOKEN = {
    "stuck": r"stands still: ", "examined": r"is being looked at: ", "suspected": r"seems to stand still: ",
    "moving": r"\bmoves: ", "slower": r"moves more slowly: ", "lost": r"has lost ", "unknown": r"just started or not known yet: ",
}  # fmt: skip
#: How they speak of an act, and the word that JSON has.
ACTS = {
    "waiting": r"waits for approval", "isolated": r"is out of use|(?<!to be )\bisolated\b(?!:)|^done$", "left": r"is left where it is|^dismissed",
    "under way": r"being isolated|^pending$|^marked$",
}  # fmt: skip
#: The text of each entry of a page that is about a job or an incident.
ENTRIES = """([job, id]) => [...document.querySelectorAll("main li, main tr")]
  .filter((one) => one.textContent.includes(job) || one.querySelector(`a[href$="/incidents/${id}"]`))
  .map((one) => one.innerText.replace(/\\s+/g, " "))"""


def one(found: Iterable[str]) -> str:
    """What is said, once; surfaces that contradict themselves say all of it."""
    return " and ".join(sorted(dict.fromkeys(found)))


def act(words: str) -> str:
    """An act, from whatever words are said of it; empty where none are."""
    return one(name for name, pattern in ACTS.items() if re.search(pattern, words))


def of_people(text: str) -> Facts:
    """Who has the incident, or how it was closed: after that nobody has it."""
    closed = one(" by ".join(found) for found in re.findall(r"(resolved|dismissed) by (\w+)", text))
    return {"closed": closed, "has": "" if closed else one(re.findall(r"\b(?!Nobody\b)(\w+) has it", text))}


def of_line(line: Mapping[str, Any]) -> Facts:
    """An incident as JSON tells it, over HTTP or from a command."""
    response = line["response"]
    closed = "" if response["state"] == "open" else f"{response['state']} by {response['who']}"
    return {
        "verdict": line["verdict"] or "",
        "machine": one(line["evict"]),
        "closed": closed,
        "has": "" if closed else response["acknowledged_by"] or "",
        "over": "went on" if line["went_on_s"] else "",
    }


class Surfaces:
    """Reads everything that speaks of one incident of one job; `machine` is the one that the verdict names, where it names one."""

    def __init__(self, job: str, incident: str, address: str, http: httpx.AsyncClient, told: Receiver) -> None:
        self.job = job
        self.incident = incident
        self.machine = ""
        self._address = address
        self._http = http
        self._told = told
        self._typing = asyncio.Lock()

    def all(self, pages: Mapping[str, Page]) -> dict[str, Read]:
        """Each surface by its name; `pages` are open ones, by who has it open and what it shows."""
        found: dict[str, Read] = {}
        for name, page in pages.items():
            found[name] = self._reads(page, name.split()[-1])
        found |= {
            "/api/now": self._api_now,
            "/api/incidents": self._api_incidents,
            "/api/incidents/ID": self._api_incident,
            "/api/actions": self._api_actions,
            "/api/machines": self._api_machines,
            "hangdog jobs": self._jobs,
            "hangdog incidents": self._incidents,
            "hangdog show": self._show,
            "hangdog actions": self._actions,
            "hangdog machines": self._machines,
            "hangdog why": self._why,
            "notices": self._notices,
        }
        return found

    def _reads(self, page: Page, what: str) -> Read:
        of = {"now": self._now_page, "incident": self._incident_page, "machines": self._machines_page}[what]
        return lambda: of(page)

    # ---- pages, as they stand: nothing is asked for again

    async def _now_page(self, page: Page) -> Facts:
        entries = await page.evaluate(ENTRIES, [self.job, self.incident])
        text = "\n".join(entries)
        states = [name for name, words in SPOKEN.items() if re.search(words, text)]
        verdict = one(
            kind or open_
            for kind, open_ in re.findall(rf"\b({KINDS})(?:, \S+ sure| in {self.job})|\b(undetermined)\b", text)
        )
        said = {"job": one(states) or "ended", "verdict": verdict, "over": went_on(text), **of_people(text)}
        if verdict == "machine":
            said["machine"] = one(re.findall(r"(node-\d+) holds it up", text)) or one(re.findall(r"node-\d+", text))
        return said

    async def _incident_page(self, page: Page) -> Facts:
        text = re.sub(r"[ \t]+", " ", "\n".join(await page.locator("main").all_inner_texts()))
        kind = " ".join(await page.locator(".verdict .kind").all_inner_texts()) or "none yet"
        said = of_people(" ".join(await page.locator("#response").all_inner_texts()))
        word = kind.split()[-1].lower()
        judged = word in KINDS.split("|")
        evict = re.search(r"Evict (node-\d+)\.", text)
        acts = await page.locator(".done:not(.response) .acts li").all_inner_texts()
        return {
            **said,
            "verdict": word if judged else "",
            "machine": evict[1] if evict else "",
            "notes": str(len(re.findall(r"^\w+ notes: ", text, re.MULTILINE))),
            "over": went_on(text),
            "act": one(filter(None, map(act, acts))),
        }

    async def _machines_page(self, page: Page) -> Facts:
        if not self.machine:
            return {}
        rows = await page.evaluate(ENTRIES, [self.machine, "none"])
        return {"act": act(" ".join(rows))}

    # ---- the same over HTTP

    async def _api(self, path: str) -> Any:
        return (await self._http.get(path)).raise_for_status().json()

    async def _api_now(self) -> Facts:
        now = await self._api("/api/now")
        lines = [line for line in now["incidents"] if line["id"] == self.incident]
        states = [job["status"] for job in now["jobs"] if job["name"] == self.job]
        return {"job": one(states) or "ended", **of_line(lines[0])}

    async def _api_incidents(self) -> Facts:
        lines = (await self._api("/api/incidents"))["incidents"]
        return of_line(next(line for line in lines if line["id"] == self.incident))

    async def _api_incident(self) -> Facts:
        whole = await self._api(f"/api/incidents/{self.incident}")
        return {**of_line(whole), "notes": str(sum(entry["what"] == "noted" for entry in whole["entries"]))}

    async def _api_actions(self) -> Facts:
        acts = (await self._api(f"/api/actions?incident={self.incident}"))["actions"]
        return {"act": one(act(row["state"]) or row["state"] for row in acts)}

    async def _api_machines(self) -> Facts:
        rows = (await self._api("/api/machines"))["machines"]
        return (
            {"act": act(" ".join(row["state"] for row in rows if row["name"] == self.machine))} if self.machine else {}
        )

    # ---- what commands answer

    async def typed(self, line: str) -> str:
        """What a command prints, whatever its status; commands take turns, for they share this process's output."""
        words = [*shlex.split(line), "--server", self._address]
        async with self._typing:
            result = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert result.exit_code in (0, 1, 2), f"{line}: {result.output}"
        return result.stdout

    async def _json(self, line: str) -> Any:
        return json.loads(await self.typed(f"{line} --format json"))

    async def _jobs(self) -> Facts:
        rows = [row for row in (await self._json("jobs"))["jobs"] if row["job"] == self.job]
        said = {"job": one(row["state"] for row in rows) or "ended"}
        last = [row["last"] for row in rows if row["last"]]
        if last:
            said |= {"verdict": last[0]["verdict"], "machine": one(last[0]["evict"])}
        return said

    async def _incidents(self) -> Facts:
        lines = (await self._json("incidents"))["incidents"]
        return of_line(next(line for line in lines if line["id"] == self.incident))

    async def _show(self) -> Facts:
        text = await self.typed(f"show {self.incident}")
        kind = re.search(rf"^({KINDS}): ", text, re.MULTILINE)
        evict = re.search(r"Evict (node-\d+)\.", text)
        # the sections below tell what was, and do not count here; the notes stand in one of their own
        head = text.partition("\nwhat happened when")[0]
        notes = re.findall(r"\w+ notes: ", text.partition("\nnotes\n")[2].partition("\n\n")[0])
        return {
            "verdict": kind[1] if kind else "",
            "machine": evict[1] if evict else "",
            "notes": str(len(notes)),
            "over": went_on(head),
            **of_people(head),
        }

    async def _actions(self) -> Facts:
        acts = (await self._json(f"actions {self.incident}"))["actions"]
        return {"act": one(act(row["state"]) or row["state"] for row in acts)}

    async def _machines(self) -> Facts:
        rows = (await self._json("machines"))["machines"]
        decided = " ".join(row["decided"] or "" for row in rows if row["machine"] == self.machine)
        return {"act": act(decided)} if self.machine else {}

    async def _why(self) -> Facts:
        if not self.machine:
            return {}
        why = await self._json(f"why {self.machine}")
        states = [row["state"] for row in why["acts"] if row["incident"] == self.incident]
        jobs = [row["state"] for row in why["jobs"] if row["job"] == self.job]
        return {"act": one(act(state) or state for state in states), "job": one(jobs) or "ended"}

    # ---- what people were told, the latest of each

    async def _notices(self) -> Facts:
        said: Facts = {"verdict": "", "machine": "", "closed": "", "has": "", "over": "", "act": ""}
        for _, _, body in list(self._told.requests):
            notice = json.loads(body)
            title, text = notice["title"], f"{notice['title']}\n{notice['message']}"
            if f"/incidents/{self.incident}" not in text:
                continue
            if found := re.search(rf"^({KINDS}): (?:Evict (node-\d+))?", text, re.MULTILINE):
                said |= {"verdict": found[1], "machine": found[2] or ""}
            if re.search(r": (\w+ has it|nobody has it|(resolved|dismissed|reopened) by \w+)", title):
                said |= of_people(title)
            if "no sign of a standstill any more" in title:
                said["over"] = "went on"
            if re.search(r": isolate ", title):
                said["act"] = "waiting"
            elif found_act := act(title.partition(": ")[2]) if re.search(r": node-\d+ ", title) else "":
                said["act"] = found_act
        return said


def went_on(text: str) -> str:
    return "went on" if "went on after" in text else ""
