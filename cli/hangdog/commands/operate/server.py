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
from hangdog_proto.client.lazy_channel import DEFAULT_ADDRESS
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
    help="Address for agents and people; port 0 takes a free one. Only this machine's, unless there is TLS.",
)
@click.option(
    "--tls",
    envvar="HANGDOG_TLS",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The server's certificate, from `hangdog certs init`; who connects must show one of the same authority.",
)
@click.option(
    "--people",
    metavar="HOST:PORT",
    default="",
    help="A second address, with TLS, for people who have a token and no certificate.",
)
@click.option(
    "--insecure", is_flag=True, help="Let everybody in on any address, in plain text, whoever they say they are."
)
@click.option(
    "--socket",
    "socket_",
    envvar="HANGDOG_SOCKET",
    show_envvar=True,
    metavar="PATH",
    help="Unix socket for people of this machine: root and the server's own user may do everything there, without a token; "
    "'' is none.  [default: server.sock beside the store]",
)
@click.option(
    "--socket-group",
    "groups",
    multiple=True,
    metavar="GROUP=ROLE",
    help="What members of a group may do there: view, trigger or act; may be given several times.  [default: nothing]",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="People's tokens, from `hangdog token new`.  [default: tokens.json beside the store]",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="NAME|ADDRESS",
    help="Believe the x-hangdog-user and x-hangdog-role of the proxy with this certificate, as in 'client portal', or "
    "this address.",
)
@click.option(
    "--denied",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The deny list of certificates, from `hangdog certs deny`.  [default: denied.json beside the store]",
)
@click.option(
    "--trust-dns-names",
    is_flag=True,
    help="Let a certificate without a hangdog URI speak for the machines that its DNS names say: any certificate of the "
    "authority can then be a machine's.",
)
@click.option(
    "--issuer",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Renew the certificates of connected agents, signed with this authority from `hangdog certs issuer`.  [default: "
    "they are renewed by hand]",
)
@click.option(
    "--certificate-days",
    type=Number(0.05, 90),
    metavar="DAYS",
    help="How long a certificate lasts that --issuer signs; it is renewed after half of that.  [default: 7]",
)
@click.option(
    "--store",
    envvar="HANGDOG_STORE",
    default=default_store,
    show_default="~/.local/state/hangdog/incidents.db",
    show_envvar=True,
    metavar="FILE|URL",
    help="SQLite file that holds the incidents, made when it does not exist; or postgresql://USER@HOST/DATABASE.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    default="",
    help="How agents know this server, where several share a database: exactly as in their --server A,B,C.",
)
@click.option(
    "--patience",
    type=Number(0, 3600, min_open=True),
    metavar="SECONDS",
    help="How long a machine's answer is waited for after its last look.  [default: 20]",
)
@click.option(
    "--work-patience",
    type=Number(0, 86400),
    metavar="SECONDS",
    help="How long a rank that gets on with something (evaluation, checkpoint, compilation) may hold the others up on the first "
    "day of a job, before an incident is opened; later the job's own phases decide.  [default: 300]",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics, to whoever reaches it; without HOST to this machine alone; "
    "port 0 takes a free one.  [default: nowhere]",
)
@click.option(
    "--acting",
    envvar="HANGDOG_ACTING",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What is done to machines that verdicts name, by whom and within which bounds; see docs/acting.md.  [default: "
    "nothing is touched]",
)
@decision_options
@click.option(
    "--notify",
    envvar="HANGDOG_NOTIFY",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Who is told of what by chat and mail; see docs/notifications.md.  [default: nobody]",
)
@click.option(
    "--web",
    envvar="HANGDOG_WEB",
    show_envvar=True,
    metavar="HOST:PORT",
    default="",
    help="Serve pages for people there, with --tls over HTTPS; port 0 takes a free one.  [default: nowhere]",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="How the log is written: lines for people, or one JSON object a line.",
)
@click.option(
    "--keep",
    type=Number(0),
    metavar="DAYS",
    help="How long incidents and verdicts are kept; 0: for ever.  [default: 365]",
)
@click.option(
    "--keep-captures",
    type=Number(0),
    metavar="DAYS",
    help="How long their raw captures are kept; 0: for ever.  [default: 30]",
)
@click.option(
    "--keep-size",
    type=Number(0),
    metavar="GIB",
    help="How much all that may take; 0: no bound.  [default: 10]",
)
@click.option(
    "--trust-date",
    is_flag=True,
    help="Once, after the date jumped forward and is right: remove what is too old by it.",
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
    """Run the server: one for each cluster, or several beside one PostgreSQL.

    Agents connect to it, people ask it. Once it can be reached it prints `listening on HOST:PORT`, then its log goes to
    stderr until SIGTERM or Ctrl-C ends it.
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
            f"--socket-group {grant!r} says no role", f"write GROUP=ROLE, where ROLE is one of {', '.join(ROLES)}"
        )
    try:
        return (int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid), role
    except KeyError as error:
        raise WrongUse(f"there is no group {group!r} on this machine", "getent group lists them") from error
