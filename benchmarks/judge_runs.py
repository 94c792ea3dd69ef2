"""The runs that `judge.py` collects: how students are taught, and the pairs that they learn and are judged on."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from trans_encoder.config import VIEWS, TrainingPlan
from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.wording import matched_words, shared_wording
from trans_encoder.distill.judges import LabelFreeJudge
from trans_encoder.distill.labels import PseudoLabels, agreed
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.in_batch import InBatch
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.encoders.merging import merge_into
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.files import atomic_file
from trans_encoder.teachers.scales import combined, laid_on
from trans_encoder.teachers.views import FEWEST_VIEWS

SIZES = {"train": 600, "held_out": 300, "test": 400}
STS = ("sickr", "sts12", "sts13", "sts14", "sts15", "sts16")
"""Data sets of the STS pool; STS-B is left out, because its pairs are of the others."""
UNLABELLED = {"mrpc": "train", "qqp": "train", "qnli": "glue_test_unlabelled"}
"""Data sets that are not of the pool, and where their pairs without labels come from."""
SETS = (*STS, *UNLABELLED)
TEAM = ("mini", "bge", "e5")
RAW = ("bertmini", "tiny")
"""Models without a pooling of their own: mean pooling."""


@dataclass(frozen=True)
class Setting:
    """How a student is taught."""

    start: str
    teachers: tuple[str, ...]
    learning_rate: float
    pool: str = "sts"
    """Whose pairs it learns from."""
    epochs: int = 2
    scale: str = "rank"
    in_batch: float = 0.0
    noise: float = 0.0
    """Share of the labels that are shuffled."""
    keep: float = 1.0
    """Share of the pairs that it learns from: those on which its teachers agree most."""
    seed: int = 0
    """Decides which pairs it learns from, and their order."""
    shares: tuple[float, ...] = (1.0,)
    """Shares of the student in the weights, each counted as a run."""

    @property
    def name(self) -> str:
        """What tells it apart."""
        more = "".join(
            f" {name} {value:g}"
            for name, value, usual in (
                ("in-batch", self.in_batch, 0),
                ("noise", self.noise, 0),
                ("keep", self.keep, 1),
                ("seed", self.seed, 0),
            )
            if value != usual
        )
        taught = f"{self.start} < {'+'.join(self.teachers)}"
        return f"{taught} {self.pool} {self.scale} {self.learning_rate:g} x{self.epochs}{more}"

    @property
    def sets(self) -> tuple[str, ...]:
        """What the student is judged on: the data sets of its pool, and one that a strong start may lose on."""
        if self.pool in UNLABELLED:
            return (self.pool,)
        return (*STS, "qqp") if self.start in STRONG else STS

    @property
    def views(self) -> tuple[str, ...]:
        """The teachers that may judge the student, as in `trans_encoder.distill.team.views_of`."""
        others = [name for name in self.teachers if name not in (self.start, *VIEWS)]
        return tuple(name for name in others if name in STRONG or self.start not in STRONG)


STRONG = TEAM
"""Encoders that were trained on labels: a start of these is judged by others of these alone."""
MERGED, HALF = (1.0, 0.75, 0.5), (1.0, 0.5)
WEAK, TAUGHT = "bertmini", ("bertmini", *TEAM)
SETTINGS = (
    Setting("mini", TEAM, 5e-5, shares=MERGED),
    Setting(WEAK, TAUGHT, 1e-4, shares=MERGED),
    Setting("mini", TEAM, 1e-4, pool="mrpc", shares=HALF),
    Setting(WEAK, TAUGHT, 1e-4, pool="qqp", shares=HALF),
    Setting("mini", TEAM, 1e-4, noise=0.3, shares=HALF),
    Setting("mini", TEAM, 1e-4, pool="qqp", shares=HALF),
    Setting(WEAK, TAUGHT, 1e-4, noise=1.0),
    Setting("mini", TEAM, 1e-4, in_batch=10.0),
    Setting("tiny", ("tiny", *TEAM), 1e-4, shares=HALF),
    Setting("mini", TEAM, 5e-4, shares=HALF),
    Setting("mini", TEAM, 1e-4, pool="qnli", shares=HALF),
    Setting(WEAK, TAUGHT, 1e-4, pool="mrpc", noise=0.5),
    Setting("mini", ("mini", "lexical"), 1e-4),
    Setting(WEAK, TAUGHT, 2e-3, epochs=3),
    Setting(WEAK, (WEAK, "lexical"), 1e-4),
    Setting("mini", (*TEAM, WEAK, "tiny"), 1e-4),
    Setting("tiny", ("tiny", *TEAM), 1e-4, pool="qnli"),
    Setting("mini", TEAM, 1e-3, pool="mrpc", shares=HALF),
    Setting(WEAK, (WEAK, "tiny", "mini"), 1e-4),
    Setting("bge", TEAM, 5e-5, epochs=1, shares=HALF),
    Setting(WEAK, TAUGHT, 1e-4, pool="qnli"),
    Setting("mini", (WEAK, "tiny"), 1e-4, shares=HALF),
    Setting("tiny", ("tiny", *TEAM), 1e-4, noise=1.0, shares=HALF),
    Setting("mini", TEAM, 1e-4, pool="qqp", noise=0.5, shares=HALF),
    Setting(WEAK, TAUGHT, 5e-4, shares=HALF),
    Setting(WEAK, (WEAK, "tiny", "lexical"), 1e-4),
    Setting("mini", TEAM, 2e-4),
    Setting("tiny", ("tiny", "lexical"), 1e-4),
    Setting(WEAK, TAUGHT, 1e-4, keep=0.7),
    Setting("mini", TEAM, 5e-5, scale="none"),
    Setting(WEAK, TAUGHT, 1e-4, scale="none"),
    Setting("e5", TEAM, 5e-5, epochs=1, shares=HALF),
    Setting("mini", TEAM, 1e-4, pool="qnli", noise=0.5),
    Setting(WEAK, (*TAUGHT, "lexical"), 1e-4),
    Setting(WEAK, (WEAK, "bm25"), 1e-4),
    Setting("mini", TEAM, 5e-5, keep=0.7),
    Setting("tiny", ("tiny", *TEAM), 1e-3, pool="mrpc", epochs=3),
    Setting("mini", TEAM, 5e-5, seed=1),
    Setting(WEAK, TAUGHT, 1e-4, seed=1),
    Setting("mini", TEAM, 5e-5, scale="z"),
    Setting(WEAK, TAUGHT, 1e-4, scale="z"),
    Setting("mini", ("mini", "tokens"), 1e-4),
    Setting("bge", TEAM, 3e-4, epochs=1, shares=HALF),
    Setting(WEAK, ("tiny",), 1e-4),
    Setting(WEAK, TAUGHT, 2e-5),
    Setting("mini", TEAM, 1e-3, shares=HALF),
    Setting("tiny", ("tiny", *TEAM), 1e-4, pool="qqp", seed=1),
    Setting("mini", (*TEAM, "lexical"), 5e-5),
    Setting("mini", TEAM, 1e-4, noise=1.0, shares=HALF),
    Setting("mini", TEAM, 1e-4, pool="mrpc", in_batch=10.0),
    Setting(WEAK, (*TAUGHT, "tokens"), 1e-4),
)
"""What students are made with, in this order: so that a part of them is as varied as the whole."""


@dataclass(frozen=True)
class Collection:
    """The pairs of all runs, and the scores that are known of them."""

    data: Path
    out: Path
    models: dict[str, str]

    @cached_property
    def pairs(self) -> dict[str, PairSet]:
        """Of every data set pairs to judge by and to test on, and of every pool those to learn from; none is twice."""
        found: dict[str, PairSet] = {}
        for name in SETS:
            tested = self._read(name, "test")
            found[f"test {name}"] = tested.sample(min(SIZES["test"], len(tested) // 2), seed=0)
        taken = {pair for pairs in found.values() for pair in _texts(pairs)}
        for name in SETS:
            pool = self._read(name, UNLABELLED[name]) if name in UNLABELLED else self._of_pool(name)
            free = pool.take([row for row, pair in enumerate(_texts(pool)) if pair not in taken])
            found[f"held_out {name}"] = free.sample(SIZES["held_out"], seed=0)
            if name in UNLABELLED:
                found[f"learn {name}"] = free.without(found[f"held_out {name}"])
        others = [row for row, names in enumerate(self._sources) if not names]
        return found | {"learn sts": self._pool.take(others)}

    def learnt(self, setting: Setting) -> PairSet:
        """Return the pairs that a student learns from."""
        return self.pairs[f"learn {setting.pool}"].sample(SIZES["train"], seed=setting.seed)

    @cached_property
    def _pool(self) -> PairSet:
        return self._read("sts_pool", "train")

    @cached_property
    def _sources(self) -> list[set[str]]:
        """The data sets that each pair of the pool is in, with a label that is not used here."""
        sources: dict[frozenset[str], set[str]] = {}
        files = [(name, file) for name in (*STS, "stsb") for file in ("train", "dev", "test")]
        for name, file in files:
            if (self.data / name / f"{file}.tsv.gz").exists():
                for pair in _texts(self._read(name, file)):
                    sources.setdefault(pair, set()).add(name)
        return [sources.get(pair, set()) for pair in _texts(self._pool)]

    def _of_pool(self, name: str) -> PairSet:
        return self._pool.take([row for row, names in enumerate(self._sources) if name in names])

    def _read(self, name: str, file: str) -> PairSet:
        columns = ("sentence1", "sentence2", *(("score",) if file == "test" else ()))
        return PairSet.read(self.data / name / f"{file}.tsv.gz", columns=columns)

    def load(self, model: str) -> BiEncoder:
        """Load an encoder by its short name."""
        pooling = "mean" if model in RAW else None
        return BiEncoder.load(self.models[model], pooling=pooling, max_tokens=64)

    def judge(self, name: str) -> LabelFreeJudge:
        """Return the judge of a data set that needs no views."""
        return LabelFreeJudge.of(self.pairs[f"held_out {name}"], seed=0)

    def view(self, name: str, part: str, pairs: PairSet | None = None) -> Scores:
        """Return the scores that a view gives to a part of the pairs, computed once."""
        path = self.out / "views" / f"{part}-{name}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            scores = self._score(name, self.pairs[part] if pairs is None else pairs)
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.savez(file, scores=scores)
        return np.load(path)["scores"]

    def _score(self, name: str, pairs: PairSet) -> Scores:
        if name == "lexical":
            return shared_wording(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist())
        if name == "bm25":
            return matched_words(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist())
        return match_tokens(self.load("mini"), pairs) if name == "tokens" else self.load(name).score(pairs)

    def taught(self, setting: Setting) -> PairSet:
        """Return the pairs that the student learns from, with labels on its own scale."""
        pairs, part = self.learnt(setting), f"learn {setting.pool} {setting.seed}"
        columns = {name: self.view(name, part, pairs) for name in setting.teachers}
        labels = combined(columns, scale=setting.scale)
        labels = laid_on(labels, self.view(setting.start, part, pairs), scale=setting.scale)
        random = np.random.default_rng(0)
        shuffled = np.flatnonzero(random.random(len(labels)) < setting.noise)
        labels[shuffled] = labels[random.permutation(shuffled)]
        found = agreed(PseudoLabels(pairs, labels, columns, {}), share=setting.keep)
        return found.pairs.with_scores(found.scores.astype(np.float64))

    def run(self, setting: Setting, done: set[str]) -> Iterator[dict[str, Any]]:
        """Train a student and yield one line for each share that is not done yet."""
        keys = {share: f"{setting.name} merge {share:g}" for share in setting.shares}
        if set(keys.values()) <= done:
            return
        labelled, begun = self.taught(setting), process_time()
        student = self.load(setting.start)
        with tempfile.TemporaryDirectory() as folder:
            options = TrainingOptions(Path(folder), seed=setting.seed, precision="fp32")
            train(student, labelled, plan=_plan(setting), options=options, in_batch=self._in_batch(setting))
        student.model.eval()
        trained = {name: weight.clone() for name, weight in student.model.state_dict().items()}
        for share, key in keys.items():
            if key in done:
                continue
            student.model.load_state_dict(trained)
            merge_into(student, self.load(setting.start), share=share)
            parts = {f"test {name}": self.pairs[f"test {name}"] for name in setting.sets}
            if len(setting.views) < FEWEST_VIEWS:  # judged by signals of its own, which are of edited texts, too
                parts |= {f"probes {name}": self.judge(name).pairs for name in setting.sets}
            else:
                parts |= {f"held_out {name}": self.pairs[f"held_out {name}"] for name in setting.sets}
            scores = {part: student.score(pairs) for part, pairs in parts.items()}
            file = f"{len(done):04d}.npz"
            (self.out / "students").mkdir(exist_ok=True)
            np.savez(self.out / "students" / file, **scores)
            done.add(key)
            facts = {"key": key, "share": share, "file": file, "seconds": process_time() - begun}
            yield facts | asdict(setting)

    def _in_batch(self, setting: Setting) -> InBatch | None:
        if not setting.in_batch:
            return None
        sentences = self.learnt(setting).distinct().sentences
        names = dict.fromkeys((setting.start, *setting.teachers))
        embeddings = [self.load(name).encode(sentences.to_pylist()) for name in names]
        return InBatch(sentences, embeddings, weight=setting.in_batch)


def _texts(pairs: PairSet) -> list[frozenset[str]]:
    return [frozenset((first, second)) for first, second, _ in pairs.rows()]


def _plan(setting: Setting) -> TrainingPlan:
    return TrainingPlan(
        loss="mse",
        batch_size=32,
        epochs=setting.epochs,
        learning_rate=setting.learning_rate,
        warmup_ratio=0.1,
        max_tokens=64,
        checkpoint_steps=100_000,
    )


def setting_of(line: dict[str, Any]) -> Setting:
    """Return how the student of a collected run was taught."""
    return Setting(**{each.name: line[each.name] for each in fields(Setting) if each.name in line})


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the runs that were collected."""
    path = folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
