"""Files that are either whole or absent: atomic writes and checksums."""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from trans_encoder.errors import ConfigurationError

PARTIAL = ".partial"
"""Ends the name of what is not whole yet."""
_REPLACED = ".replaced"


_RENAME_WAITS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
# Windows can flush only what is open for writing, and cannot open folders at all.
_SYNC_MODE = os.O_RDWR if os.name == "nt" else os.O_RDONLY
_NO_FOLDER_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EBADF, errno.EISDIR, errno.ENOTSUP}


def _sync(path: Path) -> None:
    """Have a file or folder written through to the disk; a folder only where the system can do that."""
    is_folder = path.is_dir()
    try:
        descriptor = os.open(path, os.O_RDONLY if is_folder else _SYNC_MODE)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not (is_folder and error.errno in _NO_FOLDER_SYNC):
            raise


def _rename(old: Path, new: Path) -> None:
    """Rename over what is there; on Windows a virus scanner or indexer may hold either for a moment, so try again."""
    for seconds in _RENAME_WAITS:
        try:
            old.replace(new)
            return
        except PermissionError:
            time.sleep(seconds)
    old.replace(new)


@contextmanager
def atomic_file(path: Path, *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + PARTIAL)
    try:
        yield temporary
        # Content before name: after a crash the renamed file could be there and empty. The folder holds the name.
        _sync(temporary)
        _rename(temporary, path)
        _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the place of `path` when the block ends without an error.

    A folder that was there is removed only when the new one is in its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + PARTIAL)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in (temporary, *sorted(temporary.rglob("*"))):
            _sync(file)
        _put_in_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(new: Path, path: Path) -> None:
    # A folder that is not empty cannot be replaced by one rename. A kill between the two leaves the old one under its
    # other name and no result, so the stage is done again.
    old = path.with_name(path.name + _REPLACED)
    if path.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        _rename(path, old)
    try:
        _rename(new, path)
        _sync(path.parent)
    except OSError:
        if old.is_dir() and not path.exists():
            _rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_replaceable(folder: Path, *, what: str, is_ours: Callable[[set[str]], bool]) -> None:
    """Refuse to replace anything but an empty folder or one whose files, by their names, are what we write there."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; give a folder for the {what} (--out)")
    found = {child.name for child in folder.iterdir()}
    if found and not is_ours(found):
        raise ConfigurationError(f"{folder} is not empty and holds no {what} to replace; give another folder (--out)")


def cache_folder() -> Path:
    """Return where converted models are kept: `TRANS_ENCODER_CACHE`, else the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TRANS_ENCODER_CACHE") or user / "trans-encoder")


def write_json(path: Path, content: Any, *, make_parents: bool = True) -> None:
    """Write `content`, plain values, dataclasses or pydantic models, as indented JSON, atomically."""
    with atomic_file(path, make_parents=make_parents) as temporary:
        text = json.dumps(to_jsonable_python(content), indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read back an object that `write_json` wrote; whatever else is there is a ValueError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, found {type(found).__name__}")
    return found


def sha256(path: Path) -> str:
    """Return the checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file in a folder, after having them written through to the disk."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for file in files:
        _sync(file)
    return {file.name: sha256(file) for file in files}
