"""Reading a run folder: what it was asked to do, what it did, how long that took."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trans_encoder.errors import RunError, TransEncoderError
from trans_encoder.report.labels import LabelFile
from trans_encoder.report.outcomes import Outcome, read_evaluation
from trans_encoder.runs.manifest import damaged_files


@dataclass(frozen=True)
class Checkpoint:
    """One judged checkpoint of a training."""

    cycle: int
    member: str
    kind: str
    step: int
    score: float


@dataclass(frozen=True)
class RunFolder:
    """A run folder, finished or not; what is absent is empty."""

    path: Path
    name: str

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open a folder that holds a run's configuration."""
        if not (path / "config.json").is_file():
            raise RunError(f"{path} is not a run folder: it has no config.json; give the --out folder of a run")
        return cls(path, path.resolve().name)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as resolved."""
        return self._json("config.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, platform and device."""
        return self._json("environment.json")

    @cached_property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Each finished stage: its time and the process's peak memory at its end."""
        return dict(self._json("manifest.json").get("stages", {}))

    @cached_property
    def is_label_free(self) -> bool:
        """Tell whether checkpoints were judged without labels."""
        judge = self._json("manifest.json").get("origin", {}).get("judge")
        return isinstance(judge, str) and judge.startswith("label-free ")

    @cached_property
    def result(self) -> dict[str, Any]:
        """The chosen models, whether they are better than the start, and notes; empty until the run is finished."""
        return self._json("result.json")

    @cached_property
    def history(self) -> list[Checkpoint]:
        """Every judged checkpoint of a training, in the order of time."""
        return [checkpoint for checkpoint in self._judged if checkpoint.cycle > 0]

    @cached_property
    def start_scores(self) -> dict[str, float]:
        """The score of each member's first bi-encoder: the history's cycle 0."""
        return {checkpoint.member: checkpoint.score for checkpoint in self._judged if checkpoint.cycle == 0}

    @cached_property
    def labels(self) -> list[LabelFile]:
        """The label files, in the order in which they were made."""
        found = []
        for path in self.path.glob("cycle-*/labels-*.parquet"):
            cycle, kind = re.fullmatch(r"cycle-(\d+)", path.parent.name), path.stem.removeprefix("labels-")
            if cycle:
                found.append(LabelFile(path, int(cycle[1]), kind))
        return sorted(found, key=lambda labels: (labels.cycle, labels.kind))

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The scores on each test set."""
        return [read_evaluation(path) for path in sorted(self.path.glob("evaluation/*.parquet"))]

    @cached_property
    def _judged(self) -> list[Checkpoint]:
        names = ("cycle", "member", "kind", "step", "score")
        lines = [line for line in self._history_lines() if line["score"] is not None]
        return [Checkpoint(**{name: line[name] for name in names}) for line in lines]

    def _history_lines(self) -> Iterator[dict[str, Any]]:
        path = self.path / "history.jsonl"
        for number, line in enumerate(path.read_text("utf-8").splitlines() if path.exists() else [], start=1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise RunError(f"{path}, line {number} is not JSON: {error}; remove that line") from error

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            return {}
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise RunError(f"{path} is not JSON: {error}; run the command that made the folder again") from error
        if not isinstance(content, dict):
            raise RunError(f"{path} holds no JSON object; run the command that made the folder again")
        return content

    def refuse_damage(self, error: Exception) -> None:
        """Name the files that are not as the run made them, if there are any: they explain an error."""
        if isinstance(error, TransEncoderError):
            return
        damaged = damaged_files(self.path, self.stages)
        if damaged:
            raise RunError(
                f"{self.path}: {', '.join(damaged[:3])} missing or altered; "
                f"run the command that made the folder again: it makes anew what is damaged, and nothing else"
            ) from error
