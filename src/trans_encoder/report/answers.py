"""One self-contained page about duplicates: groups to walk through, the pairs nearest to the decision, the curve."""

from collections.abc import Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.answers.found import Duplicates
from trans_encoder.files import atomic_file
from trans_encoder.report.page import asset, policy, templates

_GROUPS, _PAIRS = 200, 40  # shown on one page
_WIDTH, _HEIGHT = 320, 150
_DIFFERENCES = {"negation": "a negation", "numbers": "a number", "names": "a name", "roles": "exchanged words"}


def write_duplicates(found: Duplicates, path: Path, *, title: str) -> Path:
    """Write the page about what `find_duplicates` found."""
    with atomic_file(path) as temporary:
        temporary.write_text(render_duplicates(found, title=title), encoding="utf-8")
    return path


def render_duplicates(found: Duplicates, *, title: str) -> str:
    """Return the page as text."""
    pages = templates()
    style, script = (asset(pages, name) for name in ("style.css", "duplicates.js"))
    return pages.get_template("duplicates.html").render(
        found=found,
        title=title,
        groups=found.groups[:_GROUPS],
        pairs=_around_the_decision(found),
        flips=_kept_apart(found),
        differences=_DIFFERENCES,
        curve=_curve(found),
        width=_WIDTH,
        height=_HEIGHT,
        style=style,
        script=script,
        policy=policy(style, script),
        version=version("trans-encoder"),
    )


def _around_the_decision(found: Duplicates) -> Sequence[dict[str, Any]]:
    """Return the pairs nearest to the decision, half of them accepted."""
    same = np.flatnonzero(found.candidates["same"].to_numpy())
    other = np.flatnonzero(~found.candidates["same"].to_numpy())
    rows = [*same[-_PAIRS // 2 :], *other[: _PAIRS // 2]]
    pairs: Sequence[dict[str, Any]] = found.candidates.take(pa.array(rows, pa.int64())).to_pylist()
    return pairs


def _kept_apart(found: Duplicates) -> Sequence[dict[str, Any]]:
    """Return the pairs that a flip alone separates, the highest scores first."""
    flips = found.candidates.filter(pc.is_valid(found.candidates["differs"]))
    apart = flips.filter(pc.invert(flips["same"]))
    pairs: Sequence[dict[str, Any]] = apart.sort_by([("score", "descending")]).slice(0, _PAIRS).to_pylist()
    return pairs


def _curve(found: Duplicates) -> dict[str, str]:
    """Return the lines of the curve from scores to probabilities, and the band of its interval, as SVG paths."""
    probability = found.probability
    low, high = probability.scores[0], max(probability.scores[-1], 1.0)

    def points(values: Sequence[float]) -> list[tuple[float, float]]:
        span = max(high - low, 1e-9)
        return [
            (_WIDTH * (score - low) / span, _HEIGHT * (1 - value))
            for score, value in zip(probability.scores, values, strict=True)
        ]

    middle, bottom, top = (points(values) for values in (probability.probabilities, probability.low, probability.high))
    return {
        "line": _path(middle),
        "band": _path([*top, *reversed(bottom)]) + "Z",
        "low": f"{low:.2f}",
        "high": f"{high:.2f}",
    }


def _path(points: Sequence[tuple[float, float]]) -> str:
    steps = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    return "".join(steps + [f"L{x:.1f},{y:.1f}" for _, (x, y) in pairwise(points)])
