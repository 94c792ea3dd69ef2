"""What an index embeds with: one bi-encoder, or a team whose score is the mean of the members' cosines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trans_encoder.encoders import find_kind, load_encoder
from trans_encoder.encoders.loading import checked_name, explained, fingerprint
from trans_encoder.encoders.onnx import has_graph
from trans_encoder.encoders.prompts import Prompt, Prompts, Side, choose_prompts, search_prompts
from trans_encoder.errors import ConfigurationError, DataError

Vectors = npt.NDArray[np.float32]
Sides = tuple[str | None, str | None]
"""The prompts that were chosen for queries and for the texts of an index; None is the model's own."""
EachPrompts = Prompts | Sequence[Prompts]
"""Prompts for all models, or a list (not a tuple: that is two sides) with one entry for each."""
QUERY: Side = 0
ROW: Side = 1


class TextEncoder(Protocol):
    """Anything that embeds texts and can tell itself apart from others: a `BiEncoder`, or a static model."""

    name: str
    prompts: tuple[Prompt, Prompt]
    """Put before queries and before the texts of an index."""

    def encode(self, texts: Sequence[str], *, side: Side = ROW) -> Vectors:
        """Return one embedding for each text, with the prompt of a query or of a text of an index."""

    def fingerprint(self) -> dict[str, str]:
        """Tell apart the model that was loaded from others."""


@dataclass(frozen=True)
class Embedder:
    """One or several encoders; the inner product of two of its vectors is the mean of the encoders' cosines."""

    encoders: tuple[TextEncoder, ...]
    chosen: tuple[Sides, ...] = field(default=())
    """The prompts that were chosen for each; none if empty."""

    @property
    def names(self) -> list[str]:
        """The encoders' names."""
        return [encoder.name for encoder in self.encoders]

    @cached_property
    def fingerprints(self) -> list[dict[str, str]]:
        """What tells the vectors of each encoder apart from others: its files, and the prompt before the texts."""
        return [{**encoder.fingerprint(), **_mark(encoder.prompts[ROW])} for encoder in self.encoders]

    @property
    def asks_otherwise(self) -> bool:
        """Whether queries have another prompt than the texts of an index."""
        return any(encoder.prompts[QUERY] != encoder.prompts[ROW] for encoder in self.encoders)

    def encode(self, texts: Sequence[str], *, side: Side = ROW) -> Vectors:
        """Return one vector of length one for each text of an index, or for each query."""
        # Unit vectors side by side, each divided by the root of their number: inner products become means of cosines.
        parts = [_unit(_sound(encoder.encode(texts, side=side), texts, encoder.name)) for encoder in self.encoders]
        return np.concatenate(parts, axis=1) / np.float32(np.sqrt(len(parts)))


def load_embedder(
    names: Sequence[str], *, prompts: EachPrompts = None, device: str | None = None, trust_remote_code: bool = False
) -> Embedder:
    """Load the encoders of an index, in the given order.

    `prompts` is as in `BiEncoder.load`, queries being the first texts and those of an index the second; a list has one
    entry for each model. Without a choice a model's prompts for queries and documents apply, if it has no default one.
    """
    if not names:
        raise ConfigurationError("no model was given; give a bi-encoder's folder or hub name with --model")
    chosen = sides_of(prompts, len(names))
    loading: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    return Embedder(tuple(_load(name, sides, **loading) for name, sides in zip(names, chosen, strict=True)), chosen)


def sides_of(prompts: EachPrompts, count: int) -> tuple[Sides, ...]:
    """Return the prompts of both sides for each of `count` models."""
    each: list[Any] = prompts if isinstance(prompts, list) else [prompts] * count
    if len(each) != count:
        raise ConfigurationError(f"prompts are given for {len(each)} models, but there are {count}; give one for each")
    return tuple(one if isinstance(one, tuple) else (one, one) for one in each)


def _load(name: str, sides: Sides, *, device: str | None, trust_remote_code: bool) -> TextEncoder:
    path = name if has_graph(name) else checked_name(name, trust_remote_code=trust_remote_code)
    if find_kind(path) != "bi":
        raise ConfigurationError(
            f"{name} is a cross-encoder, which scores pairs and cannot embed texts; give a bi-encoder with --model and "
            f"this one with --cross"
        )
    if _is_static(path):
        return StaticEncoder(path, name=name, prompts=sides)
    encoder = load_encoder(name, kind="bi", device=device, trust_remote_code=trust_remote_code)
    encoder.use_prompts(_completed(sides, encoder.model))
    return encoder


def _completed(sides: Sides, model: Any) -> Sides:
    """Put a model's own prompts for queries and documents where none was chosen."""
    own = search_prompts(model)
    return sides[QUERY] or own[QUERY], sides[ROW] or own[ROW]


def _mark(prompt: Prompt) -> dict[str, str]:
    return {name: value for name, value in (("prompt", prompt.text), ("route", prompt.task)) if value}


class StaticEncoder:
    """A static embedding model (model2vec, sentence-transformers' StaticEmbedding): no transformer, so no batching."""

    def __init__(self, path: str, *, name: str, prompts: Sides = (None, None)) -> None:
        """Load it on the CPU."""
        from sentence_transformers import SentenceTransformer

        with explained(name):
            self._model = SentenceTransformer(path, device="cpu", local_files_only=True)
        self.name = name
        self.prompts = choose_prompts(self._model, _completed(prompts, self._model), name=name)

    def encode(self, texts: Sequence[str], *, side: Side = ROW) -> Vectors:
        """Return one embedding for each text."""
        prompt = self.prompts[side].text
        found: Any = self._model.encode(list(texts), prompt=prompt, batch_size=1024, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)

    def fingerprint(self) -> dict[str, str]:
        """Tell apart the model that was loaded from others."""
        return fingerprint(self.name)


def _is_static(path: str) -> bool:
    import json
    from pathlib import Path

    modules = Path(path) / "modules.json"
    if not modules.is_file():
        return False
    with explained(path):
        first = json.loads(modules.read_text(encoding="utf-8"))[0]
        return str(first.get("type", "")).endswith("StaticEmbedding")


def _sound(vectors: Vectors, texts: Sequence[str], name: str) -> Vectors:
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise DataError(
            f"{name} gives embeddings that are no numbers (NaN or infinite), such as for "
            f"{texts[int(bad.argmax())][:60]!r}; its weights may be damaged: download it again, or give another model"
        )
    return vectors


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
