"""The report: intervals that are right, a page that says what the run folder says, and nothing that does harm."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from report_runs import HOSTILE, write_real_run, write_run
from trans_encoder.cli import app
from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.run import Result
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.metrics import auc, spearman
from trans_encoder.report import ModelKey, save_evaluation, write_report
from trans_encoder.report.charts import Scale
from trans_encoder.report.intervals import bootstrap, interval
from trans_encoder.report.labels import disagreements
from trans_encoder.report.measuring import evaluate_run
from trans_encoder.report.outcomes import TEAM, read_evaluation
from trans_encoder.report.verdict import compare
from trans_encoder.report.view import RunView
from trans_encoder.runs.run import Run

START, BI, CROSS = ModelKey("start", "bert", "bi"), ModelKey("best", "bert", "bi"), ModelKey("best", "bert", "cross")


class Page(HTMLParser):
    """What a browser would find in a page: its elements with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data + " "

    def tags(self):
        return {tag for tag, _ in self.elements}


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.mark.parametrize("metric", ["spearman", "auc"])
def test_bootstrap_is_the_metric_on_each_resample(metric):
    random = np.random.default_rng(1)
    gold = np.round(random.random(50), 1) if metric == "spearman" else (random.random(50) > 0.4).astype(float)
    scores = np.round(gold + random.normal(0, 0.5, 50), 1)  # rounded, so that there are ties
    replicates = bootstrap(gold, {"model": scores}, metric=metric, resamples=20, seed=7)["model"]
    drawn = np.random.default_rng(7).integers(50, size=(20, 50))
    measure = {"spearman": spearman, "auc": auc}[metric]
    assert replicates == pytest.approx([measure(scores[rows], gold[rows]) for rows in drawn])


def test_bootstrap_does_not_depend_on_how_it_is_cut_into_blocks(monkeypatch):
    gold, scores = np.arange(30.0), np.random.default_rng(0).random(30)
    whole = bootstrap(gold, {"model": scores}, metric="spearman", resamples=11)["model"]
    monkeypatch.setattr("trans_encoder.report.intervals._CELLS_AT_ONCE", 100)
    assert bootstrap(gold, {"model": scores}, metric="spearman", resamples=11)["model"] == pytest.approx(whole)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    random, truth, hits = np.random.default_rng(3), 100 * 6 / np.pi * np.arcsin(0.6 / 2), 0
    for _ in range(100):
        gold = random.normal(size=80)
        scores = 0.6 * gold + 0.8 * random.normal(size=80)
        replicates = bootstrap(gold, {"model": scores}, metric="spearman", resamples=300)["model"]
        found = interval(spearman(scores, gold), replicates)
        hits += found.low <= truth <= found.high
    assert 85 <= hits <= 99


def test_equal_models_differ_clearly_about_one_time_in_twenty():
    random, found = np.random.default_rng(4), 0
    for _ in range(200):
        gold = random.normal(size=60)
        models = {name: gold + random.normal(size=60) for name in ("one", "other")}
        replicates = bootstrap(gold, models, metric="spearman", resamples=200)
        gain = spearman(models["other"], gold) - spearman(models["one"], gold)
        found += interval(gain, replicates["other"] - replicates["one"]).verdict != 0
    assert 3 <= found <= 20


def test_a_gain_is_known_better_than_its_two_scores(run):
    outcome = read_evaluation(run / "evaluation" / "STS12.parquet")
    close = outcome.scores[START] + 1e-3 * np.random.default_rng(0).normal(size=len(outcome.gold))
    replicates = bootstrap(outcome.gold, {"start": outcome.scores[START], "close": close}, metric="spearman")
    assert np.std(replicates["close"] - replicates["start"]) < 0.1 * np.std(replicates["start"])


def test_gold_that_differs_by_little_ranks_in_the_run_as_in_an_evaluation(tmp_path):
    gold = np.array([0.1, 0.5, 0.5 + 1e-9, 0.5 + 2e-9, 0.9])
    scores = np.array([0.0, 0.3, 0.2, 0.1, 0.4], dtype=np.float32)
    saved = save_evaluation(tmp_path, "fine", metric="spearman", gold=gold, scores={BI: scores})
    assert saved.values[BI] == spearman(scores, gold)


def test_evaluation_comes_back_as_saved_with_the_ensemble_added(tmp_path):
    gold = [0.0, 1.0, 0.0, 1.0]
    scores = {ModelKey("best", "a", "bi"): [0.0, 0.5, 0.25, 1.0], ModelKey("best", "b", "bi"): [1.0, 0.5, 0.75, 1.0]}
    saved = save_evaluation(tmp_path, "odd name/../x", metric="auc", gold=gold, scores=scores)
    outcome = read_evaluation(tmp_path / "evaluation" / "odd-name-..-x.parquet")
    assert outcome.values == saved.values
    assert (outcome.name, outcome.metric, outcome.gold.tolist()) == ("odd name/../x", "auc", gold)
    assert outcome.scores[ModelKey("best", TEAM, "bi")].tolist() == [0.5, 0.5, 0.5, 1.0]
    assert outcome.values[ModelKey("best", "a", "bi")] == 100


def test_evaluation_of_another_length_is_refused(tmp_path):
    with pytest.raises(DataError, match="as many scores as gold"):
        save_evaluation(tmp_path, "x", metric="auc", gold=[0.0, 1.0], scores={BI: [0.5]})


@pytest.mark.parametrize(("gain", "answer"), [(0.4, "Yes."), (0.0, "Not clearly."), (-0.8, "No.")])
def test_headline_answers_by_the_interval(tmp_path, gain, answer):
    # By the meaning of a 95 % interval, one seed in twenty would find a gain where there is none.
    headline = compare(RunView(Run.open(write_run(tmp_path / "run", gain=gain, seed=2))).outcomes)[0].headline
    assert headline.answer == answer
    assert "On average over 3 test sets, the bi-encoder went from" in headline.text
    assert ("chance" in headline.text) == (gain == 0)


def test_headline_tells_bi_from_cross(tmp_path):
    gold, random = np.arange(200.0), np.random.default_rng(0)
    scores = {START: gold + random.normal(0, 90, 200), BI: gold, CROSS: random.random(200)}
    headline = compare([save_evaluation(tmp_path, "one", metric="spearman", gold=gold, scores=scores)])[0].headline
    assert headline.answer == "Yes for the bi-encoder, no for the cross-encoder."


def test_labels_that_hardly_differ_are_pointed_out(tmp_path):
    run = write_run(tmp_path / "run", cycles=1, tests=())
    assert "hardly differ" not in read(write_report([run])).text
    path = run / "cycle-1" / "labels-cross.parquet"
    table = pq.read_table(path)
    scores = pa.array(0.5 + table["bert"].to_numpy() / 1000)
    pq.write_table(table.set_column(table.column_names.index("bert"), "bert", scores), path)
    assert "cycle 1, cross: the labels by bert hardly differ" in read(write_report([run])).text


def test_headline_says_when_the_start_was_kept(tmp_path):
    gold, scores = np.arange(40.0), np.random.default_rng(0).random(40)
    outcome = save_evaluation(tmp_path, "one", metric="spearman", gold=gold, scores={START: scores, BI: scores})
    headline = compare([outcome])[0].headline
    assert headline.answer == "No."
    assert "the start itself was chosen" in headline.text


def test_average_is_the_mean_over_test_sets(run):
    comparison = compare(RunView(Run.open(run)).outcomes)[0]
    assert comparison.average.start.value == pytest.approx(np.mean([row.start.value for row in comparison.rows]))
    gain = comparison.average.after["cross"]
    assert gain.gain.value == pytest.approx(gain.score.value - comparison.average.start.value)
    assert all(
        row.after["bi"].gain.low <= row.after["bi"].gain.value <= row.after["bi"].gain.high for row in comparison.rows
    )


def test_page_shows_what_the_run_holds(run):
    page = read(write_report([run]))
    for text in ("Did it help?", "STS12", "SICK-R", "cycle 2: bi → cross", "torch", "2.13.0", "cross.learning_rate"):
        assert text in page.text
    assert "peak memory: 1.4 GB" in page.text
    assert "12 of 250 labels were outside" in page.text


def test_page_is_the_same_every_time(run, tmp_path):
    assert write_report([run]).read_bytes() == write_report([run], tmp_path / "again.html").read_bytes()


def test_page_asks_for_nothing_outside_itself(run):
    page = read(write_report([run]))
    assert not page.tags() & {"img", "iframe", "object", "embed", "video", "audio", "base"}
    references = {
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")
    }
    assert all(reference.startswith(("#", "data:")) for reference in references)
    assert not any("style" in attributes for _, attributes in page.elements)
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_hostile_texts_are_only_text(tmp_path):
    text = write_report([write_run(tmp_path / "run", sentences=HOSTILE, pairs=60)]).read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not page.tags() & {"img", "iframe"}
    assert not any("onmouseover" in attributes for _, attributes in page.elements)
    assert HOSTILE[0] in page.text
    assert HOSTILE[3] in page.text
    assert len(text) < 1_000_000


@pytest.mark.parametrize("place", ["folder", "member", "test", "config"])
def test_hostile_names_are_only_text(tmp_path, place):
    evil = "<b onclick=x>evil"
    options = {"members": (evil,)} if place == "member" else {"tests": (evil,)} if place == "test" else {}
    run = write_run(tmp_path / (evil if place == "folder" else "run"), **options)
    if place == "config":
        (run / "config.json").write_text(json.dumps({evil: [{evil: evil}]}))
    page = read(write_report([run]))
    assert evil in page.text
    assert not any("onclick" in attributes for _, attributes in page.elements)


def test_disagreements_are_those_furthest_apart_in_order(run):
    files = RunView(Run.open(run)).label_files
    found = disagreements(files, limit=30)
    assert len(found) == 30
    first = [one for one in found if one.stage == "cycle 1: bi → cross"]
    label, score = files[0].column("score"), files[1].column("bert")
    places = [100 * np.argsort(np.argsort(values)) / (len(values) - 1) for values in (label, score)]
    gaps = places[1] - places[0]
    assert abs(first[0].gap) == pytest.approx(np.abs(gaps).max())
    row = int(np.abs(gaps).argmax())
    assert (first[0].sentence1, first[0].sentence2) == files[0].texts(np.array([row]))[0]
    assert first[0].student == pytest.approx(score[row])


def test_labels_of_other_pairs_are_not_compared(tmp_path):
    run = write_run(tmp_path / "run", cycles=1)
    folder = RunView(Run.open(run))
    folder.label_files[1].provenance["pairs"] = "other"
    assert disagreements(folder.label_files, limit=10) == []


def test_team_shows_every_member_and_their_agreement(tmp_path):
    page = read(write_report([write_run(tmp_path / "run", members=("bert", "roberta"), cycles=1)]))
    assert "the bi-encoders together went from" in page.text
    assert "bert and roberta (cross)" in page.text
    assert page.text.count("Labels by") == 2


def test_several_runs_stand_side_by_side(run, tmp_path):
    other = write_run(tmp_path / "second", gain=0.1, seed=5)
    page = read(write_report([run, other], tmp_path / "both.html"))
    assert "2 runs side by side" in page.text
    assert [attributes for _, attributes in page.elements].count({"class": "differs"}) == 1  # the seed
    assert "first, cycle 1: bi → cross" in page.text


@pytest.mark.parametrize("missing", ["evaluation", "history.jsonl", "result.json", "manifest.json", "cycle-2", "all"])
def test_unfinished_runs_have_a_page_too(tmp_path, missing):
    run = write_run(tmp_path / "run")
    names = [path.name for path in run.iterdir() if path.name != "config.json"] if missing == "all" else [missing]
    for name in names:
        (run / name).rename(tmp_path / name)
    page = read(write_report([run]))
    assert {"h1", "h2"} <= page.tags()
    if missing == "evaluation":
        assert "Yes, on the dev set." in page.text
    if missing == "all":
        assert "Not finished." in page.text


@pytest.fixture(scope="module")
def label_free(tmp_path_factory, bert, pairs):
    """The page of a real run that had no labels at all."""
    run = write_real_run(tmp_path_factory.mktemp("runs") / "label-free", bert=bert, pairs=pairs, dev=None)
    return read(write_report([run]))


def test_a_run_without_labels_never_speaks_of_a_dev_set(label_free):
    assert "label-free score" in label_free.text
    assert "judged without labels." in label_free.text
    assert "only labelled pairs (--test) can tell for sure" in label_free.text
    assert not re.search(r"\bdev\b", label_free.text.replace("no dev set was given", ""), flags=re.IGNORECASE)


@pytest.mark.parametrize(
    ("helped", "answer"),
    [
        ({"bi": True, "cross": True}, "Yes, on the dev set."),
        ({"bi": False, "cross": True}, "No for the bi-encoder, yes for the cross-encoder, on the dev set."),
        ({"bi": True, "cross": None}, "Yes for the bi-encoder, not known for the cross-encoder, on the dev set."),
        ({"bi": None, "cross": None}, "Not known."),
    ],
)
def test_without_test_sets_the_judge_answers(tmp_path, helped, answer):
    run = write_run(tmp_path / "run", tests=())
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"helped": helped, "cycles": 1}))
    page = read(write_report([run]))
    assert answer in page.text
    assert "1 of 2 cycles" in page.text


def test_standard_self_distillation_has_no_cross(tmp_path):
    run = write_run(tmp_path / "run")
    for path in run.glob("cycle-*/labels-cross.parquet"):
        path.unlink()
    assert "cycle 1: bi → bi" in read(write_report([run])).text


def test_command_writes_the_page_and_names_it(run, tmp_path):
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(page), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"report": str(page)}
    assert page.read_bytes() == write_report([run]).read_bytes()


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"no config\.json"):
        write_report([tmp_path])
    with pytest.raises(RunError, match="at least one run"):
        write_report([])


@pytest.mark.parametrize("name", ["config.json", "history.jsonl"])
def test_damaged_file_is_named(tmp_path, name):
    run = write_run(tmp_path / "run")
    (run / name).write_text("{broken")
    with pytest.raises(RunError, match=name):
        write_report([run])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (57.1, 57.9), (0, 12345), (-0.003, 0.002)])
def test_ticks_are_few_round_and_inside(low, high):
    scale = Scale(low, high, 0, 100)
    assert 3 <= len(scale.ticks) <= 12
    assert all(0 <= place <= 100 for _, place in scale.ticks)
    assert len({label for label, _ in scale.ticks}) == len(scale.ticks)


def test_million_pairs_are_read_in_bounded_memory(tmp_path):
    code = """
import resource, sys
from pathlib import Path
from report_runs import widen, write_run
from trans_encoder.report import write_report

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = write_run(Path(sys.argv[1]) / "run", cycles=1, tests=())
write_report([run])
widen(run, rows=1_000_000, characters=150)
before = peak()
print(write_report([run]).stat().st_size, peak() - before)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    size, kilobytes = map(int, done.stdout.split())
    assert size < 600_000
    assert kilobytes < 150_000  # the texts of each of the two files are 300 MB


def test_real_run_has_a_report(tmp_path, bert, pairs, dev):
    run = write_real_run(tmp_path / "run", bert=bert, pairs=pairs, dev=dev)
    tests = {"first": TestSet("first", dev), "second": TestSet("second", pairs.with_scores(np.arange(len(pairs)) % 2))}
    outcomes = evaluate_run(run, tests)
    assert [(one.name, one.metric) for one in outcomes] == [("first", "spearman"), ("second", "auc")]
    chosen = Result.open(run)
    assert outcomes[0].values[START] == pytest.approx(chosen.members["bert"].start_score, abs=0.01)
    assert outcomes[0].values[CROSS] == pytest.approx(chosen.members["bert"].cross.score, abs=0.01)
    page = read(write_report([run]))
    gradients = "cycle 1: gradient that BCE leaves"
    for text in ("first", "second", "cycle 1: bi → cross", gradients, "cycle-1/bert/cross", "sentence-transformers"):
        assert text in page.text
