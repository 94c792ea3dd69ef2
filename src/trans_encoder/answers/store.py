"""The files of an index: Arrow tables of rows and texts, vectors in shards, one manifest that says which are valid.

A change writes new files beside the old ones and then replaces the manifest, so that an index is at any moment what it
was before or after a change. Shards of vectors that a killed change had finished are used by the next one that embeds
the same texts with the same model.
"""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock, Timeout
from pydantic.dataclasses import dataclass

from trans_encoder.answers.retrieval import Embedder, Sides
from trans_encoder.answers.shards import make_shards, parts
from trans_encoder.data.storage import content_hash, open_table, save_table
from trans_encoder.errors import DataError, RunError
from trans_encoder.files import PARTIAL, read_json, sha256, write_json
from trans_encoder.progress import progress
from trans_encoder.runs import LOCK, Engine

logger = logging.getLogger(__name__)

MANIFEST, PENDING = "index.json", "pending.json"
SHARD = 4096
"""Texts embedded before their vectors are written: what a kill can cost."""
_FORMAT = 1
_AGAIN = "remove the folder and make the index again"


@dataclass(frozen=True)
class Manifest:
    """Which files make up an index, and which models embedded it."""

    models: list[str]
    fingerprints: list[dict[str, str]]
    id_column: str | None
    prompts: tuple[Sides, ...] = ()
    """The prompts that were chosen for the models; if empty, their own."""
    generation: int = 0
    rows: str = ""
    texts: str = ""
    shards: tuple[str, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)
    """SHA-256 of tables and vectors: Arrow trusts a memory-mapped file, and a damaged one would crash the process."""
    format: int = _FORMAT

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of an index."""
        try:
            content = read_json(folder / MANIFEST)
            if content.get("format") != _FORMAT:
                raise DataError(
                    f"{folder} is an index of format {content.get('format')!r}, expected {_FORMAT}; {_AGAIN}"
                )
            manifest = cls(**{**content, "shards": tuple(content["shards"])})
            for name in (manifest.rows, manifest.texts, *manifest.shards, *manifest.checksums):
                if Path(name).name != name:  # of a published index, somebody else wrote this file
                    raise ValueError(f"{name} is not in the folder")
            return manifest
        except NotADirectoryError:
            raise DataError(
                f"{folder} is a file, not an index; make one of it: "
                f"trans-encoder index --text {folder} --model MODEL --out {folder.with_suffix('.index')}"
            ) from None
        except FileNotFoundError:
            raise DataError(
                f"{folder} is not an index; make one: trans-encoder index --text FILE --model MODEL --out {folder}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder / MANIFEST} cannot be read ({error}); {_AGAIN}") from error

    def cache(self, name: str) -> str:
        """Name a file that is made of the index when it is first needed, and made again after every change."""
        return f"cache-{self.generation:05}-{name}"

    def is_of(self, embedder: Embedder) -> bool:
        """Return whether the index was embedded with these very models, and with these prompts before its texts."""
        return self.fingerprints == embedder.fingerprints


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the index against other writers."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        with lock.acquire(timeout=0):
            yield
    except Timeout:
        raise RunError(f"another process is writing to {folder}; wait for it to end") from None


def open_files(folder: Path, manifest: Manifest) -> tuple[pa.Table, pa.Table, npt.NDArray[Any]]:
    """Return rows, texts and vectors, memory-mapped as far as they can be."""
    for name, checksum in manifest.checksums.items():
        if not (folder / name).is_file() or sha256(folder / name) != checksum:
            raise DataError(f"{folder / name} is missing or damaged (its checksum differs); {_AGAIN}")
    rows, texts = (open_table(folder / name) for name in (manifest.rows, manifest.texts))
    shards = [_open_shard(folder / name, is_checked=name in manifest.checksums) for name in manifest.shards]
    widths = {shard.shape[1:] for shard in shards}
    if len(widths) != 1 or len(*widths) != 1 or sum(map(len, shards)) != len(texts):
        raise DataError(f"the vectors of {folder} do not go with its {len(texts):,} texts; {_AGAIN}")
    vectors = shards[0] if len(shards) == 1 else np.concatenate(shards)
    return rows, texts, vectors


def embed_texts(
    folder: Path,
    texts: Sequence[str],
    embedder: Embedder,
    *,
    manifest: Manifest,
    engine: Engine | None = None,
    trust_remote_code: bool = False,
) -> tuple[str, ...]:
    """Embed texts shard by shard, those that are there already apart; return the names of the new files."""
    generation = manifest.generation + 1
    wanted = {"generation": generation, "texts": _hash(texts), "fingerprints": embedder.fingerprints, "shard": SHARD}
    if _pending(folder) != wanted:
        remove_leftovers(folder, manifest)
        write_json(folder / PENDING, wanted)
    shards = [
        (f"vectors-{generation:05}-{number:05}.npy", texts[start : start + SHARD])
        for number, start in enumerate(range(0, len(texts), SHARD))
    ]
    with progress("embedding", total=len(texts)) as advance:
        for done in make_shards(folder, shards, embedder, engine=engine, trust_remote_code=trust_remote_code):
            advance(done)
    return tuple(name for name, _ in shards)


def commit(folder: Path, manifest: Manifest, rows: pa.Table, texts: pa.Table, shards: tuple[str, ...]) -> Manifest:
    """Write the tables of the next generation, make them valid and remove what no longer is."""
    generation = manifest.generation + 1
    rows_name, texts_name = f"rows-{generation:05}.arrow", f"texts-{generation:05}.arrow"
    save_table(rows, folder / rows_name)
    save_table(texts, folder / texts_name)
    known = {name: manifest.checksums[name] for name in shards if name in manifest.checksums}
    checksums = known | {name: sha256(folder / name) for name in (rows_name, texts_name, *shards) if name not in known}
    done = replace(
        manifest, generation=generation, shards=shards, rows=rows_name, texts=texts_name, checksums=checksums
    )
    write_json(folder / MANIFEST, asdict(done))
    remove_leftovers(folder, done)
    return done


def write_cache(folder: Path, manifest: Manifest, name: str, write: Callable[[Path], None]) -> None:
    """Keep what was made of an index, unless a writer is at work or the folder cannot be written: it is made again."""
    try:
        with locked(folder):
            now = Manifest.read(folder)
            # A copy of a URL may hold an index that was made anew since: the same number, other files.
            if (now.generation, now.checksums) == (manifest.generation, manifest.checksums):
                write(folder / manifest.cache(name))
    except (RunError, DataError, OSError) as error:
        logger.debug("%s of %s was not kept: %s", name, folder, error)


def files_of(folder: Path, manifest: Manifest) -> list[str]:
    """Return the names of the files that make up an index, with what was made of it; its manifest is last."""
    made = sorted(file.name for file in folder.glob(f"{manifest.cache('')}*") if file.suffix != PARTIAL)
    return [manifest.rows, manifest.texts, *manifest.shards, *made, MANIFEST]


def clean_up(folder: Path, manifest: Manifest) -> None:
    """Remove what a change left that was killed when it was all but done; not what one that is to go on needs."""
    pending = _pending(folder)
    if pending is None or pending.get("generation") != manifest.generation + 1:
        remove_leftovers(folder, manifest)


def _pending(folder: Path) -> dict[str, Any] | None:
    """Return what a change that has not ended was about to embed; None if there is none, or it cannot be read."""
    try:
        return read_json(folder / PENDING)
    except (OSError, ValueError):
        return None


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove the files that the manifest does not name, and what was made of an earlier state."""
    valid = {manifest.rows, manifest.texts, *manifest.shards}
    for pattern in ("vectors-*.npy", "rows-*.arrow", "texts-*.arrow", f"*{PARTIAL}", "cache-*"):
        for file in folder.glob(pattern):
            if file.name not in valid and not file.name.startswith(manifest.cache("")):
                with suppress(PermissionError):  # Windows: somebody has it mapped; the next change removes it
                    file.unlink(missing_ok=True)
    shutil.rmtree(parts(folder), ignore_errors=True)
    (folder / PENDING).unlink(missing_ok=True)


def _open_shard(path: Path, *, is_checked: bool) -> npt.NDArray[Any]:
    try:
        shard = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        if shard.ndim == 0:
            raise ValueError("a single number")
        if not is_checked and not np.isfinite(shard).all():  # of an index from before vectors had checksums
            raise ValueError("a vector is not finite")
        return shard
    except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:  # its header is a Python literal
        raise DataError(f"{path} cannot be read ({error}); {_AGAIN}") from error


def _hash(texts: Sequence[str]) -> str:
    if not len(texts):
        return hashlib.sha256().hexdigest()
    return content_hash(pa.table({"text": pa.array(texts, pa.large_string())}))
