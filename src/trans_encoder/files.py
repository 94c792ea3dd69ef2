"""Files that are either whole or absent: atomic writes and checksums."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PARTIAL = ".partial"
"""Ends the name of what is not whole yet."""
_REPLACED = ".replaced"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path, *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + PARTIAL)
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
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
    old = path.with_name(path.name + _REPLACED)
    if path.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        path.replace(old)
    try:
        new.replace(path)
        _sync(path.parent)
    except OSError:
        if old.is_dir() and not path.exists():
            old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def cache_folder() -> Path:
    """Return where converted models are kept: `TRANS_ENCODER_CACHE`, else the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TRANS_ENCODER_CACHE") or user / "trans-encoder")


def write_json(path: Path, content: Any, *, make_parents: bool = True) -> None:
    """Write `content` as indented JSON, atomically."""
    with atomic_file(path, make_parents=make_parents) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read back an object that `write_json` wrote."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


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
