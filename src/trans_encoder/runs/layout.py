"""Every name in a run folder; no other module spells one out."""

import re
from collections.abc import Iterator
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
_CYCLE, _LABELS = re.compile(r"cycle-(\d+)"), re.compile(r"labels-(bi|cross)\.parquet")
BEGINNINGS = {_FROM_TEXT, LOCK, CONFIG + PARTIAL, MANIFEST + PARTIAL}
"""What a folder may hold whose run was killed before its manifest was written."""


class LabelsAt(NamedTuple):
    """A label file of a run."""

    cycle: int
    kind: str
    path: Path


@dataclass(frozen=True)
class Layout:
    """The places of everything in a run folder."""

    root: Path

    def name(self, path: Path) -> str:
        """Return a path as stages are named: relative to the run folder, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    @property
    def config(self) -> Path:
        """The configuration as resolved."""
        return self.root / CONFIG

    @property
    def environment(self) -> Path:
        """Versions, platform and device."""
        return self.root / ENVIRONMENT

    @property
    def manifest(self) -> Path:
        """The finished stages and what the run is made from."""
        return self.root / MANIFEST

    @property
    def lock(self) -> Path:
        """Locked by the process that owns the run."""
        return self.root / LOCK

    @property
    def start(self) -> Path:
        """The members' first bi-encoders and their scores."""
        return self.root / "start.json"

    @property
    def held_out(self) -> Path:
        """The frozen teachers' scores of the held-out pairs."""
        return self.root / "held-out.parquet"

    @property
    def history(self) -> Path:
        """One line per validated checkpoint."""
        return self.root / "history.jsonl"

    @property
    def result(self) -> Path:
        """The chosen models and their scores."""
        return self.root / "result.json"

    @property
    def page(self) -> Path:
        """The report."""
        return self.root / "report.html"

    def pairs(self, cycle: int | None = None) -> Path:
        """Return the training pairs of all cycles, or those that a later cycle mined for itself."""
        return (self.root if cycle is None else self._cycle(cycle)) / _PAIRS

    def labels(self, cycle: int, kind: Kind, *, learner: str | None = None) -> Path:
        """Return the labels that the encoders of a kind made in a cycle, for all members or for one learner."""
        return (self._cycle(cycle) / learner if learner else self._cycle(cycle)) / f"labels-{kind}.parquet"

    def start_labels(self, cycle: int) -> Path:
        """Return the labels that the members' first bi-encoders give to the pairs which a later cycle mined."""
        return self._cycle(cycle) / "start-labels.parquet"

    def embeddings(self, model: str, *, cycle: int | None = None) -> Path:
        """Return a bi-encoder's embeddings of the training pairs' sentences, or of those that a later cycle mined."""
        return (self.root if cycle is None else self._cycle(cycle)) / "embeddings" / f"{model}.npy"

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
        return sorted(self._label_files())

    def _label_files(self) -> Iterator[LabelsAt]:
        for path in self.root.glob("cycle-*/labels-*.parquet"):
            cycle, labels = _CYCLE.fullmatch(path.parent.name), _LABELS.fullmatch(path.name)
            if cycle and labels:
                yield LabelsAt(int(cycle[1]), labels[1], path)

    def _cycle(self, cycle: int) -> Path:
        return self.root / f"cycle-{cycle}"

    # Runs that start from raw text. What precedes the cycles is done in run folders of its own.

    @property
    def from_text(self) -> Path:
        """What is done before the cycles."""
        return self.root / _FROM_TEXT

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

    @property
    def tuning_logs(self) -> Path:
        """Where trackers log stage 0."""
        return self.root / "logs" / "stage-0"

    @property
    def mined(self) -> Path:
        """The mined pairs and the counts of where they came from, in the run folder of the mining."""
        return self.root / "mined"

    @property
    def text(self) -> Path:
        """The text, in the run folder of a mining that later cycles repeat."""
        return self.root / "text.arrow"


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
