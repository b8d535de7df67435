"""`hangdog agent` runs the agent: the same as `hangdog-agent`, with the same options."""

import click


@click.command(
    "agent", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run the agent: one on each machine (`hangdog agent --help` lists its options)."""
    from hangdog_agent.main import main  # only when it is run: the list of commands needs none of it

    main(arguments)
