"""The flip test: whether a model notices that a small change altered the meaning of a text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trans_encoder.data import PairSet
from trans_encoder.encoders import Prompts, Scorer, load_encoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.flips import KINDS, Flip, make_flips, written_flips
from trans_encoder.evaluation.metrics import auc


@dataclass(frozen=True)
class FlipScore:
    """How a model rates the paraphrases and the flips of one kind, the same texts in both."""

    cases: int
    right: float
    """Cases where the paraphrase scores above the flip, in percent; a tie counts half, so chance is 50."""
    auc: float
    """Paraphrases against flips over all texts, x100: whether one threshold tells them apart."""
    paraphrase: float
    """The mean score of paraphrases."""
    flip: float
    """The mean score of flips."""


@dataclass(frozen=True)
class ProbeResult:
    """What the flip test found out about one model."""

    model: str
    kind: str
    written: Mapping[str, FlipScore]
    """On the hand-written cases: a figure for each kind of flip, and `all`."""
    own: Mapping[str, FlipScore]
    """On cases that rules made of the user's text, without the kinds that nothing was made of."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def probe(
    model: Scorer | str | Path,
    *,
    texts: Iterable[str] = (),
    limit: int = 100,
    seed: int = 0,
    prompts: Prompts = None,
) -> ProbeResult:
    """Test whether a bi- or cross-encoder tells flips from paraphrases.

    Flips are negations, swapped roles, and changed numbers, names and units. Besides the hand-written cases, up to
    `limit` of each kind are made of `texts` by rules, which are for English. A bi-encoder that is given by its name can
    be given `prompts`, as `BiEncoder.load` takes them.
    """
    if prompts is not None and not isinstance(model, str | Path):
        raise ConfigurationError("prompts are for a model that is loaded here; load the encoder with them instead")
    encoder = load_encoder(model, prompts=prompts) if isinstance(model, str | Path) else model
    given = list(texts)
    made = make_flips(given, limit=limit, seed=seed)
    if given and not made:
        raise DataError(
            f"no rule could change any of the {len(given):,} texts; they need English sentences with negations, "
            "names, numbers or units. Leave the text out to use the hand-written cases alone"
        )
    written = written_flips()
    scores = flip_scores(encoder, [*written, *made])
    return ProbeResult(
        encoder.name,
        encoder.kind,
        _by_kind(written, scores[: len(written)]),
        _by_kind(made, scores[len(written) :]),
    )


def flip_accuracy(encoder: Scorer) -> float | None:
    """Return how often a model scores the paraphrase above the flip in the hand-written cases, in percent.

    None if it gives scores that are not finite; whoever needs its scores says so.
    """
    scores = flip_scores(encoder, written_flips())
    return _figure(scores).right if np.isfinite(scores).all() else None


def flip_scores(encoder: Scorer, flips: Sequence[Flip]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return two scores for each case: its text against the paraphrase, and against the flip."""
    texts = [case.text for case in flips]
    pairs = PairSet.from_lists(texts + texts, [case.paraphrase for case in flips] + [case.flip for case in flips])
    return np.asarray(encoder.score(pairs), dtype=np.float64).reshape(2, -1).T


def _by_kind(flips: Sequence[Flip], scores: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, FlipScore]:
    kinds = np.array([case.kind for case in flips])
    parts: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {
        kind: scores[kinds == kind] for kind in KINDS if (kinds == kind).any()
    }
    if len(flips):
        parts["all"] = scores
    return {kind: _figure(part) for kind, part in parts.items()}


def _figure(scores: np.ndarray[Any, np.dtype[np.float64]]) -> FlipScore:
    same, flipped = scores.T
    gold = np.repeat([1, 0], len(scores))
    return FlipScore(
        cases=len(scores),
        right=100 * float(np.mean((same > flipped) + 0.5 * (same == flipped))),
        auc=auc(np.concatenate([same, flipped]), gold),
        paraphrase=float(same.mean()),
        flip=float(flipped.mean()),
    )
