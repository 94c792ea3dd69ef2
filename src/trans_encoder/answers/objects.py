"""Files of an object storage (S3, Google Cloud Storage, Azure), through the file systems that Arrow brings."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.files import PARTIAL

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # no drive letter of Windows
_CREDENTIALS = re.compile(r"^([^/]*:/+)[^/@]*:.*@")
"""USER:PASSWORD@, to the last @ since a password may be unquoted; CONTAINER@ in abfss://CONTAINER@ACCOUNT is none."""


def is_url(place: str | Path) -> bool:
    """Return whether a place is a URL, not a folder."""
    return _URL.match(str(place)) is not None


def without_credentials(place: str) -> str:
    """Return a folder as it is, and a URL as people may see it: without credentials and options."""
    return _CREDENTIALS.sub(r"\1", place).partition("?")[0] if is_url(place) else place


@dataclass(frozen=True)
class Storage:
    """The files below a URL. Each is there as a whole or not at all; listings show what was written before."""

    url: str
    """As people may see it: without credentials and options."""
    filesystem: Any
    root: str

    @classmethod
    def at(cls, url: str) -> Self:
        """Connect to the storage of a URL; credentials come from where its own tools look for them."""
        from pyarrow.fs import FileSystem

        shown = without_credentials(url).rstrip("/")
        try:
            filesystem, root = FileSystem.from_uri(url)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).replace(url, shown)  # Arrow repeats the URL as it is
            raise ConfigurationError(
                f"{shown} cannot be used ({reason}); give a URL such as s3://bucket/tickets.index, gs:// or abfss://"
            ) from None
        if not root.strip("/"):
            raise ConfigurationError(f"{shown} names no folder; give one, such as s3://bucket/tickets.index")
        return cls(shown, filesystem, root.rstrip("/"))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if there is none."""
        with self._explained("read"):
            try:
                with self.filesystem.open_input_stream(self._path(name)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""

        def put(path: str) -> None:
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(content)

        self._put(name, put)

    def upload(self, file: Path, name: str) -> None:
        """Copy a file of this machine to the storage."""
        from pyarrow.fs import LocalFileSystem, copy_files

        self._put(name, lambda path: copy_files(str(file), path, LocalFileSystem(), self.filesystem))

    def download(self, name: str, file: Path) -> bool:
        """Copy a file of the storage to this machine; return False if there is none."""
        from pyarrow.fs import LocalFileSystem, copy_files

        with self._explained("read"):
            try:
                copy_files(self._path(name), str(file), self.filesystem, LocalFileSystem())
            except FileNotFoundError:
                return False
            return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files of a folder with their sizes in bytes."""
        from pyarrow.fs import FileSelector

        with self._explained("read"):
            found = self.filesystem.get_file_info(FileSelector(self._path(folder), allow_not_found=True))
        return {file.base_name: file.size for file in found if file.is_file and not file.base_name.endswith(PARTIAL)}

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._explained("written"), suppress(FileNotFoundError):
            self.filesystem.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _put(self, name: str, put: Callable[[str], None]) -> None:
        path = self._path(name)
        with self._explained("written"):
            if self.filesystem.type_name != "local":
                put(path)  # an object appears when it is complete
                return
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            put(path + PARTIAL)
            self.filesystem.move(path + PARTIAL, path)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{self.url} cannot be {what} ({error}); once it can, the same command continues") from error
