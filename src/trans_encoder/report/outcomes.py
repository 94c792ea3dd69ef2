"""Scores on test sets with their gold, saved in the run folder, for the report's comparison before and after."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.errors import DataError
from trans_encoder.evaluation.ensembles import mean_scores
from trans_encoder.evaluation.metrics import auc, spearman
from trans_encoder.files import atomic_file
from trans_encoder.report.intervals import Array, bootstrap
from trans_encoder.runs import Layout

Moment = Literal["start", "best"]
TEAM = "all members"
"""Stands for the ensemble, the mean score of all members; no member can have this name."""


@dataclass(frozen=True, order=True)
class ModelKey:
    """One model of a run: before or after, of which member, of which kind."""

    moment: Moment
    member: str
    kind: str

    def __str__(self) -> str:
        return f"{self.moment}/{self.member}/{self.kind}"

    @classmethod
    def parse(cls, text: str) -> "ModelKey":
        """Read what `str` wrote."""
        moment, _, rest = text.partition("/")
        member, _, kind = rest.rpartition("/")
        if moment not in ("start", "best") or not member or not kind:
            raise DataError(f"expected a column named MOMENT/MEMBER/KIND, such as best/bert/bi, got {text!r}")
        return cls("start" if moment == "start" else "best", member, kind)


@dataclass(frozen=True)
class Outcome:
    """The scores of a run's models on one test set, before and after."""

    name: str
    metric: str
    gold: Array
    scores: Mapping[ModelKey, Array]

    @cached_property
    def values(self) -> dict[ModelKey, float]:
        """Each model's metric, x100."""
        measure = {"spearman": spearman, "auc": auc}[self.metric]
        return {key: measure(scores, self.gold) for key, scores in self.scores.items()}

    @cached_property
    def replicates(self) -> dict[ModelKey, Array]:
        """Each model's metric on the same bootstrap resamples of the pairs."""
        return bootstrap(self.gold, self.scores, metric=self.metric, seed=crc32(self.name.encode()))


def save_evaluation(
    run: Path, name: str, *, metric: str, gold: npt.ArrayLike, scores: Mapping[ModelKey, npt.ArrayLike]
) -> Outcome:
    """Save the scores of a run's models on the test set `name` as `evaluation/NAME.parquet`; return what was saved."""
    # Gold keeps its precision: what float32 rounds to equal values would be ties in a rank correlation.
    columns = {"gold": np.asarray(gold, dtype=np.float64)}
    columns |= {str(key): np.asarray(values, dtype=np.float32) for key, values in scores.items()}
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"expected as many scores as gold labels for test set {name}, got {lengths}")
    about = {"trans_encoder": json.dumps({"test_set": name, "metric": metric})}
    path = Layout(run).evaluation(name)
    with atomic_file(path) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(about), temporary)
    return read_evaluation(path)


def read_evaluation(path: Path) -> Outcome:
    """Read what `save_evaluation` wrote, with the mean of all members added where there are several."""
    try:
        table = pq.read_table(path)
        about = dict(json.loads((table.schema.metadata or {}).get(b"trans_encoder", b"{}")))
        columns = {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({error}); remove it and evaluate the run again") from error
    if about.get("metric") not in ("spearman", "auc") or "gold" not in columns:
        raise DataError(f"{path} holds no evaluation; expected a file that save_evaluation wrote")
    gold = columns.pop("gold")
    scores = {ModelKey.parse(name): values for name, values in columns.items()}
    return Outcome(about.get("test_set", path.stem), about["metric"], gold, scores | _team(scores))


def _team(scores: Mapping[ModelKey, Array]) -> dict[ModelKey, Array]:
    """Return the ensembles: the mean score of all members, before and after, of each kind."""
    groups: dict[ModelKey, list[Array]] = {}
    for key, values in scores.items():
        groups.setdefault(ModelKey(key.moment, TEAM, key.kind), []).append(values)
    return {key: mean_scores(values).astype(np.float64) for key, values in groups.items() if len(values) > 1}
