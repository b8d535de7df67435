"""`hangdog completion` prints the script that completes the command in a shell."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes hangdog in SHELL.

    For bash: put `source <(hangdog completion bash)` into ~/.bashrc; for zsh likewise into ~/.zshrc; for fish:
    `hangdog completion fish > ~/.config/fish/completions/hangdog.fish`.
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "hangdog", "_HANGDOG_COMPLETE").source())
