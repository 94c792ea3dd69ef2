"""One self-contained HTML page about one run, or about several side by side."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trans_encoder.errors import MissingExtraError, RunError
from trans_encoder.files import atomic_file
from trans_encoder.progress import duration
from trans_encoder.report.charts import WIDTH, Dot, DotChart, dot_chart
from trans_encoder.report.labels import Disagreement, disagreements
from trans_encoder.report.verdict import KINDS
from trans_encoder.report.view import RunView
from trans_encoder.report.wording import memory, number, shortened, signed
from trans_encoder.runs import Layout, Run, flat

try:  # torch brings it along, but does not promise to
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError:
    raise MissingExtraError("jinja2", extra="report") from None

_PAIRS = 300  # shown on one page


@dataclass(frozen=True)
class Setting:
    """One setting of all runs side by side."""

    key: str
    values: list[str]

    @property
    def differs(self) -> bool:
        """Return whether the runs have different values."""
        return len(set(self.values)) > 1


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write one page about the given run folders; by default `report.html` in the first of them."""
    if not runs:
        raise RunError("expected at least one run folder, got none")
    folders = [Run.open(Path(run)) for run in runs]
    try:
        page = render(folders)
    except Exception as error:
        for folder in folders:
            folder.refuse_damage(error)
        raise
    path = Path(out) if out is not None else Layout(Path(runs[0])).page
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def render(folders: Sequence[Run]) -> str:
    """Return the page as text."""
    pages = templates()
    style, script = (asset(pages, name) for name in ("style.css", "script.js"))
    runs = [RunView(folder) for folder in folders]
    pairs = _pairs(runs)
    return pages.get_template("report.html").render(
        runs=runs,
        contest=_contest(runs),
        pairs=pairs,
        stages=list(dict.fromkeys(pair.stage for pair in pairs)),
        config=_settings([run.folder.config for run in runs]),
        environment=_settings([run.folder.environment for run in runs]),
        style=style,
        script=script,
        policy=policy(style, script),
        version=version("trans-encoder"),
        names=KINDS,
        width=WIDTH,
    )


@cache
def templates() -> Environment:
    """Return the templates of all pages, with what writes numbers."""
    pages = Environment(
        loader=PackageLoader("trans_encoder.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for write in (number, signed, duration, memory, shortened):
        pages.filters[write.__name__] = write
    return pages


def _pairs(runs: Sequence[RunView]) -> list[Disagreement]:
    """Return the widest disagreements of all runs, each with the run and the member in its stage where it must be."""
    shown = []
    for run in runs:
        several = len(run.score_charts) > 1 or len(run.ridges) > 1
        for found in disagreements(run.label_files, limit=_PAIRS // len(runs)):
            parts = [run.name if len(runs) > 1 else "", found.stage, found.member if several else ""]
            shown.append(replace(found, stage=", ".join(part for part in parts if part)))
    return shown


def _contest(runs: Sequence[RunView]) -> list[tuple[str, DotChart]]:
    """Draw all runs on the test sets that they share, for each kind."""
    if len(runs) < 2 or not all(run.comparisons for run in runs):
        return []
    first = [run.comparisons[0] for run in runs]
    tests = [row.name for row in first[0].rows if all(row.name in [one.name for one in other.rows] for other in first)]
    charts = []
    for kind in first[0].kinds:
        rows = []
        for test in tests:
            dots = []
            for place, (run, comparison) in enumerate(zip(runs, first, strict=True)):
                after = next(row for row in comparison.rows if row.name == test).after.get(kind)
                if after:
                    text = f"{test}, {run.name}: {after.score.value:.1f}"
                    dots.append(Dot(f"run{place % 8}", after.score.value, after.score.low, after.score.high, text))
            rows.append((test, dots))
        if rows:
            charts.append((kind, dot_chart(rows)))
    return charts


def _settings(contents: Sequence[Mapping[str, Any]]) -> list[Setting]:
    columns = [flat(content) for content in contents]
    keys = dict.fromkeys(key for column in columns for key in column)
    return [Setting(key, [_plain(column.get(key)) for column in columns]) for key in keys]


def _plain(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def asset(pages: Environment, name: str) -> Markup:
    """Return a style or a script, to be put into a page as it is."""
    return Markup(pages.get_template(name).render())  # our own files, no data in them


def policy(style: str, script: str) -> str:
    """Allow this page's own style and script, by their hashes, and nothing else: no request, no injected code."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
