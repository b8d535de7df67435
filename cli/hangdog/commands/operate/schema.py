"""`hangdog schema` prints the JSON schema of what hangdog writes."""

from importlib.resources import files

import click


@click.command("schema")
@click.argument("document", type=click.Choice(["verdict"]))
def command(document: str) -> None:
    """Print the JSON schema of DOCUMENT: `verdict`, what `hangdog triage --format json` prints."""
    click.echo(files("hangdog_models").joinpath(f"{document}.schema.json").read_text(encoding="utf-8"), nl=False)
