"""The errors that trans-encoder raises: one base class, so that callers can catch them all."""

from importlib import import_module
from typing import Any


class TransEncoderError(Exception):
    """Base of every error raised on purpose; the command line prints its message without a traceback."""

    exit_code = 1


class ConfigurationError(TransEncoderError):
    """The configuration or the arguments cannot be used as given."""

    exit_code = 2


class DataError(TransEncoderError):
    """An input file or data set cannot be read as given."""

    exit_code = 2


class MissingExtraError(TransEncoderError):
    """An optional dependency is needed; the message names the exact line that installs it."""

    exit_code = 2

    def __init__(self, package: str, *, extra: str) -> None:
        """Name the missing package and the extra that brings it."""
        super().__init__(f'{package} is not installed; install it with: pip install "trans-encoder[{extra}]"')


class RunError(TransEncoderError):
    """A run could not go on: storage, numbers or a broken run folder."""


def import_extra(module: str, *, extra: str) -> Any:
    """Import an optional dependency, or raise the error that names what installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # it is there, but broken
        raise MissingExtraError(error.name, extra=extra) from None
