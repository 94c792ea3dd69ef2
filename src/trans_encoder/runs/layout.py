"""Every name in a run folder; no other module spells one out."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trans_encoder.config import Kind
from trans_encoder.files import PARTIAL

CONFIG, ENVIRONMENT, MANIFEST, LOCK = "config.json", "environment.json", "manifest.json", ".lock"
_FROM_TEXT = "from-text"
_PAIRS = "pairs.arrow"
_TRAINING = "training.json"
_SCRATCH = ".training"
_LABELS = re.compile(r"cycle-(\d+)/labels-(bi|cross)\.parquet")
BEGINNINGS = {_FROM_TEXT, LOCK, CONFIG + PARTIAL, MANIFEST + PARTIAL}
"""What a folder may hold whose run was killed before its manifest was written."""


class LabelsAt(NamedTuple):
    """A label file of a run."""

    cycle: int
    kind: str
    path: Path


class _Place:
    """A file or folder of a run whose name is always the same."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, layout: "Layout", _: type["Layout"]) -> Path:
        return layout.root.joinpath(*self._names)


@dataclass(frozen=True)
class Layout:
    """The places of everything in a run folder."""

    root: Path

    def name(self, path: Path) -> str:
        """Return a path as stages are named: relative to the run folder, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    config = _Place(CONFIG)
    """The configuration as resolved."""
    environment = _Place(ENVIRONMENT)
    """Versions, platform and device."""
    manifest = _Place(MANIFEST)
    """The finished stages and what the run is made from."""
    lock = _Place(LOCK)
    """Locked by the process that owns the run."""
    start = _Place("start.json")
    """The members' first bi-encoders and their scores."""
    held_out = _Place("held-out.parquet")
    """The frozen teachers' scores of the held-out pairs."""
    history = _Place("history.jsonl")
    """One line per validated checkpoint."""
    result = _Place("result.json")
    """The chosen models and their scores."""
    page = _Place("report.html")
    """The report."""

    def pairs(self, cycle: int = 1) -> Path:
        """Return the training pairs that all cycles begin with (1), or those that a later cycle has for itself."""
        return (self.root if cycle == 1 else self._cycle(cycle)) / _PAIRS

    def labels(self, cycle: int, kind: Kind, *, learner: str | None = None) -> Path:
        """Return the labels that the encoders of a kind made in a cycle, for all members or for one learner."""
        return (self._cycle(cycle) / learner if learner else self._cycle(cycle)) / f"labels-{kind}.parquet"

    def start_labels(self, cycle: int) -> Path:
        """Return the labels that the members' first bi-encoders give to the pairs of a cycle."""
        return self.labels(1, "bi") if cycle == 1 else self._cycle(cycle) / "start-labels.parquet"

    def embeddings(self, model: str, cycle: int = 1) -> Path:
        """Return a bi-encoder's embeddings of the sentences of a cycle's pairs."""
        return (self.root if cycle == 1 else self._cycle(cycle)) / "embeddings" / f"{model}.npy"

    def cleared_start(self, member: str) -> Path:
        """Return a member's first bi-encoder without common directions, where these are removed."""
        return self.root / "starts" / member

    def student(self, cycle: int, member: str, kind: Kind) -> Path:
        """Return the encoder that a member's student became in a cycle."""
        return self._cycle(cycle) / member / kind

    def best(self, member: str | None, kind: Kind) -> Path:
        """Return the chosen encoder of a member, or of a team of one (None)."""
        return (self.root / "best" / member if member else self.root / "best") / kind

    def logs(self, cycle: int, member: str, kind: Kind) -> Path:
        """Where trackers log a training; not part of any stage, so it is neither verified nor restored."""
        return self.root / "logs" / f"cycle-{cycle}-{member}-{kind}"

    def evaluation(self, test: str) -> Path:
        """Return the scores of the run's models on a test set."""
        return self.root / "evaluation" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', test)}.parquet"

    def evaluations(self) -> list[Path]:
        """Every saved evaluation."""
        return sorted(self.root.glob("evaluation/*.parquet"))

    def label_files(self) -> list[LabelsAt]:
        """Every label file, in the order in which they were made."""
        found = [(_LABELS.fullmatch(self.name(path)), path) for path in self.root.glob("cycle-*/labels-*.parquet")]
        return sorted(LabelsAt(int(name[1]), name[2], path) for name, path in found if name)

    def _cycle(self, cycle: int) -> Path:
        return self.root / f"cycle-{cycle}"

    # Runs that start from raw text. What precedes the cycles is done in run folders of its own.

    from_text = _Place(_FROM_TEXT)
    """What is done before the cycles."""

    def bootstrap(self, member: str) -> "Layout":
        """Return the run folder of stage 0 of a member that was a bare PLM."""
        return Layout(self.from_text / member)

    @property
    def mining(self) -> "Layout":
        """The run folder of the first mining."""
        return Layout(self.from_text / "pairs")

    def is_from_text(self, model: str) -> bool:
        """Whether a model is named as one that this run made before its cycles, relative to the run folder."""
        return model.startswith(f"{_FROM_TEXT}/")

    def trained(self, kind: Kind) -> Path:
        """Return the one encoder of a run folder of stage 0, or of a training on saved labels."""
        return self.root / kind

    tuning_logs = _Place("logs", "stage-0")
    """Where trackers log stage 0."""
    mined = _Place("mined")
    """The mined pairs and the counts of where they came from, in the run folder of the mining."""
    text = _Place("text.arrow")
    """The text, in the run folder of a mining that later cycles repeat."""


def training_record(encoder: Path) -> Path:
    """Return the record of an encoder's training, in its folder."""
    return encoder / _TRAINING


def mined_pairs(folder: Path) -> Path:
    """Return the pairs in the folder of a finished mining."""
    return folder / _PAIRS


def mining_counts(folder: Path) -> Path:
    """Return the counts of bands and methods in the folder of a finished mining."""
    return folder / "mining.json"


def scratch(result: Path) -> Path:
    """Return where a stage keeps what it needs to continue; removed once the stage is finished."""
    return result.with_name(result.name + _SCRATCH)


def is_scratch(path: Path) -> bool:
    """Whether a path lies directly in the scratch folder of a stage."""
    return path.parent.name.endswith(_SCRATCH)


def scratch_inputs(result: Path) -> Path:
    """Return the note of what the parts in a stage's scratch folder were made from."""
    return scratch(result) / "inputs.json"


def scratch_time(result: Path) -> Path:
    """Return the note of the time that earlier attempts at a stage took."""
    return scratch(result) / "attempts.json"
