"""The files of an index: Arrow tables of rows and texts, vectors in shards, one manifest that says which are valid.

A change writes new files beside the old ones and then replaces the manifest, so that an index is at any moment what it
was before or after a change. Shards of vectors that a killed change had finished are used by the next one that embeds
the same texts with the same model.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock, Timeout

from trans_encoder.answers.embedder import Embedder
from trans_encoder.data.storage import content_hash, open_table, save_table
from trans_encoder.errors import DataError, RunError
from trans_encoder.files import PARTIAL, atomic_file, read_json, write_json
from trans_encoder.progress import progress
from trans_encoder.runs.layout import LOCK

MANIFEST, PENDING = "index.json", "pending.json"
SHARD = 4096
"""Texts embedded before their vectors are written: what a kill can cost."""
_FORMAT = 1
_CACHES = "cache"
CLUSTERS, PROBABILITY = f"{_CACHES}-clusters.npz", f"{_CACHES}-probability.json"
"""Made of an index when they are first needed, and made again after every change."""


@dataclass(frozen=True)
class Manifest:
    """Which files make up an index, and which models embedded it."""

    models: list[str]
    fingerprints: list[dict[str, str]]
    id_column: str | None
    generation: int = 0
    rows: str = ""
    texts: str = ""
    shards: tuple[str, ...] = ()
    format: int = _FORMAT

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of an index."""
        try:
            content = read_json(folder / MANIFEST)
            if content.get("format") != _FORMAT:
                raise DataError(
                    f"{folder} is an index of format {content.get('format')!r}, expected {_FORMAT}; make it again"
                )
            return cls(**{**content, "shards": tuple(content["shards"])})
        except FileNotFoundError:
            raise DataError(
                f"{folder} is not an index; make one: trans-encoder index --text FILE --model MODEL --out {folder}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder / MANIFEST} cannot be read ({error}); make the index again") from error

    def is_of(self, embedder: Embedder) -> bool:
        """Return whether the index was embedded with these very models."""
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
    rows, texts = (open_table(folder / name) for name in (manifest.rows, manifest.texts))
    shards = [_open_shard(folder / name) for name in manifest.shards]
    vectors = shards[0] if len(shards) == 1 else np.concatenate(shards)
    if len(vectors) != len(texts):
        raise DataError(f"{folder} has {len(texts):,} texts but {len(vectors):,} vectors; make the index again")
    return rows, texts, vectors


def embed_texts(folder: Path, texts: Sequence[str], embedder: Embedder, *, manifest: Manifest) -> tuple[str, ...]:
    """Embed texts shard by shard, those that are there already apart; return the names of the new files."""
    generation = manifest.generation + 1
    wanted = {"generation": generation, "texts": _hash(texts), "fingerprints": embedder.fingerprints, "shard": SHARD}
    if not (folder / PENDING).exists() or read_json(folder / PENDING) != wanted:
        remove_leftovers(folder, manifest)
        write_json(folder / PENDING, wanted)
    names = []
    with progress("embedding", total=len(texts)) as advance:
        for number, start in enumerate(range(0, len(texts), SHARD)):
            part = texts[start : start + SHARD]
            name = f"vectors-{generation:05}-{number:05}.npy"
            if not (folder / name).exists():
                with atomic_file(folder / name) as temporary, temporary.open("wb") as file:
                    np.save(file, embedder.encode(part).astype(np.float16), allow_pickle=False)
            names.append(name)
            advance(len(part))
    return tuple(names)


def commit(folder: Path, manifest: Manifest, rows: pa.Table, texts: pa.Table, shards: tuple[str, ...]) -> Manifest:
    """Write the tables of the next generation, make them valid and remove what no longer is."""
    generation = manifest.generation + 1
    rows_name, texts_name = f"rows-{generation:05}.arrow", f"texts-{generation:05}.arrow"
    save_table(rows, folder / rows_name)
    save_table(texts, folder / texts_name)
    done = replace(manifest, generation=generation, shards=shards, rows=rows_name, texts=texts_name)
    write_json(folder / MANIFEST, asdict(done))
    remove_leftovers(folder, done)
    return done


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove the files that the manifest does not name."""
    valid = {manifest.rows, manifest.texts, *manifest.shards}
    for pattern in ("vectors-*.npy", "rows-*.arrow", "texts-*.arrow", f"*{PARTIAL}", f"{_CACHES}-*"):
        for file in folder.glob(pattern):
            if file.name not in valid:
                file.unlink()
    (folder / PENDING).unlink(missing_ok=True)


def _open_shard(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read ({error}); make the index again") from error


def _hash(texts: Sequence[str]) -> str:
    if not len(texts):
        return hashlib.sha256().hexdigest()
    return content_hash(pa.table({"text": pa.array(texts, pa.large_string())}))
