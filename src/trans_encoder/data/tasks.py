"""Tasks: an unlabelled pool of training pairs, a dev set and test sets, for the paper's tasks and for one's own."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.data.hub import HUB_SPLITS, STS_YEARS, load_hub_split
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.readers import FORMATS
from trans_encoder.errors import ConfigurationError, DataError

logger = logging.getLogger(__name__)

Metric = Literal["spearman", "auc"]


@dataclass(frozen=True)
class TestSet:
    """Pairs with gold scores; `metric` is "auc" if the gold has exactly two values, else "spearman"."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    name: str
    pairs: PairSet

    def __post_init__(self) -> None:
        """Refuse pairs that no metric can be computed on."""
        scores = self.pairs.scores
        if scores is None:
            raise DataError(
                f"{self.name} has no gold scores; give a file with a score column, or name it: --columns A,B,SCORE"
            )
        if len(np.unique(scores)) < 2:
            raise DataError(
                f"the {len(scores):,} gold scores of {self.name} are all {scores[0]}; at least two must differ"
            )

    @classmethod
    def read(cls, path: str | Path, *, columns: Sequence[str] | None = None, skip_bad: bool = False) -> "TestSet":
        """Read labelled pairs from a file; the test set takes the file's name without its endings."""
        return cls(Path(path).name.split(".")[0], PairSet.read(path, columns=columns, skip_bad=skip_bad))

    @property
    def gold(self) -> npt.NDArray[np.float64]:
        """The gold scores."""
        scores = self.pairs.scores
        assert scores is not None
        return scores

    @property
    def metric(self) -> Metric:
        """The metric that suits the gold."""
        return "auc" if len(np.unique(self.gold)) == 2 else "spearman"


@dataclass(frozen=True)
class Task:
    """What to train on, what to choose checkpoints by, and what to test on; `symmetric` if a pair's order is free."""

    name: str
    pairs: PairSet
    dev: TestSet | None = None
    tests: Mapping[str, TestSet] = field(default_factory=dict)
    symmetric: bool = True
    notes: tuple[str, ...] = ()
    """How the data differ from the paper's, if they do."""

    @property
    def metric(self) -> Metric:
        """The metric of the dev set or, without one, of the first test set."""
        judged = [self.dev] if self.dev else list(self.tests.values())
        return judged[0].metric if judged else "spearman"


@dataclass(frozen=True)
class Declaration:
    """The splits of a task: of its pool (`|` separates alternatives, best first), its dev set and its test sets."""

    pool: tuple[str, ...]
    dev: str | None = None
    tests: tuple[str, ...] = ()
    symmetric: bool = True


def _whole(name: str) -> tuple[str, ...]:
    return f"{name}/train", f"{name}/dev", f"{name}/test"


TASKS: Mapping[str, Declaration] = {
    "sts": Declaration(pool=("sts_pool/train",), dev="stsb/dev", tests=(*STS_YEARS, "stsb", "sickr")),
    "sts-b": Declaration(pool=_whole("stsb"), dev="stsb/dev", tests=("stsb",)),
    "sick-r": Declaration(pool=_whole("sickr"), dev="sickr/dev", tests=("sickr",)),
    "qqp": Declaration(pool=_whole("qqp"), dev="qqp/dev", tests=("qqp",)),
    "qnli": Declaration(
        pool=("qnli/train|qnli/glue_test_unlabelled", "qnli/dev", "qnli/test"),
        dev="qnli/dev",
        tests=("qnli",),
        symmetric=False,
    ),
    "mrpc": Declaration(pool=_whole("mrpc"), dev="mrpc/dev", tests=("mrpc",)),
    "snli": Declaration(pool=("snli/train|snli/train_ni", "snli/dev", "snli/test")),
}
"""The paper's tasks (section 3); a pool holds all pairs of its task, unlabelled."""

_STS_POOL = tuple(f"{year}/test" for year in STS_YEARS) + _whole("stsb") + _whole("sickr")
"""The scored part of the STS pool, for sources that do not have the pool as one split."""
_STS_UNSCORED = ("sts15/unscored", "sts16/unscored")
"""Inputs of SemEval 2015 and 2016 that were never scored: in the SemEval packages, but in no data set of the hub."""
_STS_POOL_OF_THE_PAPER = 37_081


_NO_PAIRS = PairSet(pa.table({name: pa.array([], pa.large_string()) for name in ("sentence1", "sentence2")}))


def load_task(
    name: str, *, data_dir: str | Path | None = None, inductive: bool = False, tests_only: bool = False
) -> Task:
    """Load one of the paper's tasks from a folder of files such as `stsb/dev.tsv.gz` or, without one, from the hub.

    With `inductive`, no pair of a test set, in either order, is left in the training pool. With `tests_only`, all that
    an evaluation needs, nothing else is read: the pool is empty and there is no dev set.
    """
    if name not in TASKS:
        raise ConfigurationError(f"unknown task {name!r}; expected one of {', '.join(TASKS)}, or files of your own")
    declared, source = TASKS[name], _Folder(Path(data_dir)) if data_dir is not None else _Hub()
    tests = {test: TestSet(test, source.load(f"{test}/test")) for test in declared.tests}
    if tests_only:
        return Task(name, _NO_PAIRS, tests=tests, symmetric=declared.symmetric)
    pool = _combined([_load_pool(split, source) for split in declared.pool])
    notes = _pool_notes(name, pool, source)
    for note in notes:
        logger.warning("%s", note)
    if inductive:
        pool = reduce(PairSet.without, (test.pairs for test in tests.values()), pool)
    return Task(
        name=name,
        pairs=pool,
        dev=TestSet(declared.dev.replace("/", "-"), source.load(declared.dev)) if declared.dev else None,
        tests=tests,
        symmetric=declared.symmetric,
        notes=notes,
    )


class _Folder:
    """Splits as files of a folder: SET/SPLIT and the ending of a known format."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(
                f"there is no folder {folder}; --data-dir names one that holds files such as stsb/dev.tsv.gz"
            )
        self._folder = folder

    def path(self, split: str) -> Path | None:
        """Return the file of a split, if there is one."""
        paths = (self._folder / f"{split}{ending}{packed}" for ending in FORMATS for packed in (".gz", ""))
        return next((path for path in paths if path.is_file()), None)

    def has(self, split: str) -> bool:
        """Say whether there is such a split."""
        return self.path(split) is not None

    def load(self, split: str, *, scores: bool = True) -> PairSet:
        """Read a split."""
        path = self.path(split)
        if path is None:
            raise DataError(
                f"{self._folder} has no {split}.tsv.gz (or .tsv, .jsonl, .csv, .parquet), which this task needs"
            )
        return PairSet.read(path, scores=scores)


class _Hub:
    """Splits from the hub's standard data sets."""

    def has(self, split: str) -> bool:
        """Say whether there is such a split."""
        return split in HUB_SPLITS

    def load(self, split: str, *, scores: bool = True) -> PairSet:
        """Load a split."""
        pairs = load_hub_split(split)
        return pairs if scores else pairs.without_scores()


def _load_pool(split: str, source: _Folder | _Hub) -> PairSet:
    """Load unlabelled pairs: the first alternative that there is; the STS pool can also be made of its parts."""
    alternatives = split.split("|")
    found = next((name for name in alternatives if source.has(name)), alternatives[0])
    if found == "sts_pool/train" and not source.has(found):
        unscored = [part for part in _STS_UNSCORED if source.has(part)]
        return _combined([source.load(part, scores=False) for part in (*_STS_POOL, *unscored)])
    return source.load(found, scores=False)


def _pool_notes(name: str, pool: PairSet, source: _Folder | _Hub) -> tuple[str, ...]:
    """Say how far the STS pool falls short of the paper's, if inputs are missing from the source."""
    missing = [part for part in _STS_UNSCORED if not source.has(part)]
    if name != "sts" or source.has("sts_pool/train") or not missing:
        return ()
    return (
        f"the pool of task sts has {len(pool):,} pairs, the paper's {_STS_POOL_OF_THE_PAPER:,}: inputs of STS15 and "
        f"STS16 that were never scored are not there. They are in the SemEval packages; with --data-dir, give them as "
        f"{' and '.join(f'{part}.tsv.gz' for part in missing)}",
    )


def _combined(parts: list[PairSet]) -> PairSet:
    """Return the pairs of all parts, each once in each order; a single part is left as it was published."""
    return parts[0] if len(parts) == 1 else reduce(PairSet.concat, parts).deduplicated(swapped=False)
