"""`hangdog health` says whether a server serves."""

import click

from hangdog.options import server_option
from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress


@click.command("health")
@server_option
def command(server: ServerAddress) -> None:
    """Say whether the server serves: exit status 0 it does, 69 it does not.

    Asks by gRPC's own health check, as probes and load balancers do. A certificate is enough, or a token.
    """
    with Client(server) as client:
        if not client.serving():
            raise ServerUnreachable(
                f"the server at {server.address} is stopping", "ask again in a few seconds", code="server-stopping"
            )
    click.echo("serving")
