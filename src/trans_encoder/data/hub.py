"""The standard data sets behind the paper's tasks, as they are kept on the hub."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import DataError, import_extra

_SEED = 2022
"""Of our samples of QQP: the authors' own rows are not published. Their QNLI pairs are the first of each split."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubSplit:
    """A split on the hub: `scale` is mapped to 0..1; `rows` are taken after a shuffle if `shuffled`."""

    path: str
    split: str
    columns: tuple[str, ...] = ("sentence1", "sentence2", "score")
    config: str | None = None
    revision: str | None = None
    scale: tuple[float, float] = (0.0, 1.0)
    rows: tuple[int, int | None] = (0, None)
    shuffled: bool = False


STS_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
"""The yearly STS tasks, each of which has a test split alone."""

_HUB_NAMES = {"train": "train", "dev": "validation", "test": "test"}
_GLUE = "nyu-mll/glue"
_QQP = ("question1", "question2", "label")
_QNLI = ("question", "sentence", "label")
_MRPC = ("sentence1", "sentence2", "label")
# SICK's own three splits are kept only by a script, which the hub has converted to plain Parquet under this revision.
_SICK: dict[str, Any] = {
    "columns": ("sentence_A", "sentence_B", "relatedness_score"),
    "revision": "refs/convert/parquet",
    "scale": (1.0, 5.0),
}

HUB_SPLITS: Mapping[str, HubSplit] = {
    **{f"{year}/test": HubSplit(f"mteb/{year}-sts", "test", scale=(0.0, 5.0)) for year in STS_YEARS},
    **{
        f"stsb/{name}": HubSplit("mteb/stsbenchmark-sts", split, scale=(0.0, 5.0)) for name, split in _HUB_NAMES.items()
    },
    **{f"sickr/{name}": HubSplit("RobZamp/sick", split, **_SICK) for name, split in _HUB_NAMES.items()},
    **{f"mrpc/{name}": HubSplit(_GLUE, split, _MRPC, "mrpc") for name, split in _HUB_NAMES.items()},
    "qqp/train": HubSplit(_GLUE, "train", _QQP, "qqp", rows=(0, 10_000), shuffled=True),
    "qqp/dev": HubSplit(_GLUE, "validation", _QQP, "qqp", rows=(0, 1_000), shuffled=True),
    "qqp/test": HubSplit(_GLUE, "validation", _QQP, "qqp", rows=(1_000, 11_000), shuffled=True),
    # GLUE's label 0 means that the sentence answers the question; ours is 1.
    "qnli/train": HubSplit(_GLUE, "train", _QNLI, "qnli", scale=(1.0, 0.0), rows=(0, 10_000)),
    "qnli/dev": HubSplit(_GLUE, "validation", _QNLI, "qnli", scale=(1.0, 0.0), rows=(0, 1_000)),
    "qnli/test": HubSplit(_GLUE, "validation", _QNLI, "qnli", scale=(1.0, 0.0), rows=(1_000, None)),
    **{
        f"snli/{name}": HubSplit("stanfordnlp/snli", split, ("premise", "hypothesis"))
        for name, split in _HUB_NAMES.items()
    },
}


def load_hub_split(name: str) -> PairSet:
    """Load a split such as "stsb/dev" from the hub, its scores mapped to 0..1."""
    datasets = import_extra("datasets", extra="hub")
    where = HUB_SPLITS[name]
    try:
        dataset = datasets.load_dataset(where.path, where.config, split=where.split, revision=where.revision)
    except Exception as error:  # the hub's libraries raise whatever their transport raises
        raise DataError(
            f"cannot load {where.path} from the hub ({type(error).__name__}: {error}); "
            "without a connection, give a folder that holds the data with --data-dir"
        ) from error
    return from_hub_rows(dataset, where=where)


def from_hub_rows(dataset: Any, *, where: HubSplit) -> PairSet:
    """Take the declared rows and columns out of a loaded split."""
    pairs = PairSet.from_dataset(dataset, columns=where.columns, skip_bad=True)
    if pairs.report and pairs.report.bad:
        logger.warning("%s: %s", where.path, pairs.report)
    order = np.arange(len(pairs))
    if where.shuffled:
        order = np.random.default_rng(_SEED).permutation(order)
    if where.shuffled or where.rows != (0, None):
        pairs = pairs.take(order[slice(*where.rows)])
    if pairs.scores is None:
        return pairs
    low, high = where.scale
    return pairs.with_scores((pairs.scores - low) / (high - low))
