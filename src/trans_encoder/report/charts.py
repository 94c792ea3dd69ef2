"""The geometry of the report's charts; `templates/charts.svg` draws them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from trans_encoder.report.labels import Distribution
from trans_encoder.report.wording import number
from trans_encoder.runs import ValidatedLine

WIDTH = 360
"""Every chart is drawn this wide and scales with its place on the page: readable on a phone, never coarse."""

Point = tuple[float, float]
_LAYERS = 6


@dataclass(frozen=True)
class Scale:
    """A linear map from values to positions."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start), 1)

    @property
    def ticks(self) -> list[tuple[str, float]]:
        """Return the labels and positions of four to eight round values."""
        step = _round_step((self.high - self.low) / 4)
        digits = max(0, -floor(log10(step)))
        values = [step * k for k in range(ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9) + 1)]
        return [(number(value, digits), self(value)) for value in values]


def _round_step(raw: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most `raw`."""
    power = 10.0 ** floor(log10(raw))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= raw * (1 + 1e-9))


def scale_around(values: Iterable[float], *, start: float, stop: float, least: float = 1.0) -> Scale:
    """Return a scale that holds all values with a margin and spans at least `least`."""
    finite = [value for value in values if isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = max((high - low) * 0.08, (least - (high - low)) / 2)
    return Scale(low - margin, high + margin, start, stop)


def polyline(points: Sequence[Point]) -> str:
    """Return the path through the points."""
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


@dataclass(frozen=True)
class Dot:
    """One score with its interval."""

    role: str
    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class DotChart:
    """Scores with their intervals: for each row its name, its height on the page and its placed dots."""

    x: Scale
    rows: list[tuple[str, float, list[tuple[Dot, float]]]]
    height: float


def dot_chart(rows: Sequence[tuple[str, Sequence[Dot]]]) -> DotChart:
    """Place the dots of each named row under each other."""
    gap = 11
    x = scale_around(
        (end for _, dots in rows for dot in dots for end in (dot.low, dot.high)), start=92, stop=WIDTH - 14
    )
    placed, top = [], 8.0
    for name, dots in rows:
        height = gap * len(dots) + 14
        offsets = [(dot, top + 12.5 + gap * place) for place, dot in enumerate(dots)]
        placed.append((name, top + height / 2, offsets))
        top += height
    return DotChart(x, placed, top + 24)


@dataclass(frozen=True)
class Segment:
    """One training in the score chart: its line, its judged checkpoints and the one that was kept."""

    kind: str
    path: str
    marks: list[tuple[float, float, str]]
    kept: tuple[float, float, str]


@dataclass(frozen=True)
class ScoreChart:
    """Scores of the checkpoints over all trainings of one member, in the order of time."""

    x: Scale
    y: Scale
    segments: list[Segment]
    cycles: list[tuple[int, float, float]]
    start: float | None
    height: int = 240


def kept_place(training: Sequence[ValidatedLine], *, keep_last: bool) -> int:
    """Return the place of the checkpoint that was kept: the last, or the best and the first of equals."""
    return len(training) - 1 if keep_last else max(range(len(training)), key=lambda at: (training[at].score, -at))


def score_chart(
    trainings: Sequence[Sequence[ValidatedLine]], *, start: float | None, keep_last: bool = False
) -> ScoreChart:
    """Lay the trainings of one member side by side: the steps of each begin where the last one ended."""
    total = sum(training[-1].step for training in trainings)
    scores = [checkpoint.score for training in trainings for checkpoint in training]
    scores += [] if start is None else [start]
    x, y = Scale(0, total, 40, WIDTH - 10), scale_around(scores, start=ScoreChart.height - 34, stop=22)
    segments, ends, done = [], dict[int, list[float]](), 0
    for training in trainings:
        marks = [(x(done + one.step), y(one.score), _describe(one)) for one in training]
        kept = marks[kept_place(training, keep_last=keep_last)]
        segments.append(Segment(training[0].kind, polyline([mark[:2] for mark in marks]), marks, kept))
        ends.setdefault(training[0].cycle, []).extend((x(done), x(done + training[-1].step)))
        done += training[-1].step
    cycles = [(cycle, min(places), max(places)) for cycle, places in ends.items()]
    return ScoreChart(x, y, segments, cycles, None if start is None else y(start))


def _describe(checkpoint: ValidatedLine) -> str:
    return f"cycle {checkpoint.cycle}, {checkpoint.kind}, step {checkpoint.step:,}: {checkpoint.score:.2f}"


@dataclass(frozen=True)
class Ridge:
    """One distribution in a ridge chart."""

    name: str
    kind: str
    baseline: float
    path: str
    mean: float
    text: str


@dataclass(frozen=True)
class RidgeChart:
    """One teacher's distributions, one above the other."""

    x: Scale
    ridges: list[Ridge]
    height: float


def ridge_chart(distributions: Sequence[Distribution], *, low: float, high: float) -> RidgeChart:
    """Stack distributions over the range that holds all scores."""
    gap, top = 36, 56
    x = Scale(low, high, 78, WIDTH - 12)
    ridges = []
    for place, one in enumerate(distributions):
        baseline, width, peak = top + place * gap, (high - low) / len(one.density), max(one.density) or 1.0
        outline = [
            (x(low + (bin_ + 0.5) * width), round(baseline - value / peak * (top - 10), 1))
            for bin_, value in enumerate(one.density)
        ]
        path = polyline([(x(low), baseline), *outline, (x(high), baseline)]) + "Z"
        text = f"{one.labels.name}: mean {one.mean:.3f}, standard deviation {one.deviation:.3f}"
        ridges.append(Ridge(one.labels.name, one.labels.kind, baseline, path, x(one.mean), text))
    return RidgeChart(x, ridges, top + (len(ridges) - 1) * gap + 30)


@dataclass(frozen=True)
class Scatter:
    """The scores of two teachers for a sample of pairs."""

    title: str
    first: str
    second: str
    rho: float
    x: Scale
    y: Scale
    layers: list[str]
    comparable: bool = True
    """Whether both axes have the same meaning, so that equal values say something."""
    height: int = 320

    @property
    def diagonal(self) -> str:
        """Return the line on which both scores are equal, as far as it can be seen."""
        if not self.comparable:
            return ""
        low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
        return polyline([(self.x(value), self.y(value)) for value in (low, high)]) if low < high else ""


def scatter(
    points: Sequence[Point], *, title: str, axes: tuple[str, str], rho: float, comparable: bool = True
) -> Scatter:
    """Place points between two axes.

    Dots are drawn as a few paths, not as single circles: the page stays small, and where layers overlap it gets darker.
    """
    x = scale_around([one for one, _ in points], start=44, stop=WIDTH - 12, least=0.05)
    y = scale_around([other for _, other in points], start=Scatter.height - 40, stop=12, least=0.05)
    dots = [f"M{x(one):g},{y(other):g}h0" for one, other in points]
    return Scatter(title, *axes, rho, x, y, ["".join(dots[layer::_LAYERS]) for layer in range(_LAYERS)], comparable)
