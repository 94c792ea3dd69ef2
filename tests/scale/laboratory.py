"""The run that is done in many ways: a mutual team of two tiny members, without dropout as ranks draw their own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from conftest import byte_level_bpe, contents, graded, save_model, shape, wordpiece
from trans_encoder.cli import app
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder

PLAN = {"batch_size": 8, "learning_rate": 1e-4, "epochs": 1, "checkpoint_steps": 4, "dropout": 0.0}
SETTINGS: Mapping[str, Any] = {
    "device": "cpu",
    "cycles": 1,
    "scale": "none",  # ranks would turn a rounding error into a whole place
    **{f"cross.{name}": value for name, value in {**PLAN, "max_tokens": 48}.items()},
    **{f"bi.{name}": value for name, value in PLAN.items()},
}
"""Judged once, at the end of each training: of checkpoints that are all but equal, rounding would choose one."""


@dataclass(frozen=True)
class Laboratory:
    """Models and data on disk, and the arguments of the run."""

    root: Path
    arguments: tuple[str, ...]

    @classmethod
    def build(cls, root: Path, *, pairs: int) -> "Laboratory":
        """Make the models, and the pairs as Parquet shards in a folder."""
        labelled, dev = graded(pairs, seed=1), graded(15, seed=2)
        (root / "pairs").mkdir(parents=True)
        for number, start in enumerate(range(0, pairs, 100)):
            pq.write_table(labelled.between(start, start + 100).table, root / "pairs" / f"part-{number}.parquet")
        rows = [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in dev.rows()]
        (root / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        texts = sorted({*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist(), *dev.sentence1.to_pylist()})
        arguments = ["--pairs", str(root / "pairs"), "--dev", str(root / "dev.jsonl"), "--json"]
        for family, width, tokenizer in (("bert", 16, wordpiece(texts)), ("roberta", 24, byte_level_bpe(texts))):
            save_model(root / "models" / family, shape(family, width=width, tokenizer=tokenizer), tokenizer)
            arguments += ["--model", str(root / "models" / family)]
        arguments += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        return cls(root, tuple(arguments))

    def run(self, out: str, *more: str) -> Path:
        """Run the command in this process; return the run folder."""
        with contextlib.redirect_stdout(io.StringIO()):
            app(["train", *self.arguments, "--out", str(self.root / out), *more], standalone_mode=False)
        return self.root / out

    def start(self, out: str, *more: str, ranks: int | None = None) -> "subprocess.Popen[str]":
        """Start the command in a process of its own, or in several ranks under torchrun."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--no-python"]
        command = [sys.executable, "-c", "from trans_encoder.cli import main; main()"]
        arguments = ["train", *self.arguments, "--out", str(self.root / out), *more]
        return subprocess.Popen(
            [*([sys.executable, *launcher] if ranks else []), *command, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def different_files(left: Path, right: Path) -> list[str]:
    """Return the files that are not the same, byte for byte, in two runs; the report tells times."""
    first, second = contents(left), contents(right)
    return [name for name in sorted({*first, *second} - {"report.html"}) if first.get(name) != second.get(name)]


def labels(run: Path, kind: str) -> np.ndarray:
    """Return the labels that the encoders of a kind made."""
    return pq.read_table(run / f"cycle-1/labels-{kind}.parquet", columns=["score"])["score"].to_numpy()


def final_scores(run: Path) -> np.ndarray:
    """Return the trained bi-encoders' scores of the pairs."""
    pairs = PairSet.open(run / "pairs.arrow")
    return np.concatenate([BiEncoder.load(folder).score(pairs) for folder in sorted(run.glob("cycle-1/*/bi"))])


def losses(run: Path) -> np.ndarray:
    """Return the mean loss of every training."""
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return np.array([moment["loss"] for moment in map(json.loads, lines) if moment["step"]])
