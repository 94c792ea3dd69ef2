"""The command line: one module for each command or small group, all registered here."""

import typer

from trans_encoder.cli.audit import audit
from trans_encoder.cli.bootstrap import bootstrap
from trans_encoder.cli.check import check
from trans_encoder.cli.demo import demo
from trans_encoder.cli.duplicates import duplicates
from trans_encoder.cli.ensemble import ensemble
from trans_encoder.cli.evaluate import evaluate
from trans_encoder.cli.experiment import experiment
from trans_encoder.cli.export import export
from trans_encoder.cli.index import index, search
from trans_encoder.cli.learn import learn
from trans_encoder.cli.mine import mine
from trans_encoder.cli.probe import probe
from trans_encoder.cli.report import report
from trans_encoder.cli.score import label, score
from trans_encoder.cli.serve import serve
from trans_encoder.cli.shell import Command, Shell, start
from trans_encoder.cli.train import train

COMMANDS = (
    duplicates,
    index,
    search,
    audit,
    serve,
    demo,
    train,
    check,
    bootstrap,
    mine,
    evaluate,
    probe,
    score,
    label,
    learn,
    ensemble,
    export,
    report,
    experiment,
)

app = typer.Typer(
    name="trans-encoder",
    cls=Shell,
    callback=start,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command(cls=Command, no_args_is_help=command is not demo)(command)


def main() -> None:
    """Run the command line."""
    app()
