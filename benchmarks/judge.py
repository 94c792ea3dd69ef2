"""How often is the judge right without labels? Many small runs, what is true of each, and what the judge says.

    MODELS="--model mini=all-MiniLM-L6-v2 --model bge=bge-small-en-v1.5 --model e5=e5-small"
    MODELS="$MODELS --model bertmini=bert-mini --model tiny=tinybert-4l"
    python benchmarks/judge.py collect DATA RUNS $MODELS    # hours on one thread; continues where it was stopped
    python benchmarks/judge.py fit DATA RUNS $MODELS        # constants, from the data sets in FIT alone
    python benchmarks/judge.py report DATA RUNS $MODELS     # how often it is right on the others; the ablations

A run trains one bi-encoder on labels that its teachers give to 600 unlabelled pairs, with the package's training
function, and is judged on each data set of its pool apart: on unlabelled held-out pairs, which are all that the judge
sees, and on labelled test pairs, which tell what is true. The pairs to learn from are those of the STS pool that belong
to no scored data set, or those of one other data set. Where a run has two views or more these judge, else the signals
of the student alone, as in a run of the package. A run adds one JSON line to RUNS/runs.jsonl when it is done, so that
an interrupted collection goes on where it was; scores are kept as .npz in RUNS/views and RUNS/students.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from judge_runs import SETS, SETTINGS, STRONG, STS, UNLABELLED, Collection, Setting, read_lines, setting_of

from trans_encoder.data.pairs import Scores
from trans_encoder.distill.judges import Comparison, agreement
from trans_encoder.distill.selection import LEARNT, MARGIN, Verdict, verdict_of
from trans_encoder.evaluation.metrics import auc, spearman
from trans_encoder.report.intervals import Interval, bootstrap, interval
from trans_encoder.runs.records import Evidence
from trans_encoder.teachers.scales import combined
from trans_encoder.teachers.views import FEWEST_VIEWS, weigh_views

METRICS = {"spearman": spearman, "auc": auc}
FIT = tuple(sorted((*STS, "stsb", *UNLABELLED))[::2])
"""Every other data set by name (mrpc, qqp, sts12, sts14, sts16): fixed before the first run was collected."""


def collect(arguments: argparse.Namespace) -> None:
    """Collect the runs that are not there yet, a line for each as it ends."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    (folder,) = arguments.runs
    folder.mkdir(parents=True, exist_ok=True)
    models = dict(model.split("=", 1) for model in arguments.model)
    lines, collection = folder / "runs.jsonl", Collection(arguments.data, folder, models)
    done = {line["key"] for line in read_lines(folder)}
    for setting in SETTINGS[: arguments.first]:
        for line in collection.run(setting, done):
            with lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{len(done)} {line['key']} {line['seconds']:.0f} s", flush=True)


TRUTHS = {1: "is better", 0: "no clear difference", -1: "worse"}


@dataclass(frozen=True)
class Judged:
    """A run on one data set: what is true of it, and what the judge sees."""

    name: str
    line: dict[str, Any]
    truth: Interval
    """Gain of the student over its start on the test pairs, with labels."""
    evidence: Evidence | None
    """What views say, if there are enough of them."""
    alone: Verdict
    """What signals of the student alone say, if there are not."""

    @classmethod
    def of(cls, name: str, line: dict[str, Any], collection: Collection) -> "Judged":
        """Measure a run on the test pairs, and judge it on the held-out ones."""
        setting = setting_of(line)
        student = np.load(collection.out / "students" / line["file"])
        test, held_out = f"test {name}", f"held_out {name}"
        metric, gold = "auc" if name in UNLABELLED else "spearman", collection.pairs[test].scores
        compared = {"start": collection.view(setting.start, test), "student": student[test]}
        found = bootstrap(gold, compared, metric=metric)
        values = {each: METRICS[metric](scores, gold) for each, scores in compared.items()}
        truth = interval(values["student"] - values["start"], found["student"] - found["start"])
        if len(setting.views) < FEWEST_VIEWS:
            alone = _judged_alone(name, setting, student[f"probes {name}"], collection)
            return cls(name, line, truth, None, alone)
        start = collection.view(setting.start, held_out)
        seen = {each: collection.view(each, held_out) for each in setting.views}
        return cls(name, line, truth, weigh_views(start, student[held_out], seen), Verdict.NOT_KNOWN)

    def says(self, margin: float) -> Verdict:
        """Return the judge's answer."""
        return self.alone if self.evidence is None else verdict_of(self.evidence, margin=margin)


def _judged_alone(name: str, setting: Setting, student: Scores, collection: Collection) -> Verdict:
    """Judge as a run does without views: by shared wording and light edits, if the start is below the lexical floor."""
    judge = collection.judge(name)
    start = collection.view(setting.start, f"probes {name}", judge.pairs)
    columns = {each: collection.view(each, f"held_out {name}") for each in setting.teachers}
    taught = agreement(student[: len(student) // 2], combined(columns, scale=setting.scale))
    before, after = judge.rate(start), judge.rate(student)
    kept = max(before, after) if taught >= LEARNT else before
    return judge.compare(Comparison("bi", before, kept, taught, setting.start in STRONG))


def judged_runs(arguments: argparse.Namespace) -> list[Judged]:
    """Measure and judge every run on every data set."""
    models, runs = dict(model.split("=", 1) for model in arguments.model), []
    for folder in arguments.runs:
        collection = Collection(arguments.data, folder, models)
        runs += [Judged.of(name, line, collection) for line in read_lines(folder) for name in setting_of(line).sets]
    return runs


def counts(runs: Sequence[Judged], margin: float) -> list[str]:
    """Count a judge's answers beside the truth, and how often it is right."""
    said = Counter((run.says(margin), run.truth.verdict) for run in runs)
    clear = [(answer, truth) for answer, truth in said.elements() if truth and answer is not Verdict.NOT_KNOWN]
    right = sum((answer is Verdict.BETTER) == (truth > 0) for answer, truth in clear)
    unknown = sum(said[Verdict.NOT_KNOWN, truth] for truth in TRUTHS)
    students = len({(run.line["key"].partition(" merge")[0]) for run in runs})
    return [
        str(students),
        str(len(runs)),
        *(", ".join(str(said[answer, truth]) for truth in TRUTHS) for answer in Verdict),
        f"{right} of {len(clear)}",
        f"{100 * unknown / max(len(runs), 1):.0f} %",
    ]


_HEAD = ["trainings", "cases"]
_HEAD += [f"says {answer.value}: {', '.join(TRUTHS.values())}" for answer in Verdict]
_HEAD += ["right where the truth is clear", "not known"]


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
    settings = {id(run): setting_of(run.line) for run in runs}
    reported = [run for run in runs if run.name not in FIT]
    groups = {
        "constants set on": [run for run in runs if run.name in FIT],
        "reported on": reported,
        "... strong starts": [run for run in reported if settings[id(run)].start in STRONG],
        "... weak starts": [run for run in reported if settings[id(run)].start not in STRONG],
        "... fewer than two views": [run for run in reported if run.evidence is None],
        **{name: [run for run in runs if run.name == name] for name in sorted(SETS)},
    }
    print_table(["data sets", *_HEAD], ([name, *counts(group, MARGIN)] for name, group in groups.items() if group))
    print()
    for run in runs:
        if run.truth.verdict * {Verdict.BETTER: 1, Verdict.NOT_BETTER: -1}.get(run.says(MARGIN), 0) < 0:
            print(f"wrong on {run.name}: {run.line['key']}, says {run.says(MARGIN).value}, gain {run.truth.value:+.2f}")
    print()
    ablation(runs)


def ablation(runs: Sequence[Judged]) -> None:
    """Print the gain of every setting: the mean and worst of the data sets of its pool, and of another where known."""
    found: dict[tuple[str, float], dict[str, float]] = {}
    for run in runs:
        found.setdefault((run.line["key"].partition(" merge")[0], run.line["share"]), {})[run.name] = run.truth.value
    pools = {run.line["key"].partition(" merge")[0]: setting_of(run.line).pool for run in runs}
    rows = []
    for (name, share), gains in found.items():
        own = [gain for of, gain in gains.items() if of == pools[name] or of not in UNLABELLED]
        elsewhere = [f"{gain:+.2f}" for of, gain in gains.items() if of in UNLABELLED and of != pools[name]]
        row = [name, f"{share:g}", str(len(own)), f"{np.mean(own):+.2f}", f"{min(own):+.2f}", *elsewhere]
        rows.append([*row, *[""] * (6 - len(row))])
    print_table(["student < teachers, pool, scale, rate", "merge", "data sets", "mean gain", "worst", "QQP"], rows)


def main() -> None:
    """Collect, fit or report from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (("collect", collect), ("fit", fit), ("report", report)):
        command = commands.add_parser(name, help=run.__doc__)
        command.add_argument("data", type=Path, help="folder of tasks in the plain format")
        command.add_argument("runs", type=Path, nargs="+", help="where runs are kept; one folder to collect")
        command.add_argument("--model", action="append", default=[], help="NAME=FOLDER: mini, bge, e5, bertmini, tiny")
        command.add_argument("--first", type=int, help="this many settings only")
        command.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
