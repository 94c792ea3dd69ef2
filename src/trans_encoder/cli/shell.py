"""What every command shares: global options, quiet libraries, errors and signals turned into exit codes."""

import logging
import os
import platform
import shlex
import signal
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trans_encoder.cli.output import accept_all_characters
from trans_encoder.errors import TransEncoderError
from trans_encoder.progress import console
from trans_encoder.ranks import is_first_rank, rank, world_size

_CONTINUE = ("train", "learn", "bootstrap", "experiment", "demo", "index", "duplicates", "audit")
"""The commands that take up what they had finished when they were stopped."""


class Terminated(BaseException):
    """SIGTERM arrived; raised so that open files and folders are closed on the way out."""


class _PlainFlags:
    """Shows a flag in `--help` without a type: `--json`, not `--json <bool>`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; an empty metavar stands for no value."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """One command."""


class Shell(_PlainFlags, TyperGroup):
    """Runs a command and turns any error or signal that ends it into a message on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command: 0 done, 2 usage, configuration or data, 1 other errors, 130 and 143 stopped by a signal."""
        try:
            return super().invoke(ctx)
        except TransEncoderError as error:
            _fail(error, code=error.exit_code, debug=ctx.params.get("debug", False))
        except BrokenPipeError:
            raise  # whoever read our output has seen enough; typer ends quietly
        except OSError as error:
            _fail(error, code=1, debug=ctx.params.get("debug", False))
        except KeyboardInterrupt:
            _stop(ctx.invoked_subcommand, code=128 + signal.SIGINT)
        except Terminated:
            _stop(ctx.invoked_subcommand, code=128 + signal.SIGTERM)


def _print_version(given: bool) -> None:
    if given:
        typer.echo(version("trans-encoder"))
        raise typer.Exit


def start(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the log of every library.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Turn unlabelled text into a bi-encoder and a cross-encoder that teach each other.

    Start with `trans-encoder check`, which trains nothing and says what `train` would do.
    """
    signal.signal(signal.SIGTERM, _terminate)
    accept_all_characters()
    _start_logging(debug)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


class _ConsoleHandler(logging.Handler):
    """Prints records on the console that bars are drawn on, so that each begins on a line of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record without wrapping or markup, since a path may contain brackets."""
        style = "yellow" if record.levelno >= logging.WARNING else None
        console.print(self.format(record), style=style, markup=False, highlight=False, soft_wrap=True)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == "trans_encoder"


def _start_logging(debug: bool) -> None:
    """Log this package to standard error; keep the libraries below it quiet unless debugging."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, _ConsoleHandler)]
    handler = _ConsoleHandler()
    handler.setFormatter(logging.Formatter("%(levelname)-8s %(name)s: %(message)s" if debug else "%(message)s"))
    # Some libraries set their own log level, so the root logger's does not silence them.
    handler.addFilter(lambda record: debug or record.levelno >= logging.ERROR or _is_ours(record))
    root.addHandler(handler)
    root.setLevel(logging.INFO if debug else logging.ERROR)
    quiet = logging.INFO if is_first_rank() else logging.ERROR
    logging.getLogger("trans_encoder").setLevel(logging.DEBUG if debug else quiet)
    if not debug:
        warnings.simplefilter("ignore")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


def _fail(error: Exception, *, code: int, debug: bool) -> None:
    # A launcher that ends all its processes now has nothing to add.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if debug:
        console.print_exception()
    where = f"rank {rank()} on {platform.node()}: " if world_size() > 1 else ""
    console.print(f"Error: {where}{error}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def _stop(stopped: str | None, *, code: int) -> None:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    if world_size() > 1:
        command += " (started as before)"
    if is_first_rank():
        typer.echo(f"Stopped. To continue: {command}" if stopped in _CONTINUE else "Stopped.", err=True)
    raise typer.Exit(code)
