"""Shards of vectors: made here one after the other, or side by side by the workers of an engine."""

import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from trans_encoder.answers.retrieval import Embedder, Sides, load_embedder
from trans_encoder.errors import RunError
from trans_encoder.files import atomic_file
from trans_encoder.runs import Engine, Stage, scratch

Shards = Sequence[tuple[str, Sequence[str]]]
"""Names of files and the texts whose vectors go there."""


@dataclass(frozen=True)
class EmbedShard:
    """Embed some texts in a worker, which loads the models once."""

    texts: tuple[str, ...]
    models: tuple[str, ...]
    prompts: tuple[Sides, ...]
    fingerprints: tuple[dict[str, str], ...]
    trust_remote_code: bool

    def __call__(self, path: Path) -> None:
        """Write the vectors, unless an earlier attempt did."""
        if not path.exists():
            embedder = _loaded(self.models, self.prompts, self.trust_remote_code)
            if tuple(embedder.fingerprints) != self.fingerprints:
                raise RunError(
                    f"{' and '.join(self.models)} on {platform.node()} is not the model that this index is made with; "
                    "give every machine the same files"
                )
            write_shard(path, self.texts, embedder)


def make_shards(
    folder: Path, shards: Shards, embedder: Embedder, *, engine: Engine | None, trust_remote_code: bool = False
) -> Iterator[int]:
    """Make the shards of a folder, those that are there apart; yield the number of texts of each."""
    missing = []
    for name, texts in shards:
        if (folder / name).exists():
            yield len(texts)
        else:
            missing.append((name, texts))
    if engine is None:
        for name, texts in missing:
            write_shard(folder / name, texts, embedder)
            yield len(texts)
        return
    models = tuple(str(Path(name).absolute()) if Path(name).exists() else name for name in embedder.names)
    fingerprints, place = tuple(embedder.fingerprints), parts(folder)
    place.mkdir(exist_ok=True)
    texts_of = {f"{place.name}/{name}": tuple(texts) for name, texts in missing}
    stages = [
        Stage(name, {}, EmbedShard(texts, models, embedder.chosen, fingerprints, trust_remote_code))
        for name, texts in texts_of.items()
    ]
    for stage, _ in engine(folder.absolute(), stages):
        (folder / stage.name).replace(folder / Path(stage.name).name)
        yield len(texts_of[stage.name])
    shutil.rmtree(place, ignore_errors=True)


def write_shard(path: Path, texts: Sequence[str], embedder: Embedder) -> None:
    """Write the vectors of some texts."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, embedder.encode(texts).astype(np.float16), allow_pickle=False)


def parts(folder: Path) -> Path:
    """Return where workers write; the process that owns the index takes their files from there."""
    return scratch(folder / "vectors")


@lru_cache(maxsize=1)
def _loaded(models: tuple[str, ...], prompts: tuple[Sides, ...], trust_remote_code: bool) -> Embedder:
    return load_embedder(models, prompts=list(prompts) or None, trust_remote_code=trust_remote_code)
