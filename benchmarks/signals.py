"""Signals of an encoder's quality that need no labels: each a number (x100) made from its scores of the probes."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from probes import LEVELS, ProbeScores

from trans_encoder.data.pairs import Scores
from trans_encoder.evaluation.metrics import spearman

_BINS = 20


def teacher_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with the teachers on pairs not trained on: what was learnt rather than learnt by heart."""
    return _agreement(probed.plain, probed.teacher)


def partner_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement of a member's bi- and cross-encoder: they err differently, so they meet near the truth."""
    return _agreement(probed.plain, probed.partner)


def others_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with the other members, for the same reason; None in a team of one."""
    return _agreement(probed.plain, probed.others)


def start_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with the start: an encoder that forgot what the start knew has drifted or collapsed."""
    return _agreement(probed.plain, probed.start)


def overlap_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with the shared wording: a poor judge, but one whose errors no training shares."""
    return _agreement(probed.plain, probed.overlap)


def agreement_beyond_overlap(probed: ProbeScores) -> float | None:
    """Rank agreement with the start on what shared wording does not explain: whether its finer knowledge is kept."""
    if probed.start is None:
        return None
    with_start, own, its = (
        (_agreement(one, other) or 0.0) / 100
        for one, other in (
            (probed.plain, probed.start),
            (probed.plain, probed.overlap),
            (probed.start, probed.overlap),
        )
    )
    unexplained = np.sqrt((1 - own**2) * (1 - its**2))
    return 100 * float((with_start - own * its) / unexplained) if unexplained > 0 else 0.0


def swap_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with itself under swapped order: likeness has no order (a bi-encoder always has 100)."""
    return _agreement(probed.plain, probed.swapped)


def edit_agreement(probed: ProbeScores) -> float | None:
    """Rank agreement with itself under a light edit: a score that such an edit upsets rests on noise."""
    return _agreement(probed.plain, probed.edited)


def probe_order(probed: ProbeScores) -> float | None:
    """Share of a sentence's probes in the right order: more damage must mean a lower score."""
    if probed.probes is None:
        return None
    upper, lower = np.triu_indices(len(LEVELS), k=1)
    return _share_above(probed.probes[upper], probed.probes[lower])


def probe_scale(probed: ProbeScores) -> float | None:
    """Rank agreement of all probes with their levels: a score must mean the same for every sentence."""
    if probed.probes is None:
        return None
    rows, columns = probed.probes.shape
    return _agreement(probed.probes.reshape(-1), -np.repeat(np.arange(rows), columns))


def content_weight(probed: ProbeScores) -> float | None:
    """Share of sentences that mind losing their rarest word more than their commonest: there the meaning is."""
    return None if probed.losses is None else _share_above(*probed.losses)


def contrast(probed: ProbeScores) -> float | None:
    """How far unrelated sentences are from a perfect score: near 0 all embeddings point one way (anisotropy)."""
    return None if probed.probes is None else 100 * float(1 - probed.probes[-1].mean())


def spread(probed: ProbeScores) -> float:
    """Entropy of the scores over [0, 1], 100 if all are used alike: an encoder that says little knows little."""
    counts, _ = np.histogram(probed.plain.clip(0, 1), bins=_BINS, range=(0, 1))
    shares = counts[counts > 0] / counts.sum()
    return 100 * float(-(shares * np.log(shares)).sum() / np.log(_BINS))


class Signal(NamedTuple):
    """How a signal is measured, and the probes that it needs beside the held-out pairs as they are."""

    measure: Callable[[ProbeScores], float | None]
    asks: str = "plain"


SIGNALS: Mapping[str, Signal] = {
    "teacher": Signal(teacher_agreement),
    "partner": Signal(partner_agreement),
    "others": Signal(others_agreement),
    "start": Signal(start_agreement),
    "start beyond overlap": Signal(agreement_beyond_overlap),
    "overlap": Signal(overlap_agreement),
    "swap": Signal(swap_agreement, asks="swapped"),
    "edit": Signal(edit_agreement, asks="edited"),
    "probe order": Signal(probe_order, asks="probes"),
    "probe scale": Signal(probe_scale, asks="probes"),
    "content": Signal(content_weight, asks="losses"),
    "contrast": Signal(contrast, asks="probes"),
    "spread": Signal(spread),
}
"""Every signal by its name; a signal that lacks what it compares with is None."""


def parts_for(signals: Collection[str]) -> set[str]:
    """Return the parts of the probes that signals need."""
    return {SIGNALS[name].asks for name in signals}


def measure_signals(probed: ProbeScores) -> dict[str, float | None]:
    """Return every signal of an encoder's scores."""
    return {name: signal.measure(probed) for name, signal in SIGNALS.items()}


def _agreement(scores: npt.NDArray[Any], reference: npt.NDArray[Any] | None) -> float | None:
    """Spearman's rho x100; 0 if either says the same of every pair."""
    if reference is None:
        return None
    return spearman(scores, reference) if np.ptp(scores) > 0 and np.ptp(reference) > 0 else 0.0


def _share_above(upper: Scores, lower: Scores) -> float:
    """Share x100 of places where the first is above the second; ties count half."""
    return 100 * float(((upper > lower) + 0.5 * (upper == lower)).mean())
