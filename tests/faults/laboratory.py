"""The run that faults are put into: tiny, mutual, of two cycles, and the same bytes whenever nothing goes wrong."""

import gc
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import byte_level_bpe, contents, graded, save_model, shape, wordpiece
from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import TransEncoderError
from trans_encoder.pipelines.distil import distil

PLAN = {"batch_size": 8, "epochs": 1, "learning_rate": 1e-3, "dev_steps": 2, "checkpoint_steps": 2}
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "cycles": 2,
    "patience": 0,
    "both_orders": False,
    "cross": {**PLAN, "max_tokens": 48},
    "bi": PLAN,
}
"""Three steps in every training, a checkpoint after the second."""

Problem = str | None
"""What a run did not survive; None is well."""
Work = Callable[[], object]


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal) and the error that it met."""

    code: int
    error: str = ""

    @property
    def killed(self) -> bool:
        """Whether it was killed, as planned."""
        return self.code == -signal.SIGKILL


@dataclass(frozen=True)
class Laboratory:
    """Models, data and the finished run that every other must equal."""

    models: tuple[str, ...]
    pairs: PairSet
    dev: PairSet
    reference: Path
    expected: dict[str, bytes]
    seconds: float
    """What the undisturbed run took."""

    @classmethod
    def build(cls, root: Path) -> "Laboratory":
        """Make two tiny models of different families and do the run once, undisturbed."""
        labelled, dev = graded(24, seed=1), graded(14, seed=2)
        texts = sorted({*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist(), *dev.sentence1.to_pylist()})
        models = []
        for family, width, tokenizer in (("bert", 16, wordpiece(texts)), ("roberta", 24, byte_level_bpe(texts))):
            folder = root / "models" / family
            save_model(folder, shape(family, width=width, tokenizer=tokenizer), tokenizer)
            models.append(str(folder))
        gc.freeze()  # the trainer collects garbage after every training: let it pass over what the imports brought
        pairs, begun = labelled.without_scores(), time.monotonic()
        reference = distil(pairs, models, dev=dev, out=root / "reference", **SETTINGS).folder
        return cls(tuple(models), pairs, dev, reference, contents(reference), time.monotonic() - begun)

    def run(self, folder: Path, **changes: Any) -> None:
        """Begin or continue the run in a folder."""
        given = {"pairs": self.pairs, "dev": self.dev, **SETTINGS, **changes}
        distil(given.pop("pairs"), list(self.models), out=folder, **given)

    def copy(self, folder: Path) -> Path:
        """Copy the finished run."""
        return Path(shutil.copytree(self.reference, folder))

    def continued(self, folder: Path) -> Problem:
        """Give the same command again, in a new process; it must end, and as the undisturbed run did."""
        ended = forked(lambda: self.run(folder))
        return self.difference(folder) if ended.code == 0 else f"does not continue: {ended}"

    def difference(self, folder: Path) -> Problem:
        """Say what is different from the undisturbed run: any byte of any file, or a stage in the manifest."""
        found = contents(folder)
        names = sorted({*found, *self.expected})
        different = [name for name in names if found.get(name) != self.expected.get(name)]
        recorded, wanted = stages(folder), stages(self.reference)
        different += [f"{name} in the manifest" for name in wanted if recorded.get(name) != wanted[name]]
        return f"different: {', '.join(different[:5])}" if different else None


def stages(folder: Path, *, times: bool = False) -> dict[str, Any]:
    """Return the manifest's stages, with the time and memory that they took if asked."""
    entries = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["stages"]
    kept = ("inputs", "files", *(("seconds", "peak_memory_bytes") if times else ()))
    return {name: {key: entry[key] for key in kept} for name, entry in entries.items()}


def forked(work: Work, *, after: float | None = None) -> Ended:
    """Do some work in a process of its own; kill it after a number of seconds, if given."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os._exit(_report(work, writer))
    os.close(writer)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    with open(reader, encoding="utf-8") as pipe:  # noqa: PTH123
        error = pipe.read()
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), error)


def _report(work: Work, writer: int) -> int:
    """Do the work; write what went wrong. 0 is well, 1 an error of ours, 2 a surprise."""
    try:
        work()
    except TransEncoderError as error:
        os.write(writer, str(error).encode())
        return 1
    except BaseException:
        os.write(writer, traceback.format_exc().encode()[-4000:])
        return 2
    return 0
