"""The paper's studies: each runs to its table on tiny models, runs are shared, and the paper's figures are its own."""

import json
import re
from collections import defaultdict
from functools import partial
from statistics import fmean

import pytest
from typer.testing import CliRunner

from conftest import graded
from trans_encoder.cli import app
from trans_encoder.config import PAPER_METHOD, PRESETS, make_config
from trans_encoder.data.tasks import Task, TestSet, load_task
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.known import KNOWN
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.evaluation.evaluate import evaluate
from trans_encoder.paper.catalogue import STUDIES
from trans_encoder.paper.experiment import experiment
from trans_encoder.paper.models import StudyModels
from trans_encoder.paper.printed import figure, find_reference, hub_names, paper_models, paper_tables
from trans_encoder.paper.scale import Scale
from trans_encoder.paper.study import AVERAGE, Question, Study, heading
from trans_encoder.paper.table import Cell, Line, Table

BINARY = ("qqp", "qnli", "mrpc")
SIZES = {"train": 60, "dev": 24, "test": 30}


def write_split(folder, name, pairs, *, binary=False):
    path = folder / f"{name}.tsv"
    path.parent.mkdir(exist_ok=True)
    lines = ["sentence1\tsentence2\tscore"]
    for first, second, score in pairs.rows():
        lines.append(f"{first}\t{second}\t{int(score > 0.5) if binary else score}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Every task of the paper in the plain format, some dozens of pairs each."""
    folder = tmp_path_factory.mktemp("data")
    seed = 100
    for task in ("stsb", "sickr", *BINARY, "snli"):
        for split, count in SIZES.items():
            write_split(folder, f"{task}/{split}", graded(count, seed=seed), binary=task in BINARY)
            seed += 1
    for year in range(12, 17):
        write_split(folder, f"sts{year}/test", graded(SIZES["test"], seed=seed + year))
    return folder


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, data, bert, roberta):
    """Run a study with as many models as the paper's (two at most), in one folder, so that studies share their runs."""
    out = tmp_path_factory.mktemp("experiments")

    def run(name, **options):
        models = [str(bert), str(roberta)][: len(STUDIES[name].models)]
        return experiment(name, models, out=out, data_dir=data, scale="smoke", **options)

    run.out = out
    return run


def invoke(*arguments):
    return CliRunner().invoke(app, ["experiment", *map(str, arguments)])


def weights(folder):
    """Return when each model of each run was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/**/model.safetensors")}


def test_the_list_names_every_table_and_figure_with_results():
    listed = json.loads(invoke("--list", "--json").stdout)["experiments"]
    covered = {place for study in listed for place in study["paper"]}
    tables = {f"Table {number}" for number in range(1, 15)}
    assert covered == tables | {"Figure 3a", "Figure 3b", "Figure 4", "Figure 5", "Figure 6", "Appendix, Eq. 4"}
    shown = invoke("--list").stdout
    assert all(re.search(rf"\b{name}\b", shown) for name in STUDIES)


def test_contrastive_tuning_that_hurts_dev_is_not_shown_as_the_start(bert, data, tmp_path, monkeypatch):
    marks = iter(range(90, 0, -1))
    monkeypatch.setattr("trans_encoder.distill.judges.DevJudge.__call__", lambda self, encoder: float(next(marks)))
    bench = StudyModels(tmp_path, data, Scale.parse("smoke"), "paper", {"device": "cpu"})
    question, member = Question(way="contrastive", task="mrpc"), make_config([str(bert)]).members[0]
    tuned, start = (make(question, member) for make in (partial(bench.contrast, seed=1), bench.start))
    pairs = graded(10, seed=3).without_scores()
    assert (tuned.score(pairs) != start.score(pairs)).any()  # one small step was made, and is seen


def test_the_start_of_a_study_is_what_evaluate_says_of_it(bert, data, tmp_path):
    bench = StudyModels(tmp_path, data, Scale.parse("smoke"), "paper", {"device": "cpu", "bi.max_tokens": 8})
    start = bench.start(Question(way="start", task="mrpc"), make_config([str(bert)]).members[0])
    test = bench.task("mrpc").tests["mrpc"]
    assert start.score(test.pairs).tolist() == BiEncoder.load(bert).score(test.pairs).tolist()


def test_a_study_with_the_preset_small_shows_the_papers_method(data, bert, tmp_path):
    experiment("starts", [str(bert)], out=tmp_path, data_dir=data, scale="smoke", preset="small")
    configs = [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("runs/*/config.json")]
    assert len(configs) == 1
    method = make_config([str(bert)], preset="paper-sts")
    for name in PAPER_METHOD:
        assert {config[name] for config in configs} == {getattr(method, name)}
    assert {member["directions"] for config in configs for member in config["members"]} == {0}


NOT_PRINTED = {"cycles", "pairs", "losses", "gradients"}
"""Studies of which the paper prints no numbers."""
NOT_PRINTED_ROWS = defaultdict(set, strategies={"sequential ensemble", "mutual"})
"""Rows of other studies of which the paper prints none there."""


def empty_cells(name):
    """Return the cells that stay empty: a start has no cross-encoder, smoke has one cycle, the outcome is words."""
    columns = {"cycles": [f"cycle {cycle}" for cycle in range(2, 6)], "losses": ["outcome"]}.get(name, [])
    everywhere = {(row.label, column) for row in STUDIES[name].rows for column in columns}
    crosses = {
        "cycles": {(f"{task} (cross)", "start") for task in ("STS", "QQP", "QNLI")},
        "pairs": {("start", "cross")},
    }
    return everywhere | crosses.get(name, set())


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_to_its_table(name, smoke):
    study, table = STUDIES[name], smoke(name)
    models = min(2, len(study.models))
    assert len(table.lines) == models * len(study.rows) + len(study.team_rows)
    cells = {(line.label, column): cell for line in table.lines for column, cell in line.cells.items()}
    assert {place for place, cell in cells.items() if not cell.values} == empty_cells(name)
    assert all(len(cell.values) in (0, 1, min(2, study.seeds)) for cell in cells.values())
    if name not in NOT_PRINTED:
        printed = [cell for (row, _), cell in cells.items() if row.rpartition(" (")[0] not in NOT_PRINTED_ROWS[name]]
        assert all(isinstance(cell.paper, float | int) for cell in printed)
    assert [note for note in table.notes if "smoke" not in note] == []

    written = json.loads((smoke.out / name / "table.json").read_text())
    assert written == json.loads(json.dumps(table.to_dict()))
    assert {path.name for path in (smoke.out / "runs").iterdir()} >= set(written["runs"])
    markdown = (smoke.out / name / "table.md").read_text()
    assert markdown.count("\n| ") == len(table.lines) + 2
    assert all(" | ".join(row) in markdown for row in table.body)


def test_a_finished_study_is_read_not_run(smoke):
    before, made = smoke("seeds"), weights(smoke.out)
    assert smoke("seeds").to_dict() == before.to_dict()
    assert weights(smoke.out) == made


def test_studies_share_their_runs(smoke):
    sts, transfer = smoke("sts"), smoke("transfer")
    made = weights(smoke.out)
    assert set(smoke("starts").runs) < set(sts.runs) == set(transfer.runs)
    team = {run for run in sts.runs if "bert-32-roberta-48" in run}
    assert set(smoke("strategies").runs) & set(sts.runs) == set(smoke("starts").runs) | team
    assert {path: time for path, time in weights(smoke.out).items() if path in made} == made


def test_a_model_is_the_same_by_whatever_path(smoke, bert, data, monkeypatch):
    runs = smoke("pairs").runs
    monkeypatch.chdir(bert.parent)
    table = experiment("pairs", [bert.name], out=smoke.out, data_dir=data, scale="smoke")
    assert table.runs == runs


def test_figures_are_those_of_the_models_on_the_task(smoke, bert, data):
    """The start, the ensemble and the best trained model, measured by the library itself."""
    table = smoke("sts")
    task = load_task("sts", data_dir=data)
    line = {(line.model, line.label): line for line in table.lines}
    start = BiEncoder.load(bert, max_tokens=32)
    assert figures(line["bert-32", "start"]) == pytest.approx(evaluate(start, task).scores)
    mutual = smoke.out / "runs" / next(run for run in table.runs if "bert-32-roberta-48" in run)
    trained = {name: mutual / "cycle-1" / name / "cross" for name in ("bert-32", "roberta-48")}
    for name, folder in trained.items():
        assert figures(line[name, "mutual (cross)"]) == pytest.approx(evaluate(folder, task).scores)
    together = evaluate(list(trained.values()), task)
    assert figures(line["ensemble", "mutual (cross)"]) == pytest.approx(together.scores)
    assert line["ensemble", "mutual (cross)"].cells[AVERAGE].mean == pytest.approx(together.average)


def figures(line):
    names = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    return dict(zip(names, (cell.mean for name, cell in line.cells.items() if name != AVERAGE), strict=True))


def test_a_row_of_training_never_shows_the_start(smoke, bert, data, tmp_path):
    """A run keeps its start where training did harm; the table must show the harm."""
    table = experiment("standard", [str(bert)], out=tmp_path, data_dir=data, scale="smoke", **{"bi.learning_rate": 0.3})
    start, standard = (line.cells["STS"].mean for line in table.lines[:2])
    assert standard < start - 1


def test_without_a_team_there_is_no_mutual_distillation(smoke, bert, data):
    table = experiment("sts", [str(bert)], out=smoke.out, data_dir=data, scale="smoke")
    assert [line.label for line in table.lines] == ["start", "self (bi)", "self (cross)"]
    assert any("give more" in note for note in table.notes)


def test_a_breakdown_is_a_finding_only_where_it_may_be(bert, data, tmp_path):
    options = {"out": tmp_path, "data_dir": data, "scale": "smoke", "cross": {"learning_rate": 1e30}}
    table = experiment("losses", [str(bert)], **options)
    assert not any(cell.values for line in table.lines for cell in line.cells.values())
    assert any("broke down" in note for note in table.notes)
    with pytest.raises(RunError, match="cycle 1"):
        experiment("seeds", [str(bert)], **options)


def test_missing_data_is_found_before_anything_is_trained(bert, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match="which this task needs"):
        experiment("pairs", [str(bert)], out=tmp_path / "out", data_dir=tmp_path / "data")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_table_or_one_json_object(smoke, bert, roberta, data):
    table = smoke("seeds")
    arguments = ["seeds", "--models", bert, "--models", roberta, "--data-dir", data, "--out", smoke.out]
    shown = invoke(*arguments, "--scale", "smoke")
    assert shown.exit_code == 0, shown.output
    assert "(78.72)" in shown.stdout
    printed = json.loads(invoke(*arguments, "--scale", "smoke", "--json").stdout)
    assert printed.pop("out") == str(smoke.out / "seeds")
    assert printed == json.loads(json.dumps(table.to_dict()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stss"], 'did you mean "sts"'),
        (["sts", "--scale", "2"], "expected full, smoke or a fraction"),
        (["starts", "--preset", "paper-large"], "give the models to use with --models"),
        ([], "--list explains them"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message, tmp_path):
    result = invoke("--out", tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_scale_cuts_pairs_and_epochs():
    pairs, test = graded(100, seed=5), TestSet("test", graded(300, seed=6))
    task = Task("own", pairs, dev=test, tests={"test": test})
    fifth = Scale.parse("0.2")
    assert len(fifth.task(task).pairs) == 20
    assert fifth.task(task).pairs.hash == Scale.parse(0.2).task(task).pairs.hash
    assert fifth.task(task).tests == task.tests
    assert fifth.settings("paper-binary") == {"cross.epochs": 1, "bi.epochs": 3}
    assert (fifth.seeds(5), fifth.limits()) == (5, {})

    full = Scale.parse("full")
    assert full.task(task).pairs is pairs
    assert full.settings("paper-binary") == {"cross.epochs": 3, "bi.epochs": 15}

    smoke = Scale.parse("smoke").task(task)
    assert (len(smoke.pairs), len(smoke.dev.pairs), len(smoke.tests["test"].pairs)) == (48, 200, 200)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "nan", "half"])
def test_a_scale_that_is_none_is_refused(text):
    with pytest.raises(ConfigurationError, match="expected full, smoke or a fraction"):
        Scale.parse(text)


def test_the_papers_tables_are_whole():
    tables = paper_tables()
    assert {table["number"] for table in tables.values()} == {f"Table {number}" for number in range(1, 18)}
    for name, table in tables.items():
        for rows in table.get("rows", {}).values():
            assert all(len(row) == len(table["columns"]) for row in rows.values()), name


def test_short_tables_of_the_paper_agree_with_their_full_ones():
    tables = paper_tables()
    for short, full in (("binary", "binary_full"), ("binary_transfer", "binary_transfer_full")):
        for model, rows in tables[short]["rows"].items():
            assert rows == tables[full]["rows"][model]


def test_printed_averages_are_those_of_the_printed_scores():
    """All but three slips of the paper's own."""
    slips = set()
    for name, table in paper_tables().items():
        if table.get("columns", [])[-1:] != [AVERAGE]:
            continue
        for model, rows in table["rows"].items():
            for label, (*scores, average) in rows.items():
                if abs(fmean(scores) - average) > 0.016:
                    slips.add((name, model, label))
    assert slips == {
        ("sts", "large ensemble", "start"),
        ("label_leak", "Mirror-RoBERTa-base-drophead", "start"),
        ("label_leak", "Mirror-RoBERTa-base-drophead", "self (cross)"),
    }


def test_presets_are_the_papers_hyperparameters():
    for size, rows in paper_tables()["hparams"]["rows"].items():
        for label, row in rows.items():
            task, kind = re.fullmatch(r"(\w+) \((\w+)\)", label).groups()
            preset = PRESETS[f"paper-{task.lower()}" + ("-large" if size == "large models" else "")]
            names = ("learning_rate", "batch_size", "epochs", "max_tokens")
            assert [*(preset[kind][name] for name in names), preset["cycles"]] == row


def test_the_papers_models_are_known_and_the_default():
    for study in STUDIES.values():
        assert all(name in KNOWN for name in hub_names(study.models, large=False))
    large = hub_names(STUDIES["sts"].models, large=True)
    assert large == [paper_models()[f"SimCSE-{family}-large"] for family in ("BERT", "RoBERTa")]


def test_a_model_of_the_paper_is_shown_beside_itself():
    roberta = paper_models()["SimCSE-RoBERTa-base"]
    assert find_reference("sts", model=roberta, large=False) == "SimCSE-RoBERTa-base"
    assert find_reference("sts", model="runs/mine", large=False) == "SimCSE-BERT-base"
    assert find_reference("sts", model="runs/mine", large=True) == "SimCSE-BERT-large"
    assert find_reference("runtime", model=roberta, large=True) == "large models"
    assert find_reference(None, model=roberta, large=False) is None
    assert figure("sts", reference="SimCSE-BERT-base", row="mutual (bi)", column="STS-B") == 83.90
    assert figure("sts", reference="SimCSE-BERT-base", row="mutual (bi)", column="QQP") is None


def test_a_table_shows_seeds_the_papers_figures_and_no_empty_columns():
    study = Study(
        "own", "a test", ("Table 0",), rows=(heading("self"),), columns=(heading("a"), heading("b"), heading("c"))
    )
    cells = {"a": Cell((1.0, 2.0), paper=3.0), "b": Cell(), "c": Cell((1.0, 2.0), "sd")}
    table = Table(study, {"seeds": [1, 2]}, (Line("mine", "self", "theirs", cells),))
    assert table.header == ["model", "row", "a", "c"]
    assert table.body == [["mine", "self", "1.50 ± 0.71 (3.00)", "0.71"]]
    assert table.caption == "In brackets the paper's: theirs beside mine."
    assert "| mine | self | 1.50 ± 0.71 (3.00) | 0.71 |" in table.to_markdown()
    assert "- seeds: 1, 2" in table.to_markdown()
