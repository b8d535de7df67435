"""The agent's command: `hangdog-agent`, or `python -m hangdog_agent.main`."""

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.checks_thread import ChecksThread
from hangdog_agent.checks.standard_checks import standard
from hangdog_agent.config_files import ConfigFiles
from hangdog_agent.confinement import drop_privileges
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch, jobs
from hangdog_agent.machine_tests.replays import Replays, read_replays
from hangdog_agent.metrics.metrics import AgentMetrics
from hangdog_agent.metrics.textfile import Textfile
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings, chosen
from hangdog_agent.stalls.progress.sources import Readings
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.stack import Missing
from hangdog_proto.logs import FORMS, configure

if TYPE_CHECKING:
    from hangdog_agent.connection.identity import Identity
    from hangdog_agent.machine_tests.ordered_tests import Kit

#: Where a server listens unless told otherwise; the agent's default must be the server's.
DEFAULT_SERVER = "127.0.0.1:7411"

_DESCRIPTION = """\
Watches the training processes of this machine and shows their stacks to a hangdog server when it asks.

The agent finds training processes by RANK and WORLD_SIZE (or Slurm's, Open MPI's, PMI's variables) in the
environment of Python processes. It reads them with py-spy and does not stop them. It never attaches to a
process that is stuck in the kernel, stopped, or traced by another program, and reports the reason instead.
"""
_EPILOG = """\
what a job can set in its environment:
  HANGDOG_JOB=NAME               its name; else TORCHELASTIC_RUN_ID, SLURM_JOB_ID, or `default`
  HANGDOG_TOPOLOGY=tp=2,dp=4     its parallel sizes, fastest-varying first
  HANGDOG_HEARTBEAT=FILE         a file that each rank touches at every step
  HANGDOG_LOG=FILE               a log with step lines, other than stdout and stderr
  HANGDOG_STEP_PATTERN=REGEX     matches its step lines, if the agent does not learn them by itself

examples:
  hangdog-agent --server head-node:7411 --tls DIR   stay connected to that server until SIGTERM
  hangdog-agent --once | less                       one look at all jobs here, as JSON, without a server
  hangdog doctor                                    whether capture works here, and what to change if not

Run it as root, or as the trainers' user with CAP_SYS_PTRACE: it must read other processes.
"""


@dataclass(frozen=True, slots=True)
class _Agent:
    machine: str
    watch: Watch
    tools: Tools
    settings: AgentSettings
    checks: Checks | None
    power: Readings
    places: CheckPaths
    metrics: Path | None
    tls: Path | None
    insecure: bool
    interpreter: str
    replays: Replays


def command() -> None:
    """What `hangdog-agent` runs: `main`, in a process that gives up what the agent never needs."""
    main(confine=True)


def main(arguments: Sequence[str] | None = None, confine: bool = False) -> None:
    """Runs the agent until SIGTERM or SIGINT, or one look with `--once`; ends the process with its exit status.

    With `confine` this process gives up all rights that the agent does not use, for good (docs/footprint.md).
    """
    try:
        options = _parser().parse_args(arguments)
        configure(options.log_format, "%(asctime)s hangdog-agent: %(message)s", machine=options.machine)
        settings = chosen(options.set)
        if confine:
            drop_privileges.confine(bool(settings.capture.ras_networks))
        agent = _assemble(options, settings)
        if options.once:
            _once(agent)
        else:
            asyncio.run(_serve(agent, options.server))
    except HangdogError as error:
        named = f" [{error.code}]" if error.code else ""
        print(f"hangdog-agent: {error}{named}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


class _Parser(argparse.ArgumentParser):
    """argparse ends wrong use with 2, which means `undetermined` in hangdog."""

    def error(self, message: str) -> NoReturn:
        raise WrongUse(message, f"try `{self.prog} --help`", code="wrong-arguments")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "hangdog-agent", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        default=os.environ.get("HANGDOG_SERVER") or DEFAULT_SERVER,
        help="the server to connect to, or several that share a database "
        f"(default: $HANGDOG_SERVER, else {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        default=socket.gethostname(),
        help="name of this machine (default: the host's name)",
    )
    parser.add_argument(
        "--tls",
        metavar="DIR",
        default=os.environ.get("HANGDOG_TLS") or None,
        help="folder with this machine's certificate, from `hangdog certs machine` (default: $HANGDOG_TLS). Without "
        "one, the agent connects only to a server on this machine",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="use plain text with any server, and trust any server that answers: only for a network that you trust",
    )
    parser.add_argument(
        "--match-env",
        metavar="NAME=VALUE",
        help="see only trainers whose environment has that value, so that several agents can share one host",
    )
    parser.add_argument(
        "--checks",
        action="store_true",
        help="check this machine's hardware even with --match-env, if no other agent on this host does",
    )
    parser.add_argument(
        "--state",
        metavar="FOLDER",
        help="folder for this agent alone, to keep across restarts what it has read and what it has not sent yet "
        "(default: systemd's $STATE_DIRECTORY, else none)",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="FILE.prom",
        help="write the agent's own metrics there, for node_exporter's textfile collector (default: off)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMS,
        default=FORMS[0],
        help="lines for people, or one JSON object per line (default: text)",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        default=sys.executable,
        help="a Python that has torch, such as the trainers'. It runs the machine tests that a server requests "
        "(default: the one that runs the agent)",
    )
    parser.add_argument(
        "--replays",
        metavar="FILE",
        help="a TOML file of yours with the commands that a server may have replayed here, by name (default: none)",
    )
    parser.add_argument("--version", action="version", version=f"hangdog-agent {importlib.metadata.version('hangdog')}")
    parser.add_argument("--once", action="store_true", help="print one look at all jobs here as JSON, then exit")
    parser.add_argument(
        "--set",
        metavar="NAME=NUMBER",
        action="append",
        default=[],
        help="change a setting, such as look_s=10; may be repeated (docs/agent.md lists them)",
    )
    return parser


def _assemble(options: argparse.Namespace, settings: AgentSettings) -> _Agent:
    match: tuple[str, str] | None = None
    if options.match_env is not None:
        name, equals, value = options.match_env.partition("=")
        if not name or not equals:
            raise WrongUse(
                f"--match-env {options.match_env} names no variable or no value",
                "write it as NAME=VALUE",
                code="wrong-setting",
            )
        match = (name, value)
    proc, stop = Proc(), threading.Event()
    tool = pyspy.load()
    if isinstance(tool, Missing):
        logging.getLogger(__name__).warning("no stacks can be captured: %s", tool)
    process_table = ProcessTable(proc, frozenset([match[0]] if match else []), stop, bool(settings.capture.ray_logs))
    configs = ConfigFiles() if settings.capture.config_files else None
    watch = Watch(process_table, match, (os.getpid(),), settings.link.forget_s, configs)
    folder = options.state or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    places = CheckPaths(state=Path(folder) if folder else None)
    checks: Checks | None = None
    power: Readings = dict
    if match is None or options.checks:  # of several agents on one host none knows whose machine it is
        checks, gpus = standard(settings.checks, places, watch.ranks)
        power = gpus.power
    metrics = Path(options.metrics_file) if options.metrics_file else None
    replays = read_replays(Path(options.replays)) if options.replays else {}
    tools, tls = Tools(proc, tool, settings.capture, stop), None if options.insecure else options.tls
    parts = (options.machine, watch, tools, settings, checks, power, places, metrics)
    return _Agent(*parts, Path(tls) if tls else None, options.insecure, options.python, replays)


def _once(agent: _Agent) -> None:
    here = jobs(agent.watch.see())
    if not here:
        print("hangdog-agent: no training process found here; `hangdog doctor` says why that may be", file=sys.stderr)
    traces = {job.key: CaptureSeries(job.name, agent.watch.see, agent.tools, owner=job.owner).look() for job in here}
    read = {
        job.key: job for job in jobs(agent.watch.see())
    }  # files that tell more of a job may have been read meanwhile
    looks = [
        msgspec.to_builtins(read.get(job.key, job)) | {"traces": [msgspec.to_builtins(one) for one in traces[job.key]]}
        for job in here
    ]
    agent.watch.close()
    print(json.dumps({"machine": agent.machine, "jobs": looks}, indent=1))


async def _serve(agent: _Agent, server: str) -> None:
    # imported here, for one look needs no gRPC, which is most of the agent's memory
    from hangdog_agent.connection.certificate_renewal import NAME, Renewal
    from hangdog_agent.connection.identity import Identity
    from hangdog_agent.connection.link import Link
    from hangdog_agent.connection.offline_recording import Spooling
    from hangdog_agent.connection.servers import listed
    from hangdog_agent.connection.spool import Clocks
    from hangdog_agent.machine_tests.remote_tests import Jobs, RemoteTests
    from hangdog_agent.stalls.monitor import StallMonitor
    from hangdog_models.rules.ruleset import packaged
    from hangdog_proto import deny_list
    from hangdog_proto.client import certificate_folder
    from hangdog_proto.client.server_address import require_privacy
    from hangdog_proto.deny_list import DenyList

    version, boot = importlib.metadata.version("hangdog"), agent.places.boot()
    body = ("" if boot == "unknown" else boot), agent.places.serial()
    renewed = renewal = None
    if agent.tls is not None:
        renewed = (agent.places.state or agent.tls) / NAME
        renewal = Renewal(agent.tls, renewed, agent.machine)
    identity = Identity(server, agent.machine, version, agent.tls, agent.insecure, *body, renewed, renewal)
    for address in listed(server):
        require_privacy(identity.reach(address))
    if agent.tls is not None:
        certificate_folder.read(agent.tls)  # what is wrong from the start is said at once
        DenyList(agent.tls / deny_list.NAME).require_readable()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = AgentMetrics(identity.version)
    stalls = StallMonitor(agent.tools, packaged(), agent.settings.stalls, agent.power, agent.settings.numbers)
    parts = (identity, agent.watch, stalls, agent.tools, agent.settings.link)
    clock = time.time  # noqa: TID251 - the main module passes the clock down
    clocks = Clocks(clock, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), agent.places.boot())
    spooling = Spooling(agent.places.state, agent.settings.spool, clocks, agent.places.serial())

    def remote_tests(jobs: Jobs) -> RemoteTests:
        return RemoteTests(agent.settings.remote_tests, jobs, lambda: _kit(agent), agent.replays)

    with contextlib.ExitStack() as stack:
        stack.callback(agent.watch.close)
        keeper = (
            stack.enter_context(ChecksThread(agent.checks, agent.machine, clock)) if agent.checks is not None else None
        )
        link = Link(*parts, keeper.findings if keeper else tuple, spooling, metrics, remote_tests)
        expiring = asyncio.create_task(_warn(identity, clock), name="certificate that ends")
        stack.callback(expiring.cancel)
        if agent.metrics is not None:
            every_s = agent.settings.link.metrics_s
            stack.enter_context(Textfile(agent.metrics, every_s, lambda: metrics.text(link.status())))
        await link.keep(stop)


async def _warn(identity: "Identity", clock: Callable[[], float]) -> None:
    """Says in the log once a day that this machine's certificate ends soon."""
    from hangdog_agent.connection import own_certificate

    while True:
        own = await asyncio.to_thread(identity.certificate)
        stated = own_certificate.warning(own, clock()) if own is not None else ""
        if stated:
            logging.getLogger(__name__).warning("%s: renew it (docs/authentication.md)", stated)
        await asyncio.sleep(86400.0 if stated else 3600.0)


def _kit(agent: _Agent) -> "Kit":
    from hangdog_agent.machine_tests.ordered_tests import Kit
    from hangdog_agent.machine_tests.torch_engine import Engine

    settings = agent.settings
    return Kit(Engine(agent.interpreter), settings.levels, settings.remote_tests.diagnose_processes)


if __name__ == "__main__":
    command()
