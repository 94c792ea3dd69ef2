"""The run folder's book-keeping: which stages are finished, what each was made from, and whether its files are whole.

A stage is a file or a folder of the run. It counts as finished when the manifest lists it with the same inputs and
every file of it has the size and checksum that it had when it was made; otherwise its work is done (again).
"""

import errno
import json
import logging
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256 as _sha256
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.files import PARTIAL, sha256, write_json
from trans_encoder.progress import progress
from trans_encoder.ranks import from_all_ranks, from_first_rank, is_first_rank
from trans_encoder.runs.differences import differences
from trans_encoder.runs.stages import Engine, Spent, Stage, one_by_one, scratch

logger = logging.getLogger(__name__)

CONFIG, ENVIRONMENT, MANIFEST, LOCK = "config.json", "environment.json", "manifest.json", ".lock"
INPUTS = "inputs.json"
"""In a stage's scratch folder: what its parts were made from."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_STORAGE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN),
)
_NEARLY_NOTHING = 1 << 20
PREPARED = "from-text"
"""Where a run that begins with raw text keeps what it does before the cycles."""


@dataclass
class RunFolder:
    """A run folder that this process has locked."""

    path: Path
    engine: Engine
    advance: Callable[[int], None]
    """Told of each finished stage."""
    _stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _origin: dict[str, Any] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        *,
        config: Mapping[str, Any],
        origin: Mapping[str, Any],
        engine: Engine,
        advance: Callable[[int], None],
    ) -> Iterator[Self]:
        """Lock a new or existing run folder; refuse it if it was begun with other settings or inputs.

        `origin` holds the hashes of what the run is made from: pairs, dev set, models.
        """
        begun = False
        try:
            with _claimed(path, config) if is_first_rank() else nullcontext():
                folder = cls(path, engine, advance)
                folder._stages, folder._origin = from_first_rank(lambda: folder._begun(config, origin))
                check_shared(path)
                _check_agreed(config, origin)
                begun = True
                yield folder
        except Exception as error:
            if begun:
                _check_place(path, error)  # if the folder has gone away, whatever error follows is not the cause
            reason = _storage_reason(error, path)
            if reason is None:
                raise
            raise RunError(
                f"cannot write to {path}: {reason}; what is finished is kept. "
                f"Make room or mend the folder, then the same command continues"
            ) from error

    def _begun(self, config: Mapping[str, Any], origin: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        self._stages = _read(self.path / MANIFEST, "stages")
        self._origin = _read(self.path / MANIFEST, "origin") or dict(origin)
        old = _read(self.path / CONFIG) or config
        _refuse_changes(self.path, differences(old, config) + differences(self._origin, origin))
        write_json(self.path / CONFIG, config)
        self._save()
        return self._stages, self._origin

    def complete(self, stages: Sequence[Stage]) -> None:
        """Do the work of those of these independent stages that are not finished yet."""
        missing = from_first_rank(lambda: [stage.name for stage in stages if not self._is_finished(stage)])
        for stage in stages:
            if stage.name not in missing:
                self._clear(stage)
        todo = [stage for stage in stages if stage.name in missing]
        before = self._prepare(todo)
        for stage, spent in self._done(todo):
            if is_first_rank():
                self._record(stage, before.and_then(spent))
            self._clear(stage)
        self._stages = from_first_rank(lambda: self._stages)

    def _prepare(self, stages: Sequence[Stage]) -> Spent:
        """Make those parts of stages that are not there yet."""
        begun, most = perf_counter(), Spent(0.0, None)
        parts = [part for stage in stages for part in stage.parts]
        missing = from_first_rank(lambda: self._missing_parts(stages))
        todo = [part for part in parts if part.name in missing]
        with progress("parts of the stage", total=len(todo)) as advance:
            for _, spent in self._done(todo):
                most = most.and_then(spent)
                advance(1)
        return most._replace(seconds=perf_counter() - begun)

    def _missing_parts(self, stages: Sequence[Stage]) -> set[str]:
        """Return the parts that must be made, after removing those that were made from other inputs."""
        for stage in stages:
            note = scratch(self.path / stage.name) / INPUTS
            if stage.parts and not _holds(note, stage.inputs):
                shutil.rmtree(note.parent, ignore_errors=True)
                write_json(note, stage.inputs)
        return {part.name for stage in stages for part in stage.parts if not (self.path / part.name).exists()}

    def _done(self, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
        """Have the work done: what is the owner's in this process, the rest by the engine."""
        yield from one_by_one(self.path, [stage for stage in stages if stage.by == "owner"])
        yield from self.engine(self.path, [stage for stage in stages if stage.by != "owner"])

    def digest(self, name: str) -> str:
        """Return one checksum for all files of a finished stage."""
        files = self._stages[name]["files"]
        return _sha256("\n".join(f"{file} {files[file]['sha256']}" for file in sorted(files)).encode()).hexdigest()

    def _is_finished(self, stage: Stage) -> bool:
        entry = self._stages.get(stage.name)
        if entry is None:
            return False
        damaged = damaged_files(self.path, {stage.name: entry})
        if damaged:
            logger.warning(
                "%s is missing or was altered; the stage %s is done again", ", ".join(damaged[:3]), stage.name
            )
        return not damaged and bool(entry.get("inputs") == json.loads(json.dumps(stage.inputs)))

    def _record(self, stage: Stage, spent: Spent) -> None:
        _check_place(self.path)
        place = self.path / stage.name
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        self._stages[stage.name] = {
            "inputs": stage.inputs,
            "files": {
                file.relative_to(self.path).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file)}
                for file in files
            },
            "seconds": round(spent.seconds, 3),
            "peak_memory_bytes": spent.peak_memory_bytes,
        }
        self._save()

    def _clear(self, stage: Stage) -> None:
        if is_first_rank():
            shutil.rmtree(scratch(self.path / stage.name), ignore_errors=True)
        self.advance(1)

    def _save(self) -> None:
        # A folder that has vanished must not be made anew.
        content = {"version": 1, "origin": self._origin, "stages": self._stages}
        write_json(self.path / MANIFEST, content, make_parents=False)


def run_folder(out: str | Path) -> Path:
    """Return the absolute path of a run folder; refuse what is no place in a file system."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(out)):
        raise ConfigurationError(
            f"the run folder {out} is a URL; a run needs atomic renames and locks, which object stores do not have. "
            f"Give a folder on a disk or on mounted storage that all machines share (NFS, Lustre, EFS), and copy the "
            f"finished run to the store afterwards"
        )
    return Path(out).absolute()


def check_shared(run: Path) -> None:
    """Refuse to work for a run whose folder this machine does not see."""
    if not (run / MANIFEST).exists():
        raise RunError(
            f"{platform.node()} does not see the run folder {run}; "
            f"give a folder on storage that all machines of the run share (--out)"
        )


def _check_agreed(config: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
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
    """Refuse a place for a run with such settings that is neither new nor empty nor such a run's; write nothing."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give a folder for the run (--out)")
    found = {child.name for child in path.iterdir()} if path.is_dir() else set()
    if MANIFEST in found:
        owned = {"version", "origin", "stages"} <= set(_read(path / MANIFEST))
    elif LOCK in found and CONFIG in found:  # the manifest was lost
        owned = set(_read(path / CONFIG)) == set(config)
    else:
        owned = found <= {PREPARED, LOCK, *(name + PARTIAL for name in (CONFIG, MANIFEST))}
    if not owned:
        raise RunError(f"{path} is not empty and is no run folder; give a new folder for the run (--out)")


def _refuse_changes(path: Path, changed: Sequence[str]) -> None:
    if changed:
        raise RunError(
            "\n  ".join([f"{path} was begun with other settings or inputs:", *changed])
            + "\nGive the same again to continue this run, or another folder (--out) to begin a new one"
        )


def check_begun(path: Path, *, config: Mapping[str, Any], origin: Mapping[str, Any] | None) -> bool:
    """Refuse a folder as `RunFolder.open` would, but write nothing; tell whether a run has been begun in it.

    Without an `origin` only the settings are compared.
    """
    check_owned(path, config)
    with _locked(path) if (path / LOCK).exists() else nullcontext():
        manifest, old = _read(path / MANIFEST), _read(path / CONFIG) or config
        begun = manifest.get("origin") or origin
        changed = [] if origin is None or begun is None else differences(begun, origin)
        _refuse_changes(path, differences(old, config) + changed)
    return bool(manifest)


@contextmanager
def _claimed(path: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Make the folder of a run, or take over an existing one, and keep other processes out of it."""
    check_owned(path, config)
    path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Without the storage's own locks, nothing would free the run after a kill.
    lock = FileLock(path / LOCK, timeout=0, fallback_to_soft=False)
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


def _check_place(path: Path, error: Exception | None = None) -> None:
    if not (path / MANIFEST).exists():
        raise RunError(
            f"{path} has vanished, or its {MANIFEST}, while the run was at work; put the folder back as it was (a disk "
            f"may have to be mounted again), then the same command continues"
        ) from error


def _storage_reason(error: Exception, path: Path) -> str | None:
    """Return what is wrong with the storage of a run folder, if that is what the error is about."""
    if isinstance(error, OSError):
        if isinstance(error.filename, str | bytes):
            place = Path(os.path.realpath(os.fsdecode(error.filename)))
            run = Path(os.path.realpath(path))
            concerned = place.is_relative_to(run) or run.is_relative_to(place)
        else:
            concerned = error.errno in _STORAGE
        return error.strerror if concerned else None
    # safetensors and torch.save put the system's error into words of their own, or leave it out.
    wrapped = isinstance(error, SafetensorError | RuntimeError)
    if not wrapped or not re.search(r"os error \d|PytorchStreamWriter|inline_container", str(error)):
        return None
    return os.strerror(errno.ENOSPC) if shutil.disk_usage(path).free < _NEARLY_NOTHING else str(error)


def damaged_files(run: Path, stages: Mapping[str, Any]) -> list[str]:
    """Return the files of stages that are not as they were made; the manifest itself if its entries cannot be read."""
    try:
        files = {file: known for entry in stages.values() for file, known in entry["files"].items()}
        readable = all(
            isfinite(entry["seconds"]) and isinstance(entry.get("peak_memory_bytes"), int | None)
            for entry in stages.values()
        )
        return [file for file, known in files.items() if not _is_whole(run / file, known)] if readable else [MANIFEST]
    except (LookupError, TypeError, AttributeError, ValueError):
        return [MANIFEST]


def _holds(note: Path, inputs: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(note.read_text(encoding="utf-8")) == json.loads(json.dumps(inputs)))
    except (OSError, ValueError):
        return False


def _is_whole(path: Path, known: Mapping[str, Any]) -> bool:
    return path.is_file() and path.stat().st_size == known["bytes"] and sha256(path) == known["sha256"]


def _read(path: Path, *keys: str) -> dict[str, Any]:
    """Read a JSON object, or the one at a key of it; an empty one if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in keys:
            content = content.get(key, {}) if isinstance(content, dict) else content
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{path} is damaged ({error}); put it back from a copy, or remove it to have its run checked and made again"
        ) from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: expected a JSON object; remove it to have its run checked and made again")
    return content
