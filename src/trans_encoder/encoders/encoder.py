"""Anything that scores pairs, encoders of either kind among it: how one is loaded, and scoring over several ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from trans_encoder.config import Kind, PoolingMode
from trans_encoder.data import PairSet
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.encoders.loading import find_kind
from trans_encoder.encoders.onnx import Graph, OnnxBiEncoder, OnnxCrossEncoder, has_graph
from trans_encoder.encoders.prompts import Prompts
from trans_encoder.errors import ConfigurationError
from trans_encoder.ranks import shared_out


class Scorer(Protocol):
    """Anything that scores pairs: an encoder, or something that loads one when it is used."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """`bi` if its scores are cosines, `cross` if they are probabilities; anything else may use any scale."""

    def score(self, pairs: PairSet) -> NDArray[np.float32]:
        """Return one score for each pair."""


Encoder = BiEncoder | CrossEncoder


@overload
def load_encoder(name: str | Path, *, kind: Literal["bi"], **settings: Any) -> BiEncoder: ...


@overload
def load_encoder(name: str | Path, *, kind: Literal["cross"], **settings: Any) -> CrossEncoder: ...


@overload
def load_encoder(name: str | Path, *, kind: Kind | None = None, **settings: Any) -> Encoder: ...


def load_encoder(  # type: ignore[misc]  # the overloads are about `kind` alone
    name: str | Path,
    *,
    kind: Kind | None = None,
    pooling: PoolingMode | None = None,
    prompts: Prompts = None,
    max_tokens: int | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    fast: bool | None = None,
) -> Encoder:
    """Load a saved encoder of either kind, or an ONNX export of one; the kind is found from its files unless given.

    `pooling` and `prompts` are for bi-encoders: see `BiEncoder.load`. `fast=False` switches the CPU speed-ups off.
    """
    if has_graph(name):
        return _load_graph(Path(name), kind=kind, pooling=pooling, prompts=prompts, max_tokens=max_tokens)
    settings: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code, "fast": fast}
    if (kind or find_kind(name)) == "bi":
        return BiEncoder.load(name, pooling=pooling, prompts=prompts, max_tokens=max_tokens, **settings)
    if pooling is not None or prompts is not None:
        raise ConfigurationError(
            f"{name} is a cross-encoder, which reads both texts at once: pooling and prompts are for bi-encoders. "
            f"Leave them out, or give kind bi (--kind bi) to read it as one"
        )
    return CrossEncoder.load(name, max_tokens=max_tokens, **settings)


def _load_graph(
    folder: Path, *, kind: Kind | None, pooling: PoolingMode | None, prompts: Prompts, max_tokens: int | None
) -> OnnxBiEncoder | OnnxCrossEncoder:
    graph = Graph(folder.expanduser(), max_tokens=max_tokens)
    if kind not in (None, graph.note["kind"]):
        raise ConfigurationError(
            f"{folder} is the ONNX export of a {graph.note['kind']}-encoder and cannot be used as a {kind}-encoder"
        )
    if pooling is not None:
        raise ConfigurationError(f"{folder} is an ONNX export, whose pooling is in its graph; leave --pooling out")
    if graph.note["kind"] == "bi":
        return OnnxBiEncoder(graph, name=str(folder), prompts=prompts)
    if prompts is not None:
        raise ConfigurationError(f"{folder} is a cross-encoder; prompts are for bi-encoders, so leave them out")
    return OnnxCrossEncoder(graph, name=str(folder))


@dataclass(frozen=True)
class RankSharded:
    """A scorer that every rank holds: each scores a share of the pairs, so all of them must call it.

    A scorer whose scores depend on all the pairs (`needs_all_pairs`) scores them on every rank.
    """

    model: Scorer

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def kind(self) -> str:
        """The model's kind."""
        return self.model.kind

    def score(self, pairs: PairSet) -> NDArray[np.float32]:
        """Return one score for each pair, in order, on every rank."""
        if getattr(self.model, "needs_all_pairs", False):
            return self.model.score(pairs)
        return shared_out(lambda rows: self.model.score(pairs.between(rows.start, rows.stop)), count=len(pairs))
