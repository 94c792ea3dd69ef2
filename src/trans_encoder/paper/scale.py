"""How large a study is run: in full, at a fraction of its pairs and epochs, or just to see that it runs."""

from dataclasses import dataclass, replace
from typing import Any

from trans_encoder.config import PRESETS
from trans_encoder.data import PairSet, Task, TestSet
from trans_encoder.errors import ConfigurationError

_SAMPLE_SEED = 0  # the same pairs for every study, model and seed
_SMOKE_PAIRS, _SMOKE_TESTS, _SMOKE_SEEDS = 48, 200, 2
_FEWEST_PAIRS = 8


@dataclass(frozen=True)
class Scale:
    """A fraction of the pairs and epochs; `smoke` is the least that reaches every part, and says nothing else."""

    name: str
    fraction: float = 1.0
    smoke: bool = False

    @classmethod
    def parse(cls, text: str | float) -> "Scale":
        """Read `full`, `smoke` or a fraction such as 0.2."""
        if text in ("full", "smoke"):
            return cls(str(text), smoke=text == "smoke")
        try:
            fraction = float(text)
        except ValueError:
            fraction = 0.0
        if not 0 < fraction <= 1:
            raise ConfigurationError(f"got the scale {text}, expected full, smoke or a fraction such as 0.2")
        return cls(f"{fraction:g}", fraction)

    @property
    def notes(self) -> list[str]:
        """What a reader of the table must know of its scale."""
        return ["At the scale smoke only that there are figures means something."] if self.smoke else []

    def task(self, task: Task) -> Task:
        """Return the task with fewer training pairs; under `smoke` also with fewer test pairs."""
        wanted = _SMOKE_PAIRS if self.smoke else max(_FEWEST_PAIRS, round(self.fraction * len(task.pairs)))
        task = replace(task, pairs=_at_most(task.pairs, wanted))
        if not self.smoke:
            return task
        tests = {name: _shortened(test) for name, test in task.tests.items()}
        return replace(task, dev=_shortened(task.dev) if task.dev else None, tests=tests)

    def settings(self, preset: str) -> dict[str, Any]:
        """Return the settings of a preset that the scale changes."""
        epochs = {f"{kind}.epochs": PRESETS[preset][kind]["epochs"] for kind in ("cross", "bi")}
        return {key: 1 if self.smoke else max(1, round(self.fraction * count)) for key, count in epochs.items()}

    def limits(self) -> dict[str, Any]:
        """Return the settings that the scale has the last word on."""
        return {"cycles": 1} if self.smoke else {}

    def seeds(self, count: int) -> int:
        """Scale a number of seeds."""
        return min(count, _SMOKE_SEEDS) if self.smoke else count


def _shortened(test: TestSet) -> TestSet:
    return replace(test, pairs=_at_most(test.pairs, _SMOKE_TESTS))


def _at_most(pairs: PairSet, count: int) -> PairSet:
    return pairs if len(pairs) <= count else pairs.sample(count, _SAMPLE_SEED)
