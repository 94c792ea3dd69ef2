"""What a study is: rows and columns, each of which sets part of what a cell measures. No study has code of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from trans_encoder.encoders import Kind

Way = Literal["start", "self", "mutual", "contrastive"]
"""How a model is made: not at all, by self- or mutual distillation, or by contrastive tuning on the task's pairs."""
Measure = Literal["test", "dev", "fit", "gradient", "hours"]
"""Score on test sets; dev score after a cycle; how well the first students fit their labels; the gradient that is left
when they have; time of the run."""
Statistic = Literal["each", "mean", "sd"]


@dataclass(frozen=True)
class Question:
    """What one cell asks for: a model made in some way, and what is measured of it."""

    way: Way = "self"
    kind: "Kind" = "bi"
    task: str = "sts"
    """The task whose pairs are learnt from and whose dev set chooses the checkpoints."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run that differ from the preset, by dotted key."""
    share: float = 1.0
    """Part of the task's pairs that is learnt from."""
    extra: float = 0.0
    """SNLI pairs learnt from as well, as a share of the task's pairs."""
    measure: Measure | None = "test"
    """Without one, only the paper has something to say."""
    tested: str | None = None
    """The task that is tested on, if not the one learnt from."""
    test_set: str | None = None
    """One test set of that task; without it the mean over all of them."""
    cycle: int = 0
    """The cycle whose dev score is asked for; 0 is the start."""
    fifth: int | None = None
    """The fifth of the pairs, from the lowest labels on, whose gradient is asked for; without it, all pairs."""
    statistic: Statistic = "each"
    """What is shown of several seeds: mean and standard deviation, or one of the two."""

    @property
    def tasks(self) -> set[str]:
        """The tasks that an answer needs."""
        return {self.task, self.tested or self.task} | ({"snli"} if self.extra else set())


class Heading(NamedTuple):
    """The heading of a row or a column and its part of the question."""

    label: str
    asks: Mapping[str, Any]


def heading(label: str, **asks: Any) -> Heading:
    """Make a heading; `asks` are fields of Question."""
    return Heading(label, asks)


AVERAGE = "avg."
"""The heading of the plain mean over the other columns."""


@dataclass(frozen=True)
class Study:
    """One table: its rows for each model, those for the whole team, and its columns."""

    name: str
    shows: str
    """What one learns from it, in a line."""
    paper: tuple[str, ...]
    """The paper's tables and figures with the same content."""
    rows: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    figures: str | None = None
    """The table of paper.toml that holds the paper's figures, if it prints any."""
    team_rows: tuple[Heading, ...] = ()
    """Rows about all models together; they need at least two."""
    team: str = "ensemble"
    """What the team rows are about."""
    average: bool = False
    """Whether a last column holds the mean of the others."""
    models: tuple[str, ...] = ("SimCSE-BERT-base", "SimCSE-RoBERTa-base")
    """The paper's models for this table, by the paper's names."""
    seeds: int = 1
    may_fail: bool = False
    """Whether a run that breaks down is a finding: its cells are then empty and a note says why."""
    digits: int = 2
    """Decimals of our figures."""
    note: str = ""
    """What a reader of the table must know."""

    @property
    def labels(self) -> list[str]:
        """The labels of all columns."""
        return [column.label for column in self.columns] + [AVERAGE] * self.average

    def questions(self) -> Iterator[Question]:
        """Yield what the cells ask for."""
        for row in (*self.rows, *self.team_rows):
            for column in self.columns:
                yield ask(row, column)


def ask(row: Heading, column: Heading) -> Question:
    """Put the question of a cell together."""
    return Question(**{**row.asks, **column.asks})
