"""What lists cost in a large fleet: how fast a search is answered, and for how long agents wait while people browse.

    python bench/lists.py [--machines 16384] [--incidents 3000] [--people 10] [--rest 1] [--asked 30]

The server is a process of its own. Its played agents have no streams, but a job and signs of life; its incidents, in a SQLite
file, have verdicts of 100 KiB and name machines, and people have closed half of them. `server` is the time from a request
to its answer's last byte, of searches that were not made before: the middle one and the worst of `--asked`, and what CPU
the server used for each. `painted` is the
first paint in Chromium, the middle one of five fresh pages, on a screen of 1280x800 and one of 375x812, whose height in
pixels stands beside it. Then real agents connect over gRPC, one after the other, and wait for the server's answer: first while
nobody looks, then while people browse, each of whom looks at a list for `--rest` seconds and asks for another one, then while
each asks as soon as one is there. Beside it stands for how long one step of the event loop kept all others waiting, in CPU seconds, which other work on the machine does not lengthen.
Last: the memory of the server, how much of it came with the lists, and how much else the machine had to do.
"""

import argparse
import asyncio
import itertools
import os
import random
import resource
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, thread_time

import httpx
import sqlalchemy as sa
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hangdog.demo.conductor import free_port
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import IncidentResponse
from hangdog_models.ranks import Rank
from hangdog_server.cluster.connection import Connection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import steady
from hangdog_server.listener import LOCAL
from hangdog_server.main import TURN_S
from hangdog_server.observability.setup import Observers
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store.store import Store
from hangdog_server.store.tables import INCIDENTS, INTENTS, LEDGER
from support.servers.cast import NOON, PATIENT, Agent, stage

#: Bytes of a verdict: of some hundred ranks. A list that read them would read 300 MiB.
VERDICT = 100 << 10
#: Machines of one job.
OF_JOB = 256
SCREENS = {"wide": (1280, 800), "phone": (375, 812)}
LISTS = ("incidents", "jobs", "machines", "actions")
PAINTED = """() => new Promise((done) => {
    const look = () => performance.getEntriesByName("first-contentful-paint")[0];
    if (look()) { done(look().startTime); return; }
    new PerformanceObserver(() => { if (look()) done(look().startTime); }).observe({ type: "paint", buffered: true });
})"""
#: Fresh pages for one figure, and agents for one.
OPENED, AGENTS = 5, 200


def machine(number: int) -> str:
    return f"gpu-{number % 100_000:05}"


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


# ---- the server


def past(connection: sa.Connection, incidents: int, machines: int) -> None:
    """Incidents of a year, what verdicts said of machines, what people decided, and what was done."""
    chance = random.Random(1)
    kinds = ("machine", "software", "group", "undetermined")
    for number in range(incidents):
        name, guilty = f"{chance.getrandbits(48):012x}", machine(chance.randrange(machines))
        state = chance.choice(("open", "open", "dismissed", "resolved"))
        at, job = NOON - 600.0 * number, f"llama-{number % (machines // OF_JOB or 1)}"
        response = IncidentResponse(state, "ada" if state != "open" else "", at, entries=int(state != "open"))
        stated = {"id": name, "job": job, "state": "judged", "began": at, "changed": at + 9, "kind": kinds[number % 4]}
        rest = {
            "why": "suspected: no rank moves any more",
            "note": "",
            "asked": {},
            "confidence": 0.9,
            "evict": [guilty],
        }
        text = {"verdict": "x" * VERDICT, "verdict_bytes": VERDICT, "response": asdict(response)}
        connection.execute(INCIDENTS.insert().values(**stated, **rest, **text))
        for other in (guilty, machine(chance.randrange(machines)), machine(chance.randrange(machines))):
            mention = "taken back" if state == "dismissed" else "convicted" if other == guilty else "suspected"
            said = {"machine": other, "incident": name, "job": job, "at": at, "mention": mention}
            connection.execute(LEDGER.insert().values(**said, probability=0.5, among=1, kind="machine"))
        act = {"incident": name, "machine": guilty, "job": job, "domain": "", "at": at, "changed": at, "message": ""}
        act |= {"state": "dismissed" if state == "dismissed" else "released", "reason": "it hangs", "who": "ada"}
        blank = {"evidence_at": at, "boot": "", "serial": "", "marked": False, "runs": {}}
        connection.execute(INTENTS.insert().values(**act, **blank))


async def serve(folder: Path, machines: int, incidents: int) -> None:
    """A server of a large fleet, until its stdin ends; says where it is."""
    sys.setswitchinterval(TURN_S)
    store = Store(folder / "s.db", within_s=600.0)
    await store.do(past, incidents, machines)
    store.close()
    settings = replace(PATIENT, max_machines=2 * machines)
    fleet, web = Fleet(settings), f"127.0.0.1:{free_port()}"
    async with stage(
        folder / "s.db", settings=settings, door=replace(LOCAL, web=web), observers=Observers(fleet)
    ) as on:  # fmt: skip
        here = []
        for number in range(machines):
            one = fleet.connect(machine(number), "0.9", "ipv4:10.0.0.1:1", steady())
            ranks = tuple(Rank(rank) for rank in range(8 * (number % OF_JOB), 8 * (number % OF_JOB) + 8))
            fleet.announce(one, {"j": AnnouncedJob(f"llama-{number // OF_JOB}", ranks, 8 * OF_JOB)}, steady())
            if number % 50 == 0:
                found = Finding("kernel", "Xid 48", Impact.SUSPECTS, "a double-bit ECC error")
                fleet.checked(one, (found,))
            here.append(one)
        print(f"{on.address} http://{web} {resident_mib(os.getpid()):.0f}", flush=True)
        living = asyncio.create_task(live(here))
        held = watched_loop()
        while await asyncio.to_thread(sys.stdin.readline):  # each line asks for what was held since the last one
            print(f"{1e3 * max(held):.0f} {sum(one > 0.05 for one in held)} {len(held)}", flush=True)
            held.clear()
        living.cancel()


def watched_loop() -> list[float]:
    """For how long each step of the event loop has kept all others waiting from now on, in CPU seconds of its thread."""
    held = [0.0]
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = thread_time()
        run(handle)
        held.append(thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    return held


async def live(here: Sequence[Connection]) -> None:
    """Signs of life, as many a second as so many agents give."""
    for one in itertools.cycle(here):
        one.last_message = steady()
        await asyncio.sleep(1 / 200)


# ---- who asks


def questions(machines: int, number: int) -> list[str]:
    """The `number`th address of each sort; none is asked twice."""
    chance = random.Random(number)
    limit = 20 + number % 100
    return [
        f"/machines?search={machine(chance.randrange(machines))}&limit={limit}",
        f"/machines?state=suspected&sort=weight&page={1 + number % 7}&limit={limit}",
        f"/incidents?search={machine(chance.randrange(machines))[:7]}&limit={limit}",
        f"/incidents?state=open&sort=-job&page={1 + number % 9}&limit={limit}",
        f"/actions?search={machine(chance.randrange(machines))[:6]}+ada&limit={limit}",
        f"/jobs?search=llama-{chance.randrange(machines // OF_JOB or 1)}&limit={limit}",
    ]


def used_ms(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def searched(http: httpx.AsyncClient, machines: int, asked: int, pid: int) -> None:
    """Prints how long searches take, sort by sort."""
    for sort, first in enumerate(questions(machines, 0)):
        times, before, size = [], used_ms(pid), 0
        for number in range(asked):
            began = perf_counter()
            answer = await http.get(questions(machines, number)[sort])
            times.append(1e3 * (perf_counter() - began))
            assert answer.status_code == 200, answer.text
            size = int(answer.headers["content-length"])
        cpu, name = (used_ms(pid) - before) / asked, first[: first.index("=") + 1]
        print(
            f"server   {name:19} median {median(times):6.1f} ms, worst {max(times):6.1f} ms, {cpu:5.1f} ms of CPU, "
            f"{size / 1024:.0f} KiB sent",
            flush=True,
        )


async def painted(address: str) -> None:
    """Prints how soon pages are painted, and how high they are."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name in LISTS:
            for screen, (width, height) in SCREENS.items():
                times = []
                for _ in range(OPENED):
                    page = await browser.new_page(viewport={"width": width, "height": height})
                    await page.goto(f"{address}/{name}")
                    times.append(float(await page.evaluate(PAINTED)))
                    await page.goto(f"{address}/{name}?limit=200")
                    high = await page.evaluate("document.documentElement.scrollHeight")
                    await page.close()
                print(
                    f"painted  /{name:11} {screen:6} median {median(times):5.0f} ms, {high:,} px high with 200 lines",
                    flush=True,
                )
        await browser.close()


async def connected(address: str, tag: str) -> list[float]:
    """How long each of some agents waits for the server's answer, in milliseconds."""
    times = []
    for number in range(AGENTS):
        async with Agent(address, f"{tag}-{number}") as agent:
            began = perf_counter()
            await agent.hello()
            times.append(1e3 * (perf_counter() - began))
        await asyncio.sleep(0.05)
    return times


async def browse(address: str, machines: int, number: int, rest_s: float, asked: list[float]) -> None:
    """One person, who looks at each list for so long, give or take a half."""
    chance = random.Random(number)
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        for turn in itertools.count(1000 * (number + 1)):
            for path in questions(machines, turn):
                began = perf_counter()
                (await http.get(path)).raise_for_status()
                asked.append(1e3 * (perf_counter() - began))
                await asyncio.sleep(rest_s * chance.uniform(0.5, 1.5))


async def crowd(address: str, machines: int, people: int, rest_s: float) -> None:
    """People who browse, until stdin ends; says what they were answered. Their browsers are on other machines: they step back."""
    os.nice(19)
    asked: list[float] = []
    tasks = [asyncio.create_task(browse(address, machines, number, rest_s, asked)) for number in range(people)]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    failed = [task for task in tasks if task.done() and not task.cancelled()]
    print(f"people   {people} asked for {len(asked)} lists, median {median(asked):.0f} ms each, {len(failed)} failed")


async def held(server: asyncio.subprocess.Process) -> str:
    """For how long the server's event loop did one thing since this was asked last."""
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(b"\n")
    worst, long, steps = (await server.stdout.readline()).decode().split()
    return f"the event loop was held {worst} ms at most, {long} of {int(steps):,} times over 50 ms"


def shown(what: str, times: list[float], loop: str) -> None:
    p99 = quantiles(times, n=100)[98]
    print(
        f"agents   {what:15} median {median(times):5.1f} ms, p99 {p99:6.1f} ms, worst {max(times):6.1f} ms; {loop}",
        flush=True,
    )


async def run(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, "--machines", str(given.machines), "--incidents", str(given.incidents)]
        server = await asyncio.create_subprocess_exec(*own, "--serve", folder, stdin=PIPE, stdout=PIPE)
        assert server.stdout is not None and server.stdin is not None
        address, web, before = (await server.stdout.readline()).decode().split()
        print(
            f"{given.machines:,} machines, {given.incidents:,} incidents, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        )
        async with httpx.AsyncClient(base_url=web, timeout=60) as http:
            for name in LISTS:  # once: what the first one of a server takes is told by its own line
                began = perf_counter()
                (await http.get(f"/{name}")).raise_for_status()
                print(f"first    /{name:21} {1e3 * (perf_counter() - began):6.1f} ms")
            await searched(http, given.machines, given.asked, server.pid)
        await painted(web)
        await held(server)
        shown("nobody looks", await connected(address, "calm"), await held(server))
        for rest in (given.rest, 0.0):
            crowd_ = "--people", str(given.people), "--rest", str(rest), "--crowd", web
            people = await asyncio.create_subprocess_exec(*own, *crowd_, stdin=PIPE, stdout=PIPE)
            assert people.stdin is not None and people.stdout is not None
            await asyncio.sleep(3)
            await held(server)
            shown(f"{given.people} browse, {rest:g} s", await connected(address, f"busy-{rest:g}"), await held(server))
            people.stdin.close()
            print((await people.stdout.read()).decode().strip())
            await people.wait()
        print(f"memory   {resident_mib(server.pid):.0f} MiB, {before} MiB of them before anybody looked")
        print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        server.stdin.close()
        await server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--machines", type=int, default=16384)
    parser.add_argument("--incidents", type=int, default=3000)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--rest", type=float, default=1.0)
    parser.add_argument("--asked", type=int, default=30)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--crowd", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve, given.machines, given.incidents))
    elif given.crowd:
        asyncio.run(crowd(given.crowd, given.machines, given.people, given.rest))
    else:
        asyncio.run(run(given))


if __name__ == "__main__":
    main()
