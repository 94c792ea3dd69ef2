"""Files that are either whole or absent: atomic writes and checksums."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PARTIAL = ".partial"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + _PARTIAL)
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
    """Yield a temporary folder beside `path`; it takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + _PARTIAL)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in (temporary, *sorted(temporary.rglob("*"))):
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
        _sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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
