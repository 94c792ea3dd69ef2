"""`experiment`: run a study up to its table, reusing results that already exist."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean
from typing import Any

from trans_encoder.config import MemberConfig, make_config
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.files import atomic_file, write_json
from trans_encoder.paper.catalogue import STUDIES
from trans_encoder.paper.measuring import Measurer
from trans_encoder.paper.models import Family, StudyModels
from trans_encoder.paper.predictions import Predictions
from trans_encoder.paper.printed import figure, find_reference, find_team_reference, hub_names
from trans_encoder.paper.scale import Scale
from trans_encoder.paper.study import AVERAGE, Heading, Question, Study, ask
from trans_encoder.paper.table import Cell, Line, Table
from trans_encoder.progress import progress

_FIRST_SEED = 42


def experiment(
    name: str,
    models: Sequence[str | MemberConfig] = (),
    *,
    out: str | Path,
    data_dir: str | Path | None = None,
    scale: str | float = "full",
    preset: Family = "paper",
    seeds: int | None = None,
    **overrides: Any,
) -> Table:
    """Run one of the paper's studies (STUDIES) and write `out`/NAME/table.md and table.json.

    A model is `BI`, `BI=PLM` or a MemberConfig; without any, the paper's own are used. Together they are the team of
    mutual distillation. Overrides are fields of RunConfig. Runs are kept in `out`/runs, where other studies find them;
    the same call does what is missing and nothing else.
    """
    if "seed" in overrides:
        raise ConfigurationError(f"a study has seeds of its own, from {_FIRST_SEED} on; give how many (seeds), not one")
    study, sized = find_study(name), Scale.parse(scale)
    large = preset == "paper-large"
    team = _team(models or hub_names(study.models, large=large))
    folder = Path(out).absolute()
    trained = StudyModels(folder, None if data_dir is None else Path(data_dir), sized, preset, overrides)
    for task in sorted({task for question in study.questions() for task in question.tasks}):
        trained.task(task)
    count = sized.seeds(study.seeds) if seeds is None else seeds
    writer = _Writer(study, Measurer(trained, Predictions(folder / "predictions"), team), _seeds(count), large)
    lines = writer.lines()
    table = Table(
        study,
        settings={
            "models": [member.bi if member.plm is None else f"{member.bi}={member.plm}" for member in team],
            "preset": preset,
            "scale": sized.name,
            "seeds": list(writer.seeds),
            "overrides": dict(overrides),
            "pairs": dict(sorted(trained.pair_counts.items())),
        },
        lines=lines,
        runs=tuple(sorted(trained.run_names)),
        notes=tuple(dict.fromkeys([*writer.notes, *sized.notes])),
    )
    write_json(folder / study.name / "table.json", table.to_dict())
    with atomic_file(folder / study.name / "table.md") as temporary:
        temporary.write_text(table.to_markdown(), encoding="utf-8")
    return table


def find_study(name: str) -> Study:
    """Return a study by its name."""
    if name not in STUDIES:
        close = get_close_matches(name, STUDIES, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"choose from: {', '.join(STUDIES)}"
        raise ConfigurationError(f'there is no experiment "{name}"; {hint}')
    return STUDIES[name]


def _team(models: Sequence[str | MemberConfig]) -> tuple[MemberConfig, ...]:
    """Name the members, and their folders from the root, so that a run is the same wherever it is asked for."""
    members = make_config(models).members
    return tuple(
        member.model_copy(update={"bi": _rooted(member.bi), "plm": member.plm and _rooted(member.plm)})
        for member in members
    )


def _rooted(model: str) -> str:
    place = Path(model).expanduser()
    return str(place.absolute()) if place.exists() else model


def _seeds(count: int) -> tuple[int, ...]:
    if count < 1:
        raise ConfigurationError(f"got {count} seeds, expected at least 1")
    return tuple(range(_FIRST_SEED, _FIRST_SEED + count))


@dataclass(frozen=True)
class _Writer:
    """Fills in the lines of a table."""

    study: Study
    measurer: Measurer
    seeds: tuple[int, ...]
    large: bool
    notes: list[str] = field(default_factory=list)

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of each model, then those of the team."""
        team = self.measurer.team
        together, alone = self.study.team_rows, self.study.rows
        if len(team) == 1:
            together, alone = (), tuple(row for row in alone if row.asks.get("way") != "mutual")
            if together != self.study.team_rows or alone != self.study.rows:
                self.notes.append("Mutual distillation and ensembles need at least two models: give more to see them.")
        total = (len(alone) * len(team) + len(together)) * len(self.study.columns)
        with progress(f"cells of {self.study.name}", total=total) as advance:
            found = [
                self._line(row, [member], reference=self._reference(member), advance=advance)
                for member in team
                for row in alone
            ]
            beside = find_team_reference(self.study.figures, large=self.large)
            found += [self._line(row, team, reference=beside, advance=advance) for row in together]
        return tuple(found)

    def _reference(self, member: MemberConfig) -> str | None:
        return find_reference(self.study.figures, model=member.bi, large=self.large)

    def _line(
        self, row: Heading, members: Sequence[MemberConfig], *, reference: str | None, advance: Callable[[int], None]
    ) -> Line:
        cells: dict[str, Cell] = {}
        for column in self.study.columns:
            question = ask(row, column)
            paper = figure(self.study.figures, reference=reference, row=row.label, column=column.label)
            cells[column.label] = Cell(self._values(question, members), question.statistic, paper, self.study.digits)
            advance(1)
        if self.study.average:
            paper = figure(self.study.figures, reference=reference, row=row.label, column=AVERAGE)
            cells[AVERAGE] = Cell(_averages(list(cells.values())), paper=paper)
        model = str(members[0].name) if len(members) == 1 else self.study.team
        return Line(model, row.label, reference, cells)

    def _values(self, question: Question, members: Sequence[MemberConfig]) -> tuple[float, ...]:
        """Return a figure for each seed; a start is the same under all."""
        seeds = self.seeds[:1] if question.way == "start" else self.seeds
        try:
            found = [self.measurer.answer(question, members, seed=seed) for seed in seeds]
        except RunError as error:
            if not self.study.may_fail:
                raise
            self.notes.append(f"A run broke down: {error}.")
            return ()
        return tuple(value for value in found if value is not None)


def _averages(cells: list[Cell]) -> tuple[float, ...]:
    """Return the mean over the columns for each seed, if every column has a figure for it."""
    counts = {len(cell.values) for cell in cells}
    return tuple(map(fmean, zip(*(cell.values for cell in cells), strict=True))) if len(counts) == 1 else ()
