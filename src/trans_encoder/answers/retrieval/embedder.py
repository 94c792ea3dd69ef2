"""What an index embeds with: one bi-encoder, or a team whose score is the mean of the members' cosines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trans_encoder.encoders import find_kind, load_encoder
from trans_encoder.encoders.loading import checked_name, explained, fingerprint
from trans_encoder.encoders.onnx import has_graph
from trans_encoder.errors import ConfigurationError

Vectors = npt.NDArray[np.float32]


class TextEncoder(Protocol):
    """Anything that embeds texts and can tell itself apart from others: a `BiEncoder`, or a static model."""

    name: str

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one embedding for each text."""

    def fingerprint(self) -> dict[str, str]:
        """Tell apart the model that was loaded from others."""


@dataclass(frozen=True)
class Embedder:
    """One or several encoders; the inner product of two of its vectors is the mean of the encoders' cosines."""

    encoders: tuple[TextEncoder, ...]

    @property
    def names(self) -> list[str]:
        """The encoders' names."""
        return [encoder.name for encoder in self.encoders]

    @cached_property
    def fingerprints(self) -> list[dict[str, str]]:
        """What tells each encoder apart from others."""
        return [encoder.fingerprint() for encoder in self.encoders]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one vector of length one for each text."""
        # Unit vectors side by side, each divided by the root of their number: inner products become means of cosines.
        parts = [_unit(encoder.encode(texts)) for encoder in self.encoders]
        return np.concatenate(parts, axis=1) / np.float32(np.sqrt(len(parts)))


def load_embedder(names: Sequence[str], *, device: str | None = None, trust_remote_code: bool = False) -> Embedder:
    """Load the encoders of an index, in the given order."""
    if not names:
        raise ConfigurationError("no model was given; give a bi-encoder's folder or hub name with --model")
    return Embedder(tuple(_load(name, device=device, trust_remote_code=trust_remote_code) for name in names))


def _load(name: str, *, device: str | None, trust_remote_code: bool) -> TextEncoder:
    path = name if has_graph(name) else checked_name(name, trust_remote_code=trust_remote_code)
    if find_kind(path) != "bi":
        raise ConfigurationError(
            f"{name} is a cross-encoder, which scores pairs and cannot embed texts; give a bi-encoder with --model and "
            f"this one with --cross"
        )
    if _is_static(path):
        return StaticEncoder(path, name=name)
    return load_encoder(name, kind="bi", device=device, trust_remote_code=trust_remote_code)


class StaticEncoder:
    """A static embedding model (model2vec, sentence-transformers' StaticEmbedding): no transformer, so no batching."""

    def __init__(self, path: str, *, name: str) -> None:
        """Load it on the CPU."""
        from sentence_transformers import SentenceTransformer

        with explained(name):
            self._model = SentenceTransformer(path, device="cpu", local_files_only=True)
        self.name = name

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one embedding for each text."""
        found: Any = self._model.encode(list(texts), batch_size=1024, show_progress_bar=False)
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


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
