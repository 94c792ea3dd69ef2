"""The run that is done in many ways: a mutual team of two tiny members, without dropout as ranks draw their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from conftest import byte_level_bpe, contents, graded, save_model, shape, wordpiece

CLI = [sys.executable, "-c", "from trans_encoder.cli import main; main()"]
PLAN = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 1, "dev_steps": 2, "checkpoint_steps": 2}
SETTINGS: Mapping[str, Any] = {
    "device": "cpu",
    "seed": 7,
    "cycles": 1,
    **{f"cross.{name}": value for name, value in {**PLAN, "max_tokens": 48}.items()},
    **{f"bi.{name}": value for name, value in PLAN.items()},
}


@dataclass(frozen=True)
class Laboratory:
    """Models and data on disk, and the finished run of one process."""

    root: Path
    arguments: tuple[str, ...]

    @classmethod
    def build(cls, root: Path, *, pairs: int = 27, epochs: int = 1) -> "Laboratory":
        """Make the models and the data; the last batch of an epoch has fewer pairs than there are ranks."""
        labelled, dev = graded(pairs, seed=1), graded(15, seed=2)
        texts = sorted({*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist(), *dev.sentence1.to_pylist()})
        arguments = ["--pairs", str(root / "pairs"), "--dev", str(root / "dev.jsonl"), "--json"]
        (root / "pairs").mkdir(parents=True)
        half = pairs // 2
        for number, part in enumerate((labelled.between(0, half), labelled.between(half, pairs))):
            pq.write_table(part.without_scores().table, root / "pairs" / f"part-{number}.parquet")
        rows = [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in dev.rows()]
        (root / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        for family, width, tokenizer in (("bert", 16, wordpiece(texts)), ("roberta", 24, byte_level_bpe(texts))):
            config = shape(family, width=width, tokenizer=tokenizer)
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
            save_model(root / "models" / family, config, tokenizer)
            arguments += ["--model", str(root / "models" / family)]
        settings = {**SETTINGS, "cross.epochs": epochs, "bi.epochs": epochs}
        arguments += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return cls(root, tuple(arguments))

    def command(self, out: str, *more: str, launcher: Sequence[str] = ()) -> list[str]:
        """Return the command of a run."""
        return [*launcher, *CLI, "train", *self.arguments, "--out", str(self.root / out), *more]

    def run(self, out: str, *more: str, launcher: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, one thread a process."""
        command = self.command(out, *more, launcher=launcher)
        return subprocess.run(command, env=environment(), text=True, capture_output=True, check=False)


def torchrun(ranks: int) -> list[str]:
    """Return what comes before the command to start it in so many processes."""
    module = [sys.executable, "-m", "torch.distributed.run"]
    return [*module, "--nproc-per-node", str(ranks), "--no-python", "--standalone"]


def environment() -> dict[str, str]:
    """Return the environment of the runs: offline, one thread, this package."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def same_bytes(left: Path, right: Path) -> list[str]:
    """Return the files that are not the same in two runs; the report tells times."""
    first, second = contents(left), contents(right)
    names = sorted({*first, *second} - {"report.html"})
    return [name for name in names if first.get(name) != second.get(name)]


def largest_difference(left: Path, right: Path, pattern: str) -> float:
    """Return the largest difference of labels in the files of a pattern."""
    files = sorted(path.relative_to(left) for path in left.glob(pattern))
    assert files, f"no {pattern} in {left}"
    return max(float(np.abs(_scores(left / file) - _scores(right / file)).max()) for file in files)


def _scores(path: Path) -> np.ndarray:
    return pq.read_table(path, columns=["score"])["score"].to_numpy()


def judged(run: Path) -> list[float]:
    """Return the scores of all judged checkpoints and their losses."""
    moments = [json.loads(line) for line in (run / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    return [float(moment[name]) for moment in moments for name in ("score", "loss") if moment[name] is not None]
