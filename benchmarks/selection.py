"""Which signals that need no labels tell the quality of a checkpoint? Collects the evidence, and reads it.

    python benchmarks/selection.py --model MODEL --data-dir DATA --pairs 6000 --seeds 3 --json selection.jsonl
    python benchmarks/selection.py --analyse selection.jsonl --plot selection.svg

Collecting runs small distillations on the STS pool, or on pairs mined from a text (--text), one model alone or several
(--model again) as a team, and writes a line for every checkpoint: all signals, the score on STS-B dev, and the average
over the seven STS test sets. Labels are used to evaluate only. The analysis prints Markdown tables.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, cast

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import transformers
from measuring import sampled
from probes import ProbeScores, ProbeSet, make_probe_set
from scipy.stats import spearmanr
from signals import SIGNALS, measure_signals, parts_for

from trans_encoder import BiEncoder, Text, mine
from trans_encoder.config import make_config, parse_overrides
from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.tasks import Task, TestSet, load_task
from trans_encoder.distill.judges import WEIGHTS, Comparison, DevJudge, hold_out
from trans_encoder.distill.run import run
from trans_encoder.distill.selection import Candidate, Verdict, choose
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.mining import Mix
from trans_encoder.teachers import Teacher

Row = dict[str, Any]


class Seen(NamedTuple):
    """What was seen of one checkpoint."""

    probed: ProbeScores
    dev: float
    sts: float


CROSS_JUDGEMENTS = 6
SENTENCES = 20_000
SCORE, LAST = "label-free score", "the last one"


@dataclass
class Recorder:
    """A judge that chooses by the dev set and keeps the scores of every checkpoint."""

    judge: DevJudge
    tests: dict[str, TestSet]
    probes: ProbeSet
    seen: list[Seen] = field(default_factory=list)
    name, basis, fingerprint = "spearman", "on dev", "recorder"
    has_labels = True

    @property
    def pairs(self) -> PairSet:
        return self.judge.pairs

    def rate(self, scores: Scores) -> float:
        return self.judge.rate(scores)

    def together(self, encoders: Sequence[Teacher]) -> float:
        return self.judge.together(encoders)

    def agreement(self, *given: Any, **named: Any) -> None:
        return self.judge.agreement(*given, **named)

    def weigh(self, *given: Any, **named: Any) -> None:
        return self.judge.weigh(*given, **named)

    def floor(self) -> None:
        return self.judge.floor()

    def compare(self, comparison: Comparison) -> Verdict:
        return self.judge.compare(comparison)

    def __call__(self, encoder: Teacher) -> float:
        parts = [self.probes.pairs, self.pairs.without_scores()]
        parts += [test.pairs.without_scores() for test in self.tests.values()]
        ends = np.cumsum([len(part) for part in parts])
        probed, dev, *scores = np.split(encoder.score(reduce(PairSet.concat, parts)), ends[:-1])
        sts = np.mean([measure(each, test) for each, test in zip(scores, self.tests.values(), strict=True)])
        self.seen.append(Seen(self.probes.split(probed), self.rate(dev), float(sts)))
        return self.seen[-1].dev


def collect(arguments: argparse.Namespace, task: Task, *, seed: int) -> Iterator[Row]:
    """Run one distillation and yield a row for every checkpoint and every start."""
    training, held_out = hold_out(_pairs(arguments, task, seed=seed), seed=seed)
    tests = {name: sampled(test, arguments.test_pairs) for name, test in task.tests.items()}
    recorder = Recorder(DevJudge(task.dev), tests, make_probe_set(held_out, seed=seed, parts=parts_for(SIGNALS)))
    settings = {
        "cycles": arguments.cycles,
        "cross.dev_steps": max(2 * len(training) // 32 // CROSS_JUDGEMENTS, 1),
        "anchor": 0.0,
        "patience": 0,
        **parse_overrides(arguments.set),
        "seed": seed,
    }
    config = make_config(arguments.model, overrides=settings)
    with tempfile.TemporaryDirectory() as folder:
        run(config, training, out=Path(folder), judge=recorder)
        history = [json.loads(line) for line in (Path(folder) / "history.jsonl").read_text("utf-8").splitlines()]
    name = " + ".join(str(member.name) for member in config.members)
    source = f"text ({arguments.mix or 'default'} mix)" if arguments.text else "pool"
    run_name = f"{name}, {arguments.pairs} pairs of the {source}, seed {seed} {' '.join(arguments.set)}".strip()
    about = {"run": run_name, "team": name, "source": source}
    moments = list(zip(history, recorder.seen, strict=True))
    for moment, seen in moments:
        signals = measure_signals(replace(seen.probed, **_known(moment, moments)))
        place = {key: moment[key] for key in ("cycle", "member", "kind", "step")}
        yield {**about, **place, "dev": seen.dev, "sts": seen.sts, "signals": signals}


def _pairs(arguments: argparse.Namespace, task: Task, *, seed: int) -> PairSet:
    if not arguments.text:
        return task.pairs.sample(arguments.pairs, seed=seed)
    text = Text.read(arguments.text)
    start = BiEncoder.load(arguments.model[0].partition("=")[0])
    text = text.sample(min(len(text), SENTENCES), seed=0)
    mix = Mix.parse(arguments.mix) if arguments.mix else None
    return mine(text, pairs=arguments.pairs, encoder=start, mix=mix, seed=seed).pairs


def _known(moment: Row, moments: list[tuple[Row, Seen]]) -> dict[str, Any]:
    """Find what others said of the held-out pairs when a checkpoint was made: its teachers, and the starts."""
    starts = {line["member"]: seen.probed.plain for line, seen in moments if line["cycle"] == 0}
    known: dict[str, Any] = {"start": np.mean(list(starts.values()), axis=0)}
    if moment["cycle"] == 0:
        return known
    wanted = (moment["cycle"], "cross") if moment["kind"] == "bi" else (moment["cycle"] - 1, "bi")
    best: dict[str, Seen] = {}
    for line, seen in moments:
        member = line["member"]
        if (line["cycle"], line["kind"]) == wanted and (member not in best or seen.dev > best[member].dev):
            best[member] = seen
    teachers = {member: seen.probed.plain for member, seen in best.items()}
    own = teachers.pop(moment["member"])
    known |= {"partner": own, "teacher": np.mean([own, *teachers.values()], axis=0)}
    return known | ({"others": np.mean(list(teachers.values()), axis=0)} if teachers else {})


def analyse(rows: list[Row], plot_path: Path | None) -> None:
    """Print how well each signal tells the dev score, and what choosing by it costs."""
    for row in rows:
        row["signals"][SCORE] = sum(weight * row["signals"][name] for name, weight in WEIGHTS.items())
    for number, kind in enumerate(("bi", "cross")):
        chosen = [row for row in rows if row["kind"] == kind or row["cycle"] == 0]
        print(("\n" if number else "") + f"### {kind}-encoders\n")
        print("| signal | in a training | in a run | across runs | loss, mean | loss, worst | right about the start |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for signal in [SCORE, *SIGNALS]:
            print(f"| {signal} | " + " | ".join(_figures(chosen, signal, kind=kind)) + " |")
        lost = [
            _loss(group, key=lambda row: (row["cycle"], row["step"]))
            for group in _groups(_trained(chosen), "run", "member")
        ]
        print(f"| {LAST} | | | | {np.mean(lost):.2f} | {np.max(lost):.2f} | |")
    print("\n### What is chosen without labels\n")
    print("| run | kind | start | chosen with dev | without labels | loss | agreement | said to be better | is |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |")
    for group in _groups(rows, "run", "member"):
        for kind in ("cross", "bi"):
            print("| " + " | ".join(_choice(group, kind=kind)) + " |")
    if plot_path:
        plot(rows, plot_path)


def _choice(rows: list[Row], *, kind: str) -> list[str]:
    """Compare what the default chooses from a member's encoders of a kind with what the dev set would."""
    start, trained = rows[0], [row for row in _trained(rows) if row["kind"] == kind]
    ends = [start, *(group[-1] for group in _groups(trained, "cycle"))]
    candidates = [
        Candidate(cast(Any, row), row["cycle"], row["step"], row["signals"][SCORE], row["signals"]["teacher"])
        for row in ends
    ]
    best = choose(candidates if kind == "bi" else candidates[1:])
    chosen, last = cast(Row, best.model), ends[-1]
    with_dev = max(trained + ([start] if kind == "bi" else []), key=lambda row: row["dev"])
    said = best.cycle > 0 if kind == "bi" else best.has_learnt
    return [
        f"{start['run']}" + (f", {start['member']}" if " + " in start["team"] else ""),
        kind,
        *(f"{row['sts']:.2f}" for row in (start, with_dev, chosen)),
        f"{with_dev['sts'] - chosen['sts']:.2f}",
        f"{last['signals']['teacher']:.1f}",
        "yes" if said else "no",
        "yes" if last["sts"] > start["sts"] else "no",
    ]


def _figures(rows: list[Row], signal: str, *, kind: str) -> list[str]:
    rows = [row for row in rows if row["signals"][signal] is not None]
    trainings = [_correlation(group, signal) for group in _groups(_trained(rows), "run", "member", "cycle")]
    # A cross-encoder is not compared with the start here: it is another kind of model.
    own = rows if kind == "bi" else _trained(rows)
    runs = list(_groups(own, "run", "member"))
    ends = [max(group, key=lambda row: row["dev"]) for group in runs]
    losses = [_loss(group, key=lambda row: row["signals"][signal]) for group in runs]
    right = [verdict for group in _groups(rows, "run", "member") if (verdict := _verdict(group, signal)) is not None]
    return [
        _number(_mean(trainings)),
        _number(_mean([_correlation(group, signal) for group in runs])),
        _number(_correlation(ends, signal)),
        _number(_mean(losses)),
        _number(max(losses, default=None)),
        f"{sum(right)} of {len(right)}" if right else "",
    ]


def _trained(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["cycle"] > 0]


def _groups(rows: list[Row], *keys: str) -> Iterator[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    yield from groups.values()


def _correlation(rows: list[Row], signal: str) -> float | None:
    signals, dev = [row["signals"][signal] for row in rows], [row["dev"] for row in rows]
    if len(rows) < 3 or np.ptp(signals) == 0 or np.ptp(dev) == 0:
        return None
    return float(spearmanr(signals, dev).statistic)


def _loss(rows: list[Row], *, key: Callable[[Row], Any]) -> float:
    """Return how much lower the seven-task average is of the checkpoint with the highest key than of dev's choice."""
    return float(max(rows, key=lambda row: row["dev"])["sts"] - max(rows, key=key)["sts"])


def _verdict(rows: list[Row], signal: str) -> bool | None:
    """Tell whether the signal is right about the best trained checkpoint being better than the start."""
    starts, trained = [row for row in rows if row["cycle"] == 0], _trained(rows)
    if not starts or not trained:
        return None
    start, chosen = starts[0], max(trained, key=lambda row: row["signals"][signal])
    return bool((chosen["signals"][signal] > start["signals"][signal]) == (chosen["sts"] > start["sts"]))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def plot(rows: list[Row], path: Path) -> None:
    """Draw what the default decides by against the dev score of every checkpoint, one colour for each team."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
    teams = list(dict.fromkeys(row["team"] for row in rows))
    for axis, kind, signal in ((axes[0], "bi", SCORE), (axes[1], "cross", "teacher")):
        for team, colour in zip(teams, plt.get_cmap("tab10").colors, strict=False):
            for start, marker in ((False, "."), (True, "*")):
                shown = [row for row in rows if (row["team"], row["kind"], row["cycle"] == 0) == (team, kind, start)]
                axis.scatter(
                    [row["signals"][signal] for row in shown],
                    [row["dev"] for row in shown],
                    s=80 if start else 30,
                    color=colour,
                    marker=marker,
                    label=None if start else team,
                )
        axis.set(title=f"{kind}-encoders", xlabel=SCORE if signal == SCORE else "agreement with the teachers")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("Spearman x100 on STS-B dev")
    axes[0].legend(fontsize="small", title="a star is a start", title_fontsize="small")
    figure.savefig(path)


def main() -> None:
    """Collect or analyse from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="a bi-encoder; again for a team")
    parser.add_argument("--data-dir", help="folder of tasks in the plain format")
    parser.add_argument("--text", type=Path, help="mine the pairs from this text, not from the STS pool")
    parser.add_argument("--mix", help="shares of the bands of mined pairs, such as 4,2,2,2,0")
    parser.add_argument("--pairs", type=int, default=6000, help="pairs to learn from (default: 6000)")
    parser.add_argument("--test-pairs", type=int, default=1000, help="most pairs of each test set (default: 1000)")
    parser.add_argument("--cycles", type=int, default=2, help="cycles of each run (default: 2)")
    parser.add_argument("--seeds", type=int, default=1, help="runs with different seeds (default: 1)")
    parser.add_argument("--set", action="append", default=[], help="a setting of the run, as cross.learning_rate=2e-5")
    parser.add_argument("--json", type=Path, default=Path("selection.jsonl"), help="where the lines are added")
    parser.add_argument("--analyse", type=Path, help="read the lines of this file instead of collecting any")
    parser.add_argument("--plot", type=Path, help="where the analysis draws its plot (SVG)")
    arguments = parser.parse_args()
    if arguments.analyse:
        analyse([json.loads(line) for line in arguments.analyse.read_text("utf-8").splitlines()], arguments.plot)
        return
    if not arguments.model or not arguments.data_dir:
        parser.error("give --model and --data-dir, or --analyse FILE")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    task = load_task("sts", data_dir=arguments.data_dir)
    for seed in range(arguments.seeds):
        rows = list(collect(arguments, task, seed=seed))
        with arguments.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(f"seed {seed}: {len(rows)} checkpoints added to {arguments.json}")


if __name__ == "__main__":
    main()
