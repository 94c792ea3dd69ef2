"""Files as streams of lines: paths and globs, formats by name, gzip, and lines of bounded length."""

import glob
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trans_encoder.errors import DataError

MAX_LINE_BYTES = 1 << 20
"""The longest line or text that is read: 1 MiB. Anything longer is a bad line."""

_BUFFER_BYTES = 1 << 20
# A gzip file may unpack to this much without question; beyond it, more than _MAX_RATIO times its size is a bomb.
_FREE_BYTES = 1 << 28
_MAX_RATIO = 500


def file_format(path: Path, *, known: dict[str, str]) -> str:
    """Return the format of a file from its name (`.gz` apart), by a table of endings."""
    name = path.name.lower().removesuffix(".gz")
    ending = Path(name).suffix
    if ending not in known:
        raise DataError(
            f"{path}: unknown kind of file; expected a name ending in {', '.join(known)}, or one of these with .gz"
        )
    return known[ending]


def expand(path: str | Path, *, endings: tuple[str, ...]) -> list[Path]:
    """Return the files that a path means: itself, the files of a folder with these endings, or a glob's matches."""
    try:
        return _expand(path, endings=endings)
    except OSError as error:
        raise DataError(f"cannot look for {str(path)[:200]}: {error.strerror or error}") from error


def _expand(path: str | Path, *, endings: tuple[str, ...]) -> list[Path]:
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.is_file() and file.name.lower().endswith(endings))
        if not files:
            raise DataError(
                f"{path} is a folder without {' or '.join(endings)} files; give a file, a glob or another folder"
            )
        return files
    if place.is_file():
        return [place]
    if place.exists():
        raise DataError(
            f"{path} is neither a file nor a folder (a pipe or a device?); write its content to a file first"
        )
    if glob.has_magic(str(path)):
        files = sorted(file for name in glob.glob(str(path), recursive=True) if (file := Path(name)).is_file())  # noqa: PTH207
        if not files:
            raise DataError(f"no file matches {path}; the current folder is {Path.cwd()}")
        return files
    raise DataError(f"there is no file {path}; the current folder is {Path.cwd()}")


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, refused when it grows out of all proportion."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._content, self._size = packed, gzip.GzipFile(fileobj=packed), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._content.read(len(buffer))
        buffer[: len(data)] = data
        self._size += len(data)
        if self._size > max(_FREE_BYTES, _MAX_RATIO * self._packed.tell()):
            raise DataError(
                f"{self._packed.name}: unpacks to more than {_MAX_RATIO} times its size (a gzip bomb?); "
                "unpack it yourself if you trust it"
            )
        return len(data)


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file, unpacked if its name ends in `.gz`; a broken or unreadable one raises DataError."""
    try:
        with path.open("rb") as file:
            packed = path.name.lower().endswith(".gz")
            yield io.BufferedReader(_Unpacked(file), _BUFFER_BYTES) if packed else file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: broken gzip file ({error}); it may be cut short: copy or download it again"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def numbered_lines(stream: io.BufferedReader) -> Iterator[tuple[int, bytes | None]]:
    r"""Yield (number, line) without line ends (`\n` or `\r\n`) or byte order mark; None stands for an overlong line."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 2):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        complete = line.endswith(b"\n")
        if complete:
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        if len(line) <= MAX_LINE_BYTES:
            yield number, line
            continue
        while not complete and (rest := stream.readline(MAX_LINE_BYTES)):
            complete = rest.endswith(b"\n")
        yield number, None
