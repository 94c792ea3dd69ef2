"""Indexes in an object storage: what is published at a URL, and the copies of it on this machine.

At the URL are the files of an index, named by their checksums (`files/SHA256`), and `published.json`, which says what
each of them is called in the folder of the index. It is written last, so a reader sees the index as it was before a
change or after it. No file is ever replaced by another content, and those that are no longer named are removed: a
reader that is too late for one of them reads `published.json` again.

Object storage has no locks. A writer announces itself under `writers/` and then looks who else is there: whoever is not
alone gives way, so of two that begin at the same time at most one publishes.
"""

import json
import os
import platform
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256 as hash_of
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from trans_encoder.answers.objects import Storage, is_url
from trans_encoder.answers.store import MANIFEST
from trans_encoder.errors import DataError, RunError
from trans_encoder.files import PARTIAL, atomic_file, cache_folder, sha256, write_json
from trans_encoder.progress import progress
from trans_encoder.runs import LOCK

STATE, FILES, WRITERS = "published.json", "files", "writers"
_FORMAT = 1
_NAME, _CHECKSUM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), re.compile(r"[0-9a-f]{64}")
_TRIES = 5
"""How often a reader begins again because a writer published in the meantime."""


def located(index: str | Path) -> Path:
    """Return the folder of an index: the one that is given, or this machine's copy of what a URL holds now."""
    if not is_url(index):
        return Path(index)
    storage, folder = Storage.at(str(index)), _copies(str(index)) / "reading"
    with _alone(folder, timeout=-1):
        if fetch(storage, folder) is None:
            raise DataError(
                f"{storage.url} holds no index; publish one: "
                f"trans-encoder index --text FILE --model MODEL --out {storage.url}"
            )
    return folder


def fetch(storage: Storage, folder: Path) -> bytes | None:
    """Make a folder what is published, downloading the files whose checksums differ; return the state, if any."""
    for _ in range(_TRIES):
        state = storage.read(STATE)
        if state is None:
            return None
        files = _read_state(storage, state)
        if _fetch_files(storage, folder, files):
            if known_state(folder) != state:
                _clear(folder, keep=files)
                with atomic_file(folder / STATE) as temporary:
                    temporary.write_bytes(state)
            return state
    raise DataError(f"{storage.url} lacks files that its {STATE} names; {_anew(storage)}")


def known_state(folder: Path) -> bytes | None:
    """Return the published state that a folder is a copy of, or was made from."""
    return (folder / STATE).read_bytes() if (folder / STATE).is_file() else None


@dataclass(eq=False)
class Writing:
    """A folder on this machine whose files are to be published at a URL, from where they came."""

    storage: Storage
    folder: Path
    base: bytes | None
    """The published state that the work began from; None if there was none."""
    token: str

    def publish(self, names: Sequence[str]) -> None:
        """Publish files of the folder, all at once, if what is published is still what the work began from."""
        checksums = {name: sha256(self.folder / name) for name in names}
        state = _write_state(checksums)
        if state == self.base:
            return
        with self._announced():
            if self.storage.read(STATE) not in (self.base, state):
                raise RunError(
                    f"{self.storage.url} was changed by another writer since this command began, so nothing was "
                    "published; give the same command again to add to what is there now"
                )
            there = self.storage.sizes(FILES)
            missing = [name for name in names if there.get(checksums[name]) != (self.folder / name).stat().st_size]
            with progress("publishing files", total=len(missing)) as advance:
                for name in missing:
                    self.storage.upload(self.folder / name, f"{FILES}/{checksums[name]}")
                    advance(1)
            self.storage.write(STATE, state)
            with atomic_file(self.folder / STATE) as temporary:
                temporary.write_bytes(state)
            for checksum in there.keys() - set(checksums.values()):
                self.storage.remove(f"{FILES}/{checksum}")

    def refuse_others(self) -> None:
        """Refuse to work while another writer publishes."""
        for token in self.storage.sizes(WRITERS):
            if token != self.token:
                said = (self.storage.read(f"{WRITERS}/{token}") or b"it has just ended").decode(errors="replace")[:200]
                raise RunError(
                    f"{self.storage.url} is being written by another machine or process ({said}); wait for it to end, "
                    "then give the same command again. If it was killed and nobody will continue it there, remove "
                    f"{self.storage.url}/{WRITERS}/{token}"
                )

    @contextmanager
    def _announced(self) -> Iterator[None]:
        mine = f"{WRITERS}/{self.token}"
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.storage.write(mine, f"{platform.node()}, process {os.getpid()}, since {since}".encode())
        try:
            self.refuse_others()
            yield
        finally:
            self.storage.remove(mine)


@contextmanager
def writing(url: str) -> Iterator[Writing]:
    """Yield a folder to change what a URL holds: it has what is published, or what a stopped command made of that."""
    storage, copies = Storage.at(url), _copies(url)
    folder = copies / "writing"
    with _alone(folder, timeout=0):
        token = copies / "writer"
        if not token.exists():
            write_json(token, {"token": uuid4().hex})
        work = Writing(storage, folder, None, str(json.loads(token.read_text(encoding="utf-8"))["token"]))
        work.refuse_others()
        work.base = storage.read(STATE)
        if work.base != known_state(folder):  # published or removed by others: what this one had begun is of no use
            work.base = fetch(storage, folder)
            if work.base is None:
                _clear(folder)
        yield work


@contextmanager
def _alone(folder: Path, *, timeout: float) -> Iterator[None]:
    """Hold a copy against the other processes of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(f"{folder.name}{LOCK}"), timeout=timeout):
            yield
    except Timeout:
        raise RunError(f"another process of this machine is writing to {folder}; wait for it to end") from None


def _copies(url: str) -> Path:
    """Return where this machine keeps its copies of what a URL holds."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", Storage.at(url).root).strip("-")[-60:]
    return cache_folder() / "indexes" / f"{name}-{hash_of(url.rstrip('/').encode()).hexdigest()[:12]}"


def _clear(folder: Path, *, keep: Collection[str] = ()) -> None:
    """Remove the files of a copy, except the lock of those who have it open."""
    for file in folder.iterdir():
        if file.name not in keep and file.name != LOCK:
            with suppress(OSError):  # Windows: somebody has it mapped; the next change removes it
                file.unlink()


def _fetch_files(storage: Storage, folder: Path, files: dict[str, str]) -> bool:
    """Download what is missing or differs; return False if the storage no longer has a file."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [
        name for name, checksum in files.items() if not (folder / name).is_file() or sha256(folder / name) != checksum
    ]
    with progress("fetching files", total=len(missing)) as advance:
        for name in missing:
            part = folder / (name + PARTIAL)
            if not storage.download(f"{FILES}/{files[name]}", part):
                return False
            if sha256(part) != files[name]:
                part.unlink()
                damaged = f"{storage.url}/{FILES}/{files[name]}"
                raise DataError(f"{damaged} is damaged (its checksum differs); remove it, and {_anew(storage)}")
            part.replace(folder / name)
            advance(1)
    return True


def _anew(storage: Storage) -> str:
    """Say how to begin again: files that are there and whole are not sent again."""
    return f"remove {storage.url}/{STATE}, then make the index again from all of its rows"


def _write_state(checksums: dict[str, str]) -> bytes:
    return (json.dumps({"format": _FORMAT, "files": checksums}, indent=2, sort_keys=True) + "\n").encode()


def _read_state(storage: Storage, state: bytes) -> dict[str, str]:
    """Return the checksums of the files that a state names; refuse names that could lead out of the folder."""
    try:
        content = json.loads(state)
        files = content["files"]
        if content["format"] != _FORMAT or not all(map(_NAME.fullmatch, files)):
            raise ValueError("another format, or a name that is none of ours")
        if not all(map(_CHECKSUM.fullmatch, files.values())):
            raise ValueError("a checksum that is none")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{storage.url}/{STATE} cannot be read ({error}); {_anew(storage)}") from error
    return dict(sorted(files.items(), key=lambda file: file[0] == MANIFEST))
