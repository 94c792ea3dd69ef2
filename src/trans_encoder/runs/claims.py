"""Ownership of run folders: locks, changed settings, and errors of the storage."""

import errno
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.ranks import from_all_ranks, from_first_rank
from trans_encoder.runs.differences import differences
from trans_encoder.runs.layout import BEGINNINGS, Layout
from trans_encoder.runs.manifest import FORMAT, Manifest, read_object

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_STORAGE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN),
)
_NEARLY_FULL = 1 << 20


def run_folder(out: str | Path) -> Path:
    """Return the absolute path of a run folder; refuse URLs."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(out)):
        raise ConfigurationError(
            f"the run folder {out} is a URL; a run needs atomic renames and locks, which object stores do not have. "
            f"Give a folder on a disk or on mounted storage that all machines share (NFS, Lustre, EFS), and copy the "
            f"finished run to the store afterwards"
        )
    return Path(out).absolute()


def check_shared(run: Path) -> None:
    """Refuse to work for a run or an index whose folder this machine does not see."""
    if not Layout(run).manifest.exists() and not Layout(run).lock.exists():
        raise RunError(
            f"{platform.node()} does not see the folder {run}; "
            f"give a folder on storage that all machines of the run share (--out)"
        )


def check_agreed(config: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    """Refuse ranks that would work with other settings, or on other inputs or models, than rank 0."""
    first_config, first_origin = from_first_rank(lambda: (config, origin))
    mine = differences(first_config, config) + differences(first_origin, origin)
    found = [place for place in from_all_ranks([f"{platform.node()}, {each}" for each in mine]) if place]
    if found:
        raise RunError(
            "\n  ".join(["processes of this run do not agree with rank 0:", *found[0]])
            + "\nGive every machine the same command, inputs and models"
        )


def check_owned(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse a place that is neither new nor empty nor the folder of a run with such settings; write nothing."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give a folder for the run (--out)")
    layout = Layout(path)
    found = {child.name for child in path.iterdir()} if path.is_dir() else set()
    if layout.manifest.name in found:
        content = read_object(layout.manifest)
        owned = {"version", "origin", "stages"} <= set(content)
        if owned and content["version"] != FORMAT:
            raise RunError(_other_format(path, content["version"]))
    elif {layout.lock.name, layout.config.name} <= found:  # the manifest was lost
        owned = set(read_object(layout.config)) == set(config)
    else:
        owned = found <= BEGINNINGS
    if not owned:
        raise RunError(f"{path} is not empty and is not a run folder; give a new folder for the run (--out)")


def _other_format(path: Path, version: object) -> str:
    by = "trans-encoder 0.1.0" if version == 1 else "another version of trans-encoder"
    return (
        f"{path} was begun with {by}, whose runs this version can report and load but not continue; give a new folder "
        f"(--out), or continue it with the version that began it"
    )


def unchanged(layout: Layout, config: Mapping[str, Any], origin: Mapping[str, Any] | None) -> Manifest:
    """Return the manifest of a run, new or begun with these settings and inputs; refuse others, and list them.

    Without an `origin` only the settings are compared.
    """
    manifest = Manifest.read(layout)
    # Both are empty in a new folder. The configuration alone may be there after a kill, or the manifest be lost.
    old, begun = read_object(layout.config) or config, manifest.origin or origin or {}
    if old.keys() != config.keys():  # every version writes all of its settings
        raise RunError(
            f"{layout.root} was begun with another command or version of trans-encoder, which has other settings; give "
            f"a new folder (--out), or continue it with what began it"
        )
    changed = differences(old, config) + ([] if origin is None else differences(begun, origin))
    if changed:
        raise RunError(
            "\n  ".join([f"{layout.root} was begun with other settings or inputs:", *changed])
            + "\nGive the same again to continue this run, or another folder (--out) to begin a new one"
        )
    manifest.origin = dict(begun)
    return manifest


def check_begun(path: Path, *, config: Mapping[str, Any], origin: Mapping[str, Any] | None) -> bool:
    """Refuse a folder as `Run.claim` would, but write nothing; return whether a run has been begun in it."""
    check_owned(path, config)
    layout = Layout(path)
    with locked(layout) if layout.lock.exists() else nullcontext():
        unchanged(layout, config, origin)
    return layout.manifest.exists()


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Keep other processes out of a run folder inside this block."""
    path = layout.root
    # Not a soft lock: after a kill, nothing would release it.
    lock = FileLock(layout.lock, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"another process is working in {path}; wait until it ends, or give another folder (--out)"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise RunError(
            f"the storage under {path} has no file locks, so two processes could damage the run; mount it with locks "
            f"(flock), or give a folder elsewhere (--out)"
        ) from error
    try:
        yield
    finally:
        lock.release()


def check_place(path: Path, error: Exception | None = None) -> None:
    """Refuse to go on without the run folder."""
    manifest = Layout(path).manifest
    if not manifest.exists():
        raise RunError(
            f"{path} has vanished, or its {manifest.name}, during the run; put the folder back as it was (a disk may "
            f"have to be mounted again), then the same command continues"
        ) from error


def storage_reason(error: Exception, path: Path) -> str | None:
    """Return what is wrong with the storage of a run folder, if that is what the error is about."""
    if isinstance(error, OSError):
        if isinstance(error.filename, str | bytes):
            place = Path(os.path.realpath(os.fsdecode(error.filename)))
            run = Path(os.path.realpath(path))
            concerned = place.is_relative_to(run) or run.is_relative_to(place)
        else:
            concerned = error.errno in _STORAGE
        return error.strerror if concerned else None
    # safetensors, tokenizers and torch.save put the system's error into words of their own, or leave it out.
    wrapped = isinstance(error, SafetensorError | RuntimeError) or type(error) is Exception
    if not wrapped or not re.search(r"os error \d|PytorchStreamWriter|inline_container", str(error)):
        return None
    return os.strerror(errno.ENOSPC) if shutil.disk_usage(path).free < _NEARLY_FULL else str(error)
