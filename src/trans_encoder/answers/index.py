"""An index: rows of a file with their ids and columns, every distinct text embedded once, kept in a folder."""

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.answers.objects import is_url
from trans_encoder.answers.probability import Probability, estimate_probability
from trans_encoder.answers.published import located, writing
from trans_encoder.answers.retrieval import (
    DenseIndex,
    EachPrompts,
    Embedded,
    Embedder,
    LexicalIndex,
    Positions,
    Sides,
    distinct,
    load_embedder,
    sides_of,
)
from trans_encoder.answers.searching import Hit
from trans_encoder.answers.store import (
    MANIFEST,
    PENDING,
    Manifest,
    clean_up,
    commit,
    embed_texts,
    files_of,
    locked,
    open_files,
    write_cache,
)
from trans_encoder.data import ID, TEXT, Corpus
from trans_encoder.encoders import BiEncoder, CrossEncoder, Cuts, count_text_cuts
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.files import read_json, write_json
from trans_encoder.runs import LOCK, Engine

PLACE = "__text__"
"""The column of stored rows that gives the position of their text."""


@dataclass(frozen=True)
class IndexReport:
    """What became of the rows that were given to an index."""

    rows: int
    """All rows that the index has now."""
    texts: int
    """All distinct texts that it has."""
    added: int
    changed: int
    unchanged: int
    removed: int
    embedded: int
    """Texts that had to be embedded."""
    cuts: dict[str, Cuts] = field(default_factory=dict)
    """What each transformer cut of these texts, at its own length."""


@dataclass(eq=False)
class Index:
    """An index folder, opened; vectors and texts are mapped from its files."""

    path: Path
    manifest: Manifest
    embedded: Embedded
    report: IndexReport | None = None
    """What `build_index` did, if it made this object."""
    trust_remote_code: bool = False
    prompts: tuple[Sides, ...] = ()
    """The prompts that its models are loaded with."""
    _embedder: Embedder | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: str | Path, *, prompts: EachPrompts = None, trust_remote_code: bool = False) -> Self:
        """Open an index, in a folder or published at a URL (see `published`); its models are loaded when needed.

        `prompts` replaces the prompts of queries that the index was made with: `(query, None)`, or a list with one such
        pair for each model. The prompt of its texts cannot be replaced; another one is refused.
        """
        folder = located(path)
        manifest = Manifest.read(folder)
        try:
            embedded = _embedded(folder, manifest)
        except DataError:
            if (newer := Manifest.read(folder)) == manifest:
                raise
            # A writer replaced the files in between.
            manifest, embedded = newer, _embedded(folder, newer)
        given, kept = (sides_of(each, len(manifest.models)) for each in (prompts, list(manifest.prompts) or None))
        chosen = tuple((new[0] or old[0], new[1] or old[1]) for new, old in zip(given, kept, strict=True))
        return cls(folder, manifest, embedded, trust_remote_code=trust_remote_code, prompts=chosen)

    def __len__(self) -> int:
        return len(self.embedded)

    @property
    def embedder(self) -> Embedder:
        """The models of the index, refused if they are no longer those that embedded it."""
        if self._embedder is None:
            loading: dict[str, Any] = {"prompts": list(self.prompts), "trust_remote_code": self.trust_remote_code}
            embedder = load_embedder(self.manifest.models, **loading)
            _refuse_other_models(self.path, self.manifest, embedder)
            self._embedder = embedder
        return self._embedder

    @cached_property
    def dense(self) -> DenseIndex:
        """Search by vectors."""
        name = "clusters.npz"
        keep = partial(write_cache, self.path, self.manifest, name)
        return DenseIndex(self.embedded.vectors, cache=self.path / self.manifest.cache(name), keep=keep)

    @cached_property
    def lexical(self) -> LexicalIndex:
        """Search by words."""
        return LexicalIndex(self.embedded.texts)

    @cached_property
    def probability(self) -> Probability:
        """From scores to probabilities, estimated once for what the index holds and kept with it."""
        try:
            return Probability.from_dict(read_json(self.path / self.manifest.cache("probability.json")))
        except (OSError, ValueError, KeyError, TypeError):  # not there yet, or damaged
            found = estimate_probability(self.embedded, self.embedder, self.dense)
        write_cache(self.path, self.manifest, "probability.json", lambda file: write_json(file, found.to_dict()))
        return found

    def search(
        self, text: str, *, top: int = 10, where: str | None = None, cross: CrossEncoder | None = None
    ) -> list[Hit]:
        """Return the rows nearest to a text, best first; see `searching.search`."""
        from trans_encoder.answers.searching import search

        return search(self, text, top=top, where=where, cross=cross)


def is_index(place: str | Path) -> bool:
    """Return whether a place is an index or a URL, which can be nothing else."""
    return is_url(place) or (Path(place) / MANIFEST).is_file()


def build_index(
    corpus: Corpus | str | Path,
    out: str | Path,
    *,
    models: Sequence[str] | Embedder | None = None,
    prompts: EachPrompts = None,
    reindex: bool = False,
    replace: bool = False,
    engine: Engine | None = None,
    trust_remote_code: bool = False,
) -> Index:
    """Make an index of a corpus, or add its rows to one that is there; only texts that are new to it are embedded.

    A row whose id is there already replaces the old one; with `replace`, rows that the corpus lacks are removed. An
    index keeps to its models: others, other versions of them, or other `prompts` (see `load_embedder`) before its texts
    are refused unless `reindex` asks to embed everything again. An `engine` (see `make_engine`) embeds in workers side
    by side, which load the models by their names. Stopped at any point, the same call continues. `out` may be a URL of
    an object storage, where the index is published as a whole when it is complete.
    """
    if is_url(out):
        making: dict[str, Any] = {"models": models, "prompts": prompts, "reindex": reindex, "replace": replace}
        with writing(str(out)) as work:
            made = build_index(corpus, work.folder, **making, engine=engine, trust_remote_code=trust_remote_code)
            _ = made.probability  # published with the index: every reader needs it
            work.publish(files_of(made.path, made.manifest))
        return made
    folder = Path(out)
    rows = corpus if isinstance(corpus, Corpus) else Corpus.read(corpus)
    with locked(folder):
        old = Manifest.read(folder) if (folder / MANIFEST).exists() else None
        embedder = _embedder(models, old, prompts, trust_remote_code=trust_remote_code)
        if old is None:
            _refuse_foreign(folder)
            old = Manifest(embedder.names, embedder.fingerprints, rows.id_column, embedder.chosen)
        elif not reindex:
            _refuse_other_models(folder, old, embedder)
        same = old.is_of(embedder)
        before = _embedded(folder, old) if old.generation else None
        table, counts = merged(before, rows, replace=replace)
        texts, place, new = _texts(before if same else None, table)
        if counts["added"] or counts["changed"] or counts["removed"] or not same:
            about: dict[str, Any] = {"models": embedder.names, "prompts": embedder.chosen}
            manifest = dataclasses.replace(old, fingerprints=embedder.fingerprints, **about)
            loading: dict[str, Any] = {"engine": engine, "trust_remote_code": trust_remote_code}
            shards = embed_texts(folder, new.to_pylist(), embedder, manifest=manifest, **loading)
            stored = table.drop_columns([TEXT]).append_column(PLACE, pa.array(place))
            kept = old.shards if same else ()
            manifest = commit(folder, manifest, stored, pa.table({TEXT: texts}), (*kept, *shards))
        else:
            manifest = dataclasses.replace(old, prompts=embedder.chosen)
            if manifest != old:  # another prompt for queries
                write_json(folder / MANIFEST, asdict(manifest))
            clean_up(folder, manifest)
    transformers = [encoder for encoder in embedder.encoders if isinstance(encoder, BiEncoder)] if len(new) else []
    cuts = {encoder.name: count_text_cuts(encoder, new) for encoder in transformers}
    report = IndexReport(len(table), len(texts), **counts, embedded=len(new), cuts=cuts)
    return Index(folder, manifest, _embedded(folder, manifest), report, trust_remote_code, embedder.chosen, embedder)


def _embedder(
    models: Sequence[str] | Embedder | None, old: Manifest | None, prompts: EachPrompts, *, trust_remote_code: bool
) -> Embedder:
    if isinstance(models, Embedder):
        return models
    if old is not None and prompts is None and (not models or list(models) == old.models):
        prompts = list(old.prompts) or None
    if models:
        return load_embedder(list(models), prompts=prompts, trust_remote_code=trust_remote_code)
    if old is None:
        raise ConfigurationError(
            "no model was given to embed with; give a bi-encoder's folder or hub name with --model, such as "
            "--model sentence-transformers/all-MiniLM-L6-v2"
        )
    return load_embedder(old.models, prompts=prompts, trust_remote_code=trust_remote_code)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something else than an index that was begun."""
    ours = (LOCK, PENDING, MANIFEST, "vectors", "rows-", "texts-", "cache-")
    others = [file.name for file in folder.iterdir() if not file.name.startswith(ours)]
    if others:
        raise ConfigurationError(f"{folder} holds other files ({', '.join(sorted(others)[:5])}); give a new folder")


def _refuse_other_models(folder: Path, manifest: Manifest, embedder: Embedder) -> None:
    if not manifest.is_of(embedder):
        before = _described(manifest.models, manifest.fingerprints)
        now = _described(embedder.names, embedder.fingerprints)
        raise ConfigurationError(
            f"{folder} was embedded with {before}"
            + (", which has changed since" if before == now else f", not with {now}")
            + "; vectors of different models or prompts cannot be mixed. Give what it was made with, or embed "
            "everything again with --reindex (reindex=True)"
        )


def _described(names: Sequence[str], fingerprints: Sequence[dict[str, str]]) -> str:
    marks = [f" with the prompt {mark['prompt']!r}" if "prompt" in mark else "" for mark in fingerprints]
    return " and ".join(f"{name}{mark}" for name, mark in zip(names, marks, strict=True))


def _embedded(folder: Path, manifest: Manifest) -> Embedded:
    rows, texts, vectors = open_files(folder, manifest)
    place = np.asarray(rows[PLACE].to_numpy(), dtype=np.int64)
    return Embedded(rows.drop_columns([PLACE]), place, texts[TEXT], vectors)


def merged(before: Embedded | None, corpus: Corpus, *, replace: bool) -> tuple[pa.Table, dict[str, int]]:
    """Return the rows of an index and a corpus together, with texts; a row of the corpus replaces its namesake."""
    if before is None:
        return corpus.table, {"added": len(corpus), "changed": 0, "unchanged": 0, "removed": 0}
    old = before.rows.append_column(TEXT, before.texts.take(pa.array(before.place)))
    known = pc.is_in(corpus.ids, value_set=old[ID].combine_chunks())
    shared = corpus.table.filter(known)
    position = {name: row for row, name in enumerate(before.ids)} if len(shared) else {}
    matches = old.take(pa.array([position[name] for name in shared[ID].to_pylist()], pa.int64()))
    same_text = np.asarray(pc.equal(matches[TEXT], shared[TEXT]).to_numpy(zero_copy_only=False), dtype=bool)
    if corpus.id_column is None and not replace and not same_text.all():
        name = shared[ID][int(np.argmin(same_text))].as_py()
        raise DataError(
            f"row {name!r} of the index has another text than row {name!r} of the file, and rows are known by their "
            "line numbers alone; name a column of ids with --id (id=...)"
        )
    same = same_text & _equal_columns(matches, shared)
    replaced = shared[ID].filter(pa.array(~same))
    kept = old.filter(pc.invert(pc.is_in(old[ID], value_set=replaced.combine_chunks())))
    added = corpus.table.filter(pc.invert(known))
    gone = len(old) - len(shared) if replace else 0
    counts = {"added": len(added), "changed": len(replaced), "unchanged": int(same.sum()), "removed": gone}
    if replace:
        return corpus.table, counts
    try:
        table = pa.concat_tables([kept, shared.filter(pa.array(~same)), added], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"the columns of the new rows do not go with those of the index: {error}") from error
    return table, counts


def _equal_columns(left: pa.Table, right: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell for each row of two tables whether their other columns are equal."""
    names = [name for name in right.column_names if name not in (ID, TEXT)]
    if set(names) != set(left.column_names) - {ID, TEXT}:
        return np.zeros(len(left), dtype=bool)
    pairs = zip(left.select(names).to_pylist(), right.select(names).to_pylist(), strict=True)
    return np.array([first == second for first, second in pairs], dtype=bool)


def _texts(before: Embedded | None, table: pa.Table) -> tuple[pa.ChunkedArray, Positions, pa.Array]:
    """Return all texts, the position of each row's, and those that are not embedded yet; these come last."""
    if before is None:
        texts, place = distinct(table[TEXT])
        return pa.chunked_array([texts]), place, texts
    all_texts = pa.chunked_array([*before.texts.chunks, *table[TEXT].chunks], pa.large_string())
    # Those of the index come first and are distinct, so they keep their positions.
    texts, place = distinct(all_texts)
    return pa.chunked_array([texts]), place[len(before.texts) :], texts.slice(len(before.texts))
