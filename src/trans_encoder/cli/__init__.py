"""The command line: one module for each command or small group, all registered here."""

import typer

from trans_encoder.cli import answers, measuring, training
from trans_encoder.cli.groups import with_groups
from trans_encoder.cli.measuring.demo import demo
from trans_encoder.cli.shell import Command, Shell, start

PANELS = {
    "Find what means the same": answers.COMMANDS,
    "Train models": training.COMMANDS,
    "Score, measure, show": measuring.COMMANDS,
}
COMMANDS = tuple(command for commands in PANELS.values() for command in commands)

app = typer.Typer(
    name="trans-encoder",
    cls=Shell,
    callback=start,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for panel, commands in PANELS.items():
    for command in commands:
        app.command(cls=Command, no_args_is_help=command is not demo, rich_help_panel=panel)(with_groups(command))


def main() -> None:
    """Run the command line."""
    app()
