"""`hangdog server` runs the server."""

import asyncio
import grp
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from hangdog.decision_options import decision_options
from hangdog.options import Number
from hangdog.server_paths import AUDIT, DENIED, SOCKET, TOKENS, default_store, next_to_store
from hangdog_models.diagnosis.options import Options
from hangdog_models.errors import WrongUse
from hangdog_proto.client.server_address import DEFAULT_ADDRESS
from hangdog_proto.logs import FORMS, configure

#: What the members of a group may be let do.
ROLES = ("view", "trigger", "act")
#: Seconds of a day.
DAY_S = 86400.0


@click.command("server")
@click.option(
    "--listen",
    default=DEFAULT_ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="Address for agents and people; port 0 takes a free one. Without TLS it must be a loopback address.",
)
@click.option(
    "--tls",
    envvar="HANGDOG_TLS",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder with the server's certificate, from `hangdog certs init`. Clients need one of the same authority.",
)
@click.option(
    "--people",
    metavar="HOST:PORT",
    default="",
    help="A second address, with TLS, for people who have a token but no certificate.",
)
@click.option(
    "--insecure", is_flag=True, help="Accept any client on any address, in plain text and without authentication."
)
@click.option(
    "--socket",
    "socket_",
    envvar="HANGDOG_SOCKET",
    show_envvar=True,
    metavar="PATH",
    help="Unix socket for people on this machine. Root and the server's own user may do everything there, without a "
    "token; '' turns it off.  [default: server.sock beside the store]",
)
@click.option(
    "--socket-group",
    "groups",
    multiple=True,
    metavar="GROUP=ROLE",
    help="What members of a group may do on the socket: view, trigger or act; may be repeated.  [default: nothing]",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File of people's tokens, from `hangdog token new`.  [default: tokens.json beside the store]",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="NAME|ADDRESS",
    help="Trust the x-hangdog-user and x-hangdog-role headers of this proxy, named by its certificate "
    "('client portal') or its address.",
)
@click.option(
    "--denied",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Deny list of revoked certificates, from `hangdog certs deny`.  [default: denied.json beside the store]",
)
@click.option(
    "--trust-dns-names",
    is_flag=True,
    help="Accept a certificate without a hangdog URI for the machines in its DNS names. Any certificate of the "
    "authority can then be a machine's.",
)
@click.option(
    "--issuer",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Renew the certificates of connected agents with this authority, from `hangdog certs issuer`.  [default: "
    "renew by hand]",
)
@click.option(
    "--certificate-days",
    type=Number(0.05, 90),
    metavar="DAYS",
    help="Lifetime of a certificate that --issuer signs. The agent gets a new one after half of it.  [default: 7]",
)
@click.option(
    "--store",
    envvar="HANGDOG_STORE",
    default=default_store,
    show_default="~/.local/state/hangdog/incidents.db",
    show_envvar=True,
    metavar="FILE|URL",
    help="SQLite file for the incidents, created if missing; or postgresql://USER@HOST/DATABASE.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    default="",
    help="This server's address in the agents' --server A,B,C, exactly as written there. Needed if several servers "
    "share a database.",
)
@click.option(
    "--patience",
    type=Number(0, 3600, min_open=True),
    metavar="SECONDS",
    help="How long to wait for a machine's answer after its last look.  [default: 20]",
)
@click.option(
    "--work-patience",
    type=Number(0, 86400),
    metavar="SECONDS",
    help="How long a busy rank (evaluation, checkpoint, compilation) may hold up the others before the server opens an "
    "incident. It applies on a job's first day; later the job's own phases decide.  [default: 300]",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics, without authentication; without HOST only on this "
    "machine. Port 0 takes a free one.  [default: off]",
)
@click.option(
    "--acting",
    envvar="HANGDOG_ACTING",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="How hangdog acts on the machines that verdicts name, and within which limits; see docs/acting.md.  [default: "
    "it touches no machine]",
)
@decision_options
@click.option(
    "--notify",
    envvar="HANGDOG_NOTIFY",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Who gets which notifications by chat and mail; see docs/notifications.md.  [default: nobody]",
)
@click.option(
    "--web",
    envvar="HANGDOG_WEB",
    show_envvar=True,
    metavar="HOST:PORT",
    default="",
    help="Serve the web pages there, with --tls over HTTPS; port 0 takes a free one.  [default: off]",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="Log lines for people, or one JSON object per line.",
)
@click.option(
    "--keep",
    type=Number(0),
    metavar="DAYS",
    help="How long to keep incidents and verdicts; 0: for ever.  [default: 365]",
)
@click.option(
    "--keep-captures",
    type=Number(0),
    metavar="DAYS",
    help="How long to keep their raw captures; 0: for ever.  [default: 30]",
)
@click.option(
    "--keep-size",
    type=Number(0),
    metavar="GIB",
    help="Space limit for incidents and captures together; 0: no limit.  [default: 10]",
)
@click.option(
    "--trust-date",
    is_flag=True,
    help="Give it once, after the clock jumped forward to the right date: remove what is now too old.",
)
def command(
    listen: str,
    tls: Path | None,
    people: str,
    insecure: bool,
    socket_: str | None,
    groups: tuple[str, ...],
    tokens: Path | None,
    proxies: tuple[str, ...],
    denied: Path | None,
    trust_dns_names: bool,
    issuer: Path | None,
    certificate_days: float | None,
    store: str,
    advertise: str,
    patience: float | None,
    work_patience: float | None,
    metrics: str | None,
    acting: Path | None,
    options: Options,
    notify: Path | None,
    web: str,
    log_format: str,
    keep: float | None,
    keep_captures: float | None,
    keep_size: float | None,
    trust_date: bool,
) -> None:
    """Run the server: one for each cluster, or several that share one PostgreSQL database.

    Agents connect to it, and people query it. When it is ready it prints `listening on HOST:PORT`. Its log goes to
    stderr. SIGTERM or Ctrl-C stops it.
    """
    from hangdog_models.diagnosis.judge import diagnose  # here: the server's packages come with an extra
    from hangdog_server.auth.issuer import LIFE_DAYS
    from hangdog_server.listener import ListenerConfig
    from hangdog_server.main import serve
    from hangdog_server.settings import ServerSettings

    configure(log_format, "%(asctime)s %(levelname)s %(message)s")
    settings = ServerSettings()
    settings = settings if patience is None else replace(settings, patience_s=patience)
    if work_patience is not None:
        settings = replace(settings, work_patience_s=work_patience)
    settings = settings if keep is None else replace(settings, keep_s=keep * DAY_S)
    settings = settings if keep_captures is None else replace(settings, keep_captures_s=keep_captures * DAY_S)
    settings = settings if keep_size is None else replace(settings, keep_bytes=int(keep_size * (1 << 30)))
    door = ListenerConfig(
        None if insecure else tls,
        people,
        insecure,
        tokens or next_to_store(store, TOKENS),
        proxies,
        next_to_store(store, AUDIT),
        advertise,
        web,
        denied or next_to_store(store, DENIED),
        trust_dns_names,
        issuer,
        LIFE_DAYS if certificate_days is None else certificate_days,
        Path(socket_) if socket_ else next_to_store(store, SOCKET) if socket_ is None else None,
        bool(socket_),
        dict(_grant(group) for group in groups),
    )

    def announce(address: str) -> None:
        click.echo(f"listening on {address}")

    judge = partial(diagnose, options=options)
    asyncio.run(serve(listen, store, judge, announce, settings, door, metrics or "", acting, notify, trust_date))


def _grant(grant: str) -> tuple[int, str]:
    """The number of a group, and the role its members have, by `GROUP=ROLE`; raises WrongUse."""
    group, _, role = grant.rpartition("=")
    if role not in ROLES or not group:
        raise WrongUse(
            f"--socket-group {grant!r} names no role",
            f"write GROUP=ROLE, where ROLE is one of {', '.join(ROLES)}",
            code="unknown-choice",
        )
    try:
        return (int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid), role
    except KeyError as error:
        raise WrongUse(
            f"there is no group {group!r} on this machine", "getent group lists them", code="no-such-group"
        ) from error
