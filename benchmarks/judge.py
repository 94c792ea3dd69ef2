"""How often is the judge by views right? Many small runs, what is true of each, and what the judge says.

    python benchmarks/judge.py collect DATA LABELS RUNS --model mini=all-MiniLM-L6-v2 --model bertmini=bert-mini ...
    python benchmarks/judge.py fit DATA LABELS RUNS      # constants, from the data sets in FIT alone
    python benchmarks/judge.py report DATA LABELS RUNS   # how often it is right on the others, and the ablation table

LABELS are saved labels of pairs of the STS pool by all-MiniLM-L6-v2, bge-small and e5-small, as a run of
docs/results.md leaves them. A run trains one bi-encoder on labels that its teachers give to pairs of no scored data
set, with the package's training function, and is judged on each data set apart: on unlabelled held-out pairs, which are
all that the judge sees, and on labelled test pairs, which tell what is true. It adds one JSON line to RUNS/runs.jsonl
when it is done, so that an interrupted collection goes on where it was; scores are kept as .npz in RUNS/views and
RUNS/students.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import transformers

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.wording import shared_wording
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.selection import MARGIN, Verdict, verdict_of
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.encoders.merging import merge_into
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.evaluation.metrics import auc, spearman
from trans_encoder.report.intervals import Interval, bootstrap, interval
from trans_encoder.runs.records import Evidence
from trans_encoder.teachers.scales import combined, laid_on
from trans_encoder.teachers.views import weigh_views

SIZES = {"train": 600, "held_out": 400, "test": 400}
SETS = ("sickr", "sts12", "sts13", "sts14", "sts15", "sts16")
"""Data sets of the pool; STS-B is left out, because its pairs are of the others."""
UNLABELLED = {"mrpc": "train", "qqp": "train", "qnli": "glue_test_unlabelled"}
"""Data sets that are not of the pool, and where their pairs without labels come from."""
METRICS = {"spearman": spearman, "auc": auc}
BINARY = ("mrpc", "qnli", "qqp")
FIT = tuple(sorted((*SETS, "stsb", *UNLABELLED))[::2])
"""Every other data set by name (mrpc, qqp, sts12, sts14, sts16): fixed before the first run was collected."""
COLUMNS = {"mini": "all-MiniLM-L6-v2", "bge": "bge-small-en-v1.5", "e5": "e5-small"}
TEAM = ("mini", "bge", "e5")
RAW = ("bertmini", "tiny")
"""Models without a pooling of their own: mean pooling."""


@dataclass(frozen=True)
class Setting:
    """How a student is taught."""

    start: str
    teachers: tuple[str, ...]
    learning_rate: float
    epochs: int = 2
    scale: str = "rank"
    noise: float = 0.0
    """Share of the labels that are shuffled."""
    shares: tuple[float, ...] = (1.0,)
    """Shares of the student in the weights, each counted as a run."""

    @property
    def name(self) -> str:
        """What tells it apart."""
        noise = f" noise {self.noise:g}" if self.noise else ""
        return f"{self.start} < {'+'.join(self.teachers)} {self.scale} {self.learning_rate:g} x{self.epochs}{noise}"


MERGED = (1.0, 0.75, 0.5)
WEAK, TAUGHT = "bertmini", ("bertmini", *TEAM)
SETTINGS = (
    Setting(WEAK, TAUGHT, 1e-4, shares=MERGED),
    Setting("mini", TEAM, 5e-5, shares=MERGED),
    Setting(WEAK, TAUGHT, 1e-4, noise=1.0),
    Setting(WEAK, TAUGHT, 2e-3, epochs=3),
    Setting(WEAK, (WEAK, "tiny", "lexical"), 1e-4),
    Setting("tiny", ("tiny", *TEAM), 1e-4, shares=(1.0, 0.5)),
    Setting("mini", TEAM, 1e-3, shares=(1.0, 0.5)),
    Setting(WEAK, TEAM, 1e-4, shares=(1.0, 0.5)),
    Setting(WEAK, TAUGHT, 5e-4, shares=(1.0, 0.5)),
    Setting(WEAK, TAUGHT, 1e-4, noise=0.5),
    Setting("mini", TEAM, 1e-4, noise=1.0, shares=(1.0, 0.5)),
    Setting(WEAK, TAUGHT, 1e-4, scale="none"),
    Setting(WEAK, TAUGHT, 1e-4, scale="z"),
    Setting(WEAK, (*TAUGHT, "lexical"), 1e-4),
    Setting(WEAK, (*TAUGHT, "tokens"), 1e-4),
    Setting(WEAK, TAUGHT, 2e-5),
    Setting("tiny", ("tiny", *TEAM), 1e-4, noise=1.0, shares=(1.0, 0.5)),
    Setting("tiny", ("tiny", *TEAM), 1e-3, epochs=3),
    Setting(WEAK, (WEAK, "mini"), 1e-4),
    Setting(WEAK, (WEAK, "lexical"), 1e-4),
    Setting("mini", TEAM, 5e-5, scale="none"),
    Setting("mini", TEAM, 5e-5, scale="z"),
    Setting("mini", (*TEAM, "lexical"), 5e-5),
    Setting("mini", TEAM, 2e-4),
    Setting("mini", (WEAK, "tiny"), 1e-4, shares=(1.0, 0.5)),
    Setting("bge", TEAM, 5e-5, epochs=1, shares=(1.0, 0.5)),
)
"""What students are made with, in this order."""


@dataclass(frozen=True)
class Collection:
    """The pairs of all runs, and the scores that are known of them."""

    data: Path
    labels: Path
    out: Path
    models: dict[str, str]
    sets: tuple[str, ...] = SETS

    @cached_property
    def known(self) -> PseudoLabels:
        """The pairs of the pool with the scores of strong encoders."""
        return PseudoLabels.open(self.labels)

    @cached_property
    def pairs(self) -> dict[str, PairSet]:
        """Pairs to learn from, and of every data set pairs to judge by and to test on; none is in two of them."""
        found: dict[str, PairSet] = {}
        for name in self.sets:
            tested = self._read(name, "test")
            found[f"test {name}"] = tested.sample(min(SIZES["test"], len(tested) // 2), seed=0)
        taken = {pair for pairs in found.values() for pair in _texts(pairs)}
        for name in self.sets:
            pool = self._read(name, UNLABELLED[name]) if name in UNLABELLED else self._of_pool(name)
            rows = [row for row, pair in enumerate(_texts(pool)) if pair not in taken]
            found[f"held_out {name}"] = pool.take(rows[: SIZES["held_out"]])
        if self.sets[0] in UNLABELLED:
            return found | {"train": pool.take(rows[SIZES["held_out"] :][: SIZES["train"]])}
        rows = [row for row, names in enumerate(self._sources) if not names]
        return found | {"train": self.known.pairs.take(rows[: SIZES["train"]])}

    @cached_property
    def _sources(self) -> list[set[str]]:
        """The data sets that each pair of the pool is in, with a label that is not used here."""
        sources: dict[frozenset[str], set[str]] = {}
        files = [(name, file) for name in (*SETS, "stsb") for file in ("train", "dev", "test")]
        for name, file in files:
            if (self.data / name / f"{file}.tsv.gz").exists():
                for pair in _texts(self._read(name, file)):
                    sources.setdefault(pair, set()).add(name)
        return [sources.get(pair, set()) for pair in _texts(self.known.pairs)]

    def _of_pool(self, name: str) -> PairSet:
        return self.known.pairs.take([row for row, names in enumerate(self._sources) if name in names])

    def _read(self, name: str, file: str) -> PairSet:
        columns = ("sentence1", "sentence2", *(("score",) if file == "test" else ()))
        return PairSet.read(self.data / name / f"{file}.tsv.gz", columns=columns)

    def load(self, model: str) -> BiEncoder:
        """Load an encoder by its short name."""
        pooling = "mean" if model in RAW else None
        return BiEncoder.load(self.models[model], pooling=pooling, max_tokens=64)

    def view(self, name: str, part: str) -> Scores:
        """Return the scores that a view gives to a part of the pairs, computed once."""
        path = self.out / "views" / f"{part}-{name}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, scores=self._score(name, self.pairs[part]))
        return np.load(path)["scores"]

    def _score(self, name: str, pairs: PairSet) -> Scores:
        places = {pair: row for row, pair in enumerate(_texts(self.known.pairs))}
        if name in COLUMNS and all(pair in places for pair in _texts(pairs)):
            return self.known.by_teacher[COLUMNS[name]][[places[pair] for pair in _texts(pairs)]]
        if name == "lexical":
            return shared_wording(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist())
        return match_tokens(self.load("mini"), pairs) if name == "tokens" else self.load(name).score(pairs)

    def taught(self, setting: Setting) -> Scores:
        """Return what the student learns, on its own scale."""
        columns = {name: self.view(name, "train") for name in setting.teachers}
        labels = combined(columns, scale=setting.scale)
        labels = laid_on(labels, self.view(setting.start, "train"), scale=setting.scale)
        random = np.random.default_rng(0)
        shuffled = np.flatnonzero(random.random(len(labels)) < setting.noise)
        labels[shuffled] = labels[random.permutation(shuffled)]
        return labels

    def run(self, setting: Setting, done: set[str]) -> Iterator[dict[str, Any]]:
        """Train a student and yield one line for each share that is not done yet."""
        keys = {share: f"{setting.name} merge {share:g}" for share in setting.shares}
        if set(keys.values()) <= done:
            return
        labels, begun = self.taught(setting), process_time()
        student = self.load(setting.start)
        labelled = self.pairs["train"].with_scores(labels.astype(np.float64))
        with tempfile.TemporaryDirectory() as folder:
            options = TrainingOptions(Path(folder), seed=0, precision="fp32")
            train(student, labelled, plan=_plan(setting), options=options)
        student.model.eval()
        trained = {name: weight.clone() for name, weight in student.model.state_dict().items()}
        for share, key in keys.items():
            if key in done:
                continue
            student.model.load_state_dict(trained)
            merge_into(student, self.load(setting.start), share=share)
            scores = {part: student.score(pairs) for part, pairs in self.pairs.items() if part != "train"}
            file = f"{len(done):04d}.npz"
            (self.out / "students").mkdir(exist_ok=True)
            np.savez(self.out / "students" / file, **scores)
            done.add(key)
            facts = {"key": key, "share": share, "file": file, "sets": self.sets, "seconds": process_time() - begun}
            yield facts | asdict(setting)


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


def collect(arguments: argparse.Namespace) -> None:
    """Collect the runs that are not there yet, a line for each as it ends."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    (folder,) = arguments.runs
    folder.mkdir(parents=True, exist_ok=True)
    models = dict(model.split("=", 1) for model in arguments.model)
    sets = (arguments.set,) if arguments.set else SETS
    lines, collection = folder / "runs.jsonl", Collection(arguments.data, arguments.labels, folder, models, sets)
    done = {line["key"] for line in read_lines(folder)}
    for setting in SETTINGS[: arguments.first]:
        for line in collection.run(setting, done):
            with lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{len(done)} {line['key']} {line['seconds']:.0f} s", flush=True)


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the runs that were collected."""
    path = folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


STRONG = TEAM
"""Encoders that were trained on labels: a start of these is judged by others of these alone."""
ANSWERS = ("better", "not better", "not known")
TRUTHS = {1: "better", 0: "no clear difference", -1: "worse"}


@dataclass(frozen=True)
class Judged:
    """A run on one data set: what is true of it, and what the judge sees."""

    name: str
    line: dict[str, Any]
    truth: Interval
    """Gain of the student over its start on the test pairs, with labels."""
    evidence: Evidence | None

    @classmethod
    def of(cls, name: str, line: dict[str, Any], collection: Collection) -> "Judged":
        """Measure a run on the test pairs, and judge it on the held-out ones."""
        student = np.load(collection.out / "students" / line["file"])
        test, held_out = f"test {name}", f"held_out {name}"
        metric, gold = "auc" if name in BINARY else "spearman", collection.pairs[test].scores
        compared = {"start": collection.view(line["start"], test), "student": student[test]}
        found = bootstrap(gold, compared, metric=metric)
        values = {each: METRICS[metric](scores, gold) for each, scores in compared.items()}
        truth = interval(values["student"] - values["start"], found["student"] - found["start"])
        views = [each for each in line["teachers"] if each not in (line["start"], "lexical", "tokens")]
        views = [each for each in views if each in STRONG or line["start"] not in STRONG]
        start = collection.view(line["start"], held_out)
        seen = {each: collection.view(each, held_out) for each in views}
        return cls(name, line, truth, weigh_views(start, student[held_out], seen))

    def says(self, margin: float) -> Verdict:
        """Return the judge's answer."""
        return verdict_of(self.evidence, margin=margin)


def judged_runs(arguments: argparse.Namespace) -> list[Judged]:
    """Measure and judge every run on every data set."""
    models, runs = dict(model.split("=", 1) for model in arguments.model), []
    for folder in arguments.runs:
        lines = read_lines(folder)
        collection = Collection(arguments.data, arguments.labels, folder, models, tuple(lines[0]["sets"]))
        runs += [Judged.of(name, line, collection) for line in lines for name in collection.sets]
    return runs


def counts(runs: Sequence[Judged], margin: float) -> list[str]:
    """Count a judge's answers beside the truth, and how often it is right."""
    said = Counter((run.says(margin).value, run.truth.verdict) for run in runs)
    answered = [run for run in runs if run.says(margin) is not Verdict.NOT_KNOWN]
    signs = [(1 if run.says(margin) is Verdict.BETTER else -1) * run.truth.verdict for run in answered]
    right, open_, wrong = (signs.count(sign) for sign in (1, 0, -1))
    shares = [f"{100 * right / max(right + wrong, 1):.0f} %", f"{100 * (right + open_) / max(len(answered), 1):.0f} %"]
    cells = [str(said[answer, truth]) for answer in ANSWERS for truth in TRUTHS]
    return [str(len(runs)), *cells, *shares, f"{100 * (1 - len(answered) / max(len(runs), 1)):.0f} %"]


_HEAD = ["runs", *(f"{answer}: {truth}" for answer in ANSWERS for truth in TRUTHS.values())]
_HEAD += ["right, of clear ones", "not wrong, of all answers", "not known"]


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def fit(arguments: argparse.Namespace) -> None:
    """Show the verdict of each margin on the runs of the data sets that constants are set on."""
    runs = [run for run in judged_runs(arguments) if run.name in FIT]
    print_table(["margin", *_HEAD], ([f"{margin:g}", *counts(runs, margin)] for margin in (0, 0.25, 0.5, 1, 1.5, 2)))


def report(arguments: argparse.Namespace) -> None:
    """Show how often the judge is right on the other data sets, and what each setting is worth."""
    runs = judged_runs(arguments)
    groups = {"set on": [run for run in runs if run.name in FIT]}
    groups |= {"reported on": [run for run in runs if run.name not in FIT]}
    groups |= {name: [run for run in runs if run.name == name] for name in sorted((*SETS, *UNLABELLED))}
    print_table(["data sets", *_HEAD], ([name, *counts(group, MARGIN)] for name, group in groups.items() if group))
    print()
    ablation(runs)


def ablation(runs: Sequence[Judged]) -> None:
    """Print the mean gain of every setting over the data sets that have it."""
    gains: dict[tuple[str, float], dict[str, float]] = {}
    for run in runs:
        name = run.line["key"].partition(" merge")[0]
        gains.setdefault((name, run.line["share"]), {})[run.name] = run.truth.value
    rows = []
    for (name, share), found in gains.items():
        mean, worst = np.mean(list(found.values())), min(found.values())
        rows.append([name, f"{share:g}", str(len(found)), f"{mean:+.2f}", f"{worst:+.2f}"])
    print_table(["student < teachers scale rate", "merge", "data sets", "mean gain", "worst"], rows)


def main() -> None:
    """Collect, fit or report from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (("collect", collect), ("fit", fit), ("report", report)):
        command = commands.add_parser(name, help=run.__doc__)
        command.add_argument("data", type=Path, help="folder of tasks in the plain format")
        command.add_argument("labels", type=Path, help="saved labels of pairs of the STS pool by strong encoders")
        command.add_argument("runs", type=Path, nargs="+", help="where runs are kept; one folder to collect")
        command.add_argument("--model", action="append", default=[], help="NAME=FOLDER: mini, bge, e5, bertmini, tiny")
        command.add_argument("--set", choices=list(UNLABELLED), help="learn and judge this data set, not the pool's")
        command.add_argument("--first", type=int, help="this many settings only")
        command.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
