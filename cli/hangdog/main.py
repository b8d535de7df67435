"""The `hangdog` command: loads the one sub-command asked for, and turns every failure into a sentence and an exit status.

Nothing but click is imported before a sub-command is chosen: `--help` and completion stay instant, and a sub-command
whose packages are not installed never breaks the others.
"""

import errno
import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from hangdog_models.errors import HangdogError, OurFault, WrongUse

#: Every sub-command with the line `hangdog --help` shows of it, by the folder of `hangdog.commands` that holds its code.
COMMANDS = {
    "triage": {
        "capture": "Write an evidence bundle of the trainers that run here, or on other hosts.",
        "triage": "Read an evidence bundle and say who hangs the job, and why.",
        "ranks": "Show the call sites of all ranks, or one rank.",
        "stacks": "Show the raw stacks of one rank.",
        "diff": "Show the stacks of two ranks side by side.",
        "tree": "Show the stacks of all ranks as one tree.",
        "demo": "Hang a real training job on this machine, and find the culprit.",
    },
    "oncall": {
        "jobs": "List the jobs that run, and how they are.",
        "communicators": "List a running job's communicators, and who is behind in each.",
        "incidents": "List the incidents the server remembers.",
        "show": "Show one incident and its verdict.",
        "watch": "Follow incidents, or one until its verdict.",
        "snapshot": "Capture a running job now, and judge it.",
        "why": "Say whether a machine is suspected, why, and what to do now.",
        "machines": "List the machines whose agents report to the server.",
        "ledger": "List what verdicts said of machines, across jobs.",
        "bundle": "Write an incident as an evidence bundle.",
    },
    "act": {
        "actions": "List what was, is and would be done to machines.",
        "approve": "Isolate the machines an incident's verdict names.",
        "dismiss": "Leave the machines of an incident where they are: none is at fault.",
        "release": "Bring a machine back that hangdog took out of use.",
        "ack": "Take an incident: others see who has it.",
        "note": "Write a note on an incident.",
        "resolve": "Close an incident: say what it turned out to be.",
        "reopen": "Open an incident again that was resolved or dismissed.",
        "test": "Test machines that run no job, level by level, until one is convicted.",
    },
    "operate": {
        "server": "Run the server: one for each cluster.",
        "agent": "Run the agent: one on each machine.",
        "doctor": "Say whether processes can be captured here, and what to change if not.",
        "health": "Say whether the server serves.",
        "notify": "Send a test message to all receivers of notifications.",
        "token": "Make, list and revoke the tokens of people.",
        "certs": "Make, show and revoke the certificates of agents, servers and people.",
        "audit": "Show the audit log: who did what, and when.",
        "report": "Report on operation: times, incidents, machines, evictions.",
        "plan": "Plan how many spares to keep, and where to put checkpoint copies.",
        "schema": "Print the JSON schema of a document hangdog writes.",
        "completion": "Print the script that completes this command in a shell.",
    },
    "run": {
        "run": "Run a training job, and restart it when it hangs or fails.",
    },
}
#: What `hangdog --help` calls each folder.
TITLES = {"triage": "Triage", "oncall": "On call", "act": "Act", "operate": "Operate", "run": "Run"}
#: Each sub-command's line, and its folder.
LINES = {name: line for names in COMMANDS.values() for name, line in names.items()}
FOLDERS = {name: folder for folder, names in COMMANDS.items() for name in names}

#: Which extra brings a third-party module that the bare install does not have.
EXTRAS = {
    "sqlalchemy": "server",
    "alembic": "server",
    "psycopg": "server",
    "grpc_health": "server",
    "httpx": "server",
    "prometheus_client": "server",
    "starlette": "server",
    "uvicorn": "server",
    "hdbscan": "server",
    "numpy": "server",
    "scipy": "server",
    "sklearn": "server",
    "opentelemetry": "otel",
    "apprise": "notify",
    "torch": "demo",
}

#: How what an extra brings is installed. Never by the name of hangdog alone: an index may hold a stranger's of that name.
INSTALLED = {
    "": "in hangdog's source tree: pip install --require-hashes -r requirements/cli.txt",
    "server": "in hangdog's source tree: pip install --require-hashes -r requirements/server.txt",
    "notify": "in hangdog's source tree: pip install --require-hashes -r requirements/server.txt",
    "otel": "in hangdog's source tree: pip install --require-hashes -r requirements/otel.txt",
    "demo": "in hangdog's source tree: make torch",
}

#: What the operating system says when the machine, not hangdog, is at fault.
EXHAUSTED = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}

#: Exit status for wrong use, sysexits' EX_USAGE: 2, click's own choice, means `undetermined` here.
USAGE = WrongUse.exit_code
#: What a shell reports of a program that SIGINT, or SIGPIPE, ended.
INTERRUPTED, PIPE_CLOSED = 130, 141


class CommandGroup(click.Group):
    """A click group that imports a sub-command when it is called, and speaks hangdog's exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(FOLDERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in FOLDERS:
            return None
        try:
            command = importlib.import_module(f"hangdog.commands.{FOLDERS[cmd_name]}.{cmd_name}").command
        except ImportError:
            if ctx.resilient_parsing:  # completing: better no proposal than an error in the middle of a command line
                return None
            raise
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for folder, commands in COMMANDS.items():
            with formatter.section(TITLES[folder]):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=line) for name, line in LINES.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # None when the shell closed it (`>&-`)
                sys.stdout.flush()  # here a closed pipe can still be handled; at interpreter exit it could not
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # the outermost frame: whatever comes here is told to the user, none of it is lost
            if ctx.params.get("debug"):
                traceback.print_exc()
            raise _as_hangdog_error(error) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line and exits; with `standalone_mode=False` raises instead, as click does."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        stdout = sys.stdout
        if isinstance(stdout, io.TextIOWrapper):
            stdout.reconfigure(errors="backslashreplace")  # a name that the locale cannot write must not end us
        try:
            status = super().main(args, prog_name or "hangdog", complete_var, standalone_mode=False, **extra)
        except HangdogError as error:
            _complain(str(error), error.hint, error.code)
            status = error.exit_code
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "hangdog"
            _complain(error.format_message(), f"try '{path} --help'", "wrong-arguments")
            status = USAGE
        except click.ClickException as error:
            _complain(error.format_message(), "", "wrong-arguments")
            status = USAGE
        except click.Abort:  # click's word for KeyboardInterrupt
            _complain("interrupted", "")
            status = INTERRUPTED
        except SystemExit as ending:
            # when the reader of our output is gone, click puts a mute stdout in place and ends with 1, which names a cause
            status = ending.code if sys.stdout is stdout else PIPE_CLOSED
        sys.exit(status if isinstance(status, (int, str)) else 0)


def _as_hangdog_error(error: Exception) -> HangdogError:
    """The error as the user is told it: a known one as it is, a missing package by its extra, else a bug of ours."""
    if isinstance(error, HangdogError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("hangdog"):
        package = error.name.partition(".")[0]
        what = f"the Python package {package} is not installed"
        return WrongUse(what, INSTALLED[EXTRAS.get(package, "")], code="package-not-installed")
    if isinstance(error, OSError) and error.errno in EXHAUSTED:
        what = f"this machine ran out of a resource: {error}"
        return OurFault(what, "free it and run the command again", code="out-of-resources")
    return OurFault(
        f"this is a bug in hangdog: {type(error).__name__}: {error}",
        "run `hangdog --debug ...` (or set HANGDOG_DEBUG=1) and report what it prints",
        code="bug",
    )


def _complain(what: str, hint: str, code: str = "") -> None:
    from hangdog.output.terminal import printable  # not at the top: it loads rich, which --help does without

    named = f" [{code}]" if code else ""
    click.echo(f"hangdog: {printable(' '.join(what.split()) + named)}", err=True)
    for line in hint.splitlines():
        click.echo(f"  {printable(line)}", err=True)


@click.group(
    "hangdog", cls=CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="hangdog", message="hangdog %(version)s")
@click.option("--debug", is_flag=True, envvar="HANGDOG_DEBUG", help="Show the traceback of an error.")
@click.pass_context
def main(ctx: click.Context, debug: bool) -> None:
    """Name the machine that hangs a distributed training job, say why, and isolate no more than it must."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
