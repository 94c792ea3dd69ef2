"""The commands, run for real on tiny models: results, JSON, errors with their exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from conftest import graded
from trans_encoder.cli import COMMANDS, app
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder

FAST = ["cycles=1", "cross.epochs=1", "bi.epochs=1", "bi.batch_size=16", "cross.batch_size=16"]
SETTINGS = [part for setting in FAST for part in ("--set", setting)]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments):
    """Run a command that must print exactly one JSON object on standard output."""
    return json.loads(run(*arguments, "--json").stdout)


def fail(*arguments, code):
    """Run a command that must fail, without a traceback or any result, and return its message."""
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def copy_of(file):
    """Copy a file into another folder, under its own name."""
    folder = file.parent / "other"
    folder.mkdir()
    return shutil.copy(file, folder)


@pytest.fixture(scope="session")
def files(tmp_path_factory, pairs, dev):
    """Files of pairs and of labelled pairs, and a folder of task data."""
    folder = tmp_path_factory.mktemp("files")
    write_pairs(pairs, folder / "pairs.csv")
    write_pairs(dev, folder / "dev.jsonl")
    for number, part in enumerate(("train", "dev", "test")):
        labelled = graded(28, seed=10 + number)
        for name, gold in (("stsb", labelled.scores), ("mrpc", (labelled.scores > 0.5).astype(float))):
            (folder / name).mkdir(exist_ok=True)
            write_pairs(labelled.with_scores(gold), folder / name / f"{part}.jsonl")
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory, bert, roberta):
    """A bi-encoder and a cross-encoder in folders."""
    folder = tmp_path_factory.mktemp("encoders")
    BiEncoder.load(bert, pooling="mean", max_tokens=32).save(folder / "bi")
    CrossEncoder.load(roberta, max_tokens=64, seed=1).save(folder / "cross")
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory, files, bert):
    """A finished run and what the command said of it."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", "--pairs", files / "pairs.csv", "--model", bert, "--dev", files / "dev.jsonl", "--out", out]
    return arguments, run_json(*arguments, *SETTINGS)


class TestHelp:
    @pytest.mark.parametrize("command", [command.__name__ for command in COMMANDS])
    def test_every_command_explains_itself_with_an_example(self, command):
        shown = " ".join(run(command, "--help").stdout.split())
        assert f"Example: trans-encoder {command} " in shown
        assert "--json" in shown or command == "serve"  # which prints nothing until it is stopped

    def test_help_is_fast_because_nothing_heavy_is_imported(self):
        heavy = ("torch", "transformers", "sentence_transformers", "datasets", "pyarrow", "sklearn", "scipy", "pandas")
        script = f"import sys, trans_encoder.cli; print([name for name in {heavy!r} if name in sys.modules])"
        assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"

    def test_version(self):
        from trans_encoder import __version__

        assert run("--version").stdout.strip() == __version__


class TestTrain:
    def test_one_model_is_self_distillation(self, trained):
        arguments, result = trained
        out = Path(arguments[-1])
        (member,) = result["members"].values()
        assert result["metric"] == "spearman"
        assert result["tests"] == {}
        assert load_encoder(out / member["bi"]["folder"]).kind == "bi"
        assert load_encoder(out / member["cross"]["folder"]).kind == "cross"
        assert result["summary"]

    def test_the_same_command_again_does_nothing_anew(self, trained):
        arguments, result = trained
        manifest = Path(arguments[-1]) / "manifest.json"
        before = manifest.read_bytes()
        assert run_json(*arguments, *SETTINGS) == result
        assert manifest.read_bytes() == before

    def test_other_settings_in_the_same_folder_are_refused(self, trained):
        arguments, _ = trained
        message = fail(*arguments, *SETTINGS, "--set", "seed=7", code=1)
        assert "seed" in message
        assert "--out" in message

    def test_a_team_from_a_file_with_flags_over_it_and_a_test_at_the_end(self, tmp_path, files, bert, roberta):
        file = tmp_path / "run.toml"
        file.write_text(
            f'members = ["{bert}", "{roberta}"]\ncycles = 9\n'
            f'[inputs]\ntask = "mrpc"\ndata_dir = "{files}"\nout = "{tmp_path / "unused"}"\n'
            "[bi]\nepochs = 1\nbatch_size = 16\n[cross]\nepochs = 1\nbatch_size = 16\n"
        )
        out = tmp_path / "run"
        result = run_json("train", file, "--set", "cycles=1", "--out", out, "--test", "mrpc")
        assert result["metric"] == "auc", "a task brings its own dev set"
        assert not (tmp_path / "unused").exists()
        config = json.loads((out / "config.json").read_text())
        assert (config["cycles"], config["bi"]["epochs"], len(config["members"])) == (1, 1, 2)
        names = {
            f"{owner} {kind}" for owner in (bert.name, roberta.name, "ensemble") for kind in ("start", "bi", "cross")
        }
        assert set(result["tests"]) == names
        for scores in result["tests"].values():
            assert scores["average"] == scores["mrpc"]
        assert (out / "report.html").read_text().count("mrpc")

    def test_what_people_see(self, tmp_path, files, bert):
        arguments = ["--task", "sts-b", "--data-dir", files, "--model", bert, "--seed", "0", *SETTINGS]
        out = tmp_path / f"{'long' * 20} [red]"
        tests = ["--test", "sts-b", "--test", files / "dev.jsonl"]
        shown = run("train", *arguments, *tests, "--dev", "none", "--out", out).stdout
        assert f"Models: {out / 'best' / 'bi'}\n" in shown
        assert run("report", out).stdout == f"{out / 'report.html'}\n"
        assert json.loads((out / "config.json").read_text())["seed"] == 0
        assert {path.stem for path in (out / "evaluation").glob("*.parquet")} == {"stsb", "dev"}
        for column in ("start", "bi", "cross", "average"):
            assert column in shown
        assert "label-free" in shown, "without a dev set it says how it judged"


class TestCheck:
    def test_a_plan_with_a_time_and_nothing_written(self, tmp_path, files, bert):
        arguments = ["--pairs", files / "pairs.csv", "--model", bert, "--dev", files / "dev.jsonl", *SETTINGS]
        plan = run_json("check", *arguments, "--out", tmp_path / "run")
        assert plan["seconds"] > 0
        assert plan["pairs"]["count"] == 96
        steps = {stage["name"]: stage["steps"] for stage in plan["stages"]}
        assert steps["train the cross-encoder"] == 96 * 2 // 16
        assert steps["train the bi-encoder"] == 96 // 16
        assert list(tmp_path.iterdir()) == []
        shown = run("check", *arguments, "--out", tmp_path / "run").stdout
        assert "Everything is in order" in shown
        assert "own weights" in " ".join(shown.split()), "it says what the cross-encoder starts from"
        assert "chosen by spearman on 48 pairs of dev" in " ".join(shown.split())

    def test_it_needs_no_run_folder(self, tmp_path, files, bert):
        arguments = ["--pairs", files / "pairs.csv", "--model", bert, *SETTINGS]
        plan = run_json("check", *arguments)
        assert (plan["out"], plan["begun"]) == (None, False)
        shown = run("check", *arguments, "--set", "cycles=1").stdout
        assert "Run folder" not in shown
        assert "Up to 1 cycle, preset small" in shown
        assert shown.endswith("for 1 cycle.\n")
        assert "give --out" in fail("train", *arguments, code=2)

    def test_a_folder_that_train_would_refuse_is_refused_and_not_touched(self, trained, tmp_path):
        arguments, _ = trained
        _, *given, out = arguments
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        assert run_json("check", *given, out, *SETTINGS)["begun"]
        assert "begun with other settings" in fail("check", *given, out, *SETTINGS, "--seed", "7", code=1)
        assert "pairs.count: was 96, now 50" in fail("check", *given, out, *SETTINGS, "--max-pairs", "50", code=1)
        with FileLock(out / ".lock"):
            assert "another process is working" in fail("check", *given, out, *SETTINGS, code=1)
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
        (tmp_path / "thesis.tex").write_text("years of work")
        assert "is not a run folder" in fail("check", *given, tmp_path, *SETTINGS, code=1)
        assert not run_json("check", *given, tmp_path / "new", *SETTINGS)["begun"]
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_every_problem_of_a_file_at_once(self, tmp_path):
        file = tmp_path / "run.toml"
        file.write_text('members = ["a"]\ncycels = 2\nseed = -1\n[bi]\nepochs = 0\n')
        message = fail("check", file, code=2)
        assert 'cycels: unknown key; did you mean "cycles"?' in message
        assert "seed: given -1" in message
        assert "bi.epochs: given 0" in message

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ([], "members: must be given"),
            (["--model", "m"], "one of --pairs FILE, --task NAME"),
            (["--model", "m", "--out", "run"], "one of --pairs FILE, --task NAME"),
            (["--model", "m", "--out", "run", "--pairs", "x", "--task", "sts"], "one of --pairs FILE, --task NAME"),
            (["--model", "m", "--out", "run", "--pairs", "missing.jsonl"], "missing.jsonl"),
            (["--model", "m", "--out", "run", "--task", "sst"], "unknown task 'sst'"),
            (["--model", "m", "--out", "run", "--task", "sts", "--data-dir", "nowhere"], "nowhere"),
            (["--model", "m", "--preset", "huge"], "preset"),
            (["--model", "m", "--set", "cycles"], "key=value"),
            (["--model", "m", "--seed", "-1"], "seed: given -1"),
            (["--model", "m", "--workers", "0"], "engine.workers: given 0"),
            (["missing.toml"], "cannot read the configuration missing.toml"),
        ],
    )
    def test_wrong_arguments(self, arguments, expected, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert expected in fail("check", "--json", *arguments, code=2)

    def test_files_of_inputs_may_hold_everything(self, tmp_path, files, bert):
        odd = tmp_path / "odd.csv"
        rows = "".join(f"a boat {number},a lamp {number},{number}\n" for number in range(30))
        odd.write_text(f"left,right,gold\n{rows}only one field\n")
        file = tmp_path / "run.toml"
        file.write_text(
            f'members = ["{bert}"]\ncycles = 1\n[inputs]\npairs = "{odd}"\ntest = ["{odd}", "mrpc"]\n'
            f'columns = "left,right,gold"\nskip_bad = true\ndata_dir = "{files}"\nout = "{tmp_path / "run"}"\n'
        )
        plan = run_json("check", file)
        assert (plan["pairs"]["count"], plan["tests"]) == (30, {"odd": 30, "mrpc": 28})
        assert "another test set called odd" in fail("check", file, "--test", odd, "--test", copy_of(odd), code=2)

    def test_a_dev_set_that_is_nothing(self, files, bert):
        arguments = ["--pairs", files / "pairs.csv", "--model", bert, "--out", "run"]
        assert "neither a file nor a task" in fail("check", *arguments, "--dev", "nothing", code=2)
        assert "no gold scores" in fail("check", *arguments, "--dev", files / "pairs.csv", code=2)

    def test_a_model_that_is_not_there(self, files):
        arguments = ["--pairs", files / "pairs.csv", "--out", "run"]
        assert "does not exist" in fail("check", *arguments, "--model", "./missing", code=2)


class TestEvaluate:
    def test_one_model_on_a_task(self, files, models):
        result = run_json("evaluate", models / "bi", "--task", "sts-b", "--data-dir", files)
        assert result["task"] == "sts-b"
        assert set(result["scores"]) == {"stsb"}
        assert result["average"] == pytest.approx(result["scores"]["stsb"])
        assert result["models"] == [f"{models / 'bi'} (bi)"]

    def test_several_models_are_an_ensemble_of_stated_kinds(self, files, models):
        both = run_json("evaluate", models / "bi", models / "cross", "--test", files / "dev.jsonl")
        assert [name.rsplit(" ")[-1] for name in both["models"]] == ["(bi)", "(cross)"]
        shown = run("evaluate", models / "bi", models / "cross", "--test", files / "dev.jsonl").stdout
        assert "ensemble" in shown
        assert f"{both['average']:.2f}" in shown

    def test_the_kind_can_be_given(self, files, bert):
        result = run_json("evaluate", bert, "--kind", "cross", "--test", files / "dev.jsonl")
        assert result["models"] == [f"{bert} (cross)"]

    def test_options_of_files_are_refused_for_a_task(self, files, models):
        task = ("evaluate", models / "bi", "--task", "sts-b", "--data-dir", files)
        for option in (("--columns", "a,b,c"), ("--skip-bad",)):
            assert "for files of your own" in fail(*task, *option, code=2)

    def test_a_task_or_files_but_not_both(self, files, models):
        message = fail("evaluate", models / "bi", code=2)
        assert "--task NAME or --test FILE" in message
        both = ["--task", "sts-b", "--data-dir", files, "--test", files / "dev.jsonl"]
        assert "--task NAME or --test FILE" in fail("evaluate", models / "bi", *both, code=2)


class TestScore:
    def test_one_score_a_line(self, files, models):
        lines = run("score", models / "cross", "--pairs", files / "pairs.csv").stdout.split()
        result = run_json("score", models / "cross", "--pairs", files / "pairs.csv")
        np.testing.assert_allclose([float(line) for line in lines], result["scores"], atol=1e-6)
        expected = load_encoder(models / "cross").score(PairSet.read(files / "pairs.csv"))
        np.testing.assert_allclose(result["scores"], expected, atol=1e-6)

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
    def test_scored_pairs_can_be_read_again(self, ending, files, models, tmp_path):
        out = tmp_path / f"scored.{ending}"
        result = run_json("score", models / "bi", "--pairs", files / "dev.jsonl", "--out", out)
        assert result["count"] == 48
        scored, original = PairSet.read(out), PairSet.read(files / "dev.jsonl")
        assert scored.sentence1.equals(original.sentence1)
        np.testing.assert_allclose(scored.scores, load_encoder(models / "bi").score(original), atol=1e-6)

    def test_an_unknown_format_is_refused_before_any_work(self, tmp_path):
        message = fail("score", "./missing", "--pairs", "missing.jsonl", "--out", tmp_path / "scores.xlsx", code=2)
        assert ".jsonl, .csv, .parquet" in message

    def test_given_columns(self, models, tmp_path):
        file = tmp_path / "odd.jsonl"
        file.write_text('{"left": "a boat", "right": "a lamp", "note": 1}\n{"left": "b", "right": "c", "note": 2}\n')
        result = run_json("score", models / "bi", "--pairs", file, "--columns", "left,right")
        assert result["count"] == 2
        assert "a,b or a,b,score" in fail("score", models / "bi", "--pairs", file, "--columns", "left", code=2)

    def test_labels_are_not_looked_at(self, models, bert, tmp_path):
        file = tmp_path / "labelled.csv"
        file.write_text("sentence1,sentence2,label\n" + "a boat,a lamp,entailment\na clock,a kettle,\n" * 8)
        assert run_json("score", models / "bi", "--pairs", file)["count"] == 16
        settings = [*SETTINGS, "--set", "selection=last"]
        assert run_json("check", "--pairs", file, "--model", bert, "--out", tmp_path / "run", *settings)

    def test_bad_lines_stop_it_or_are_counted(self, models, tmp_path):
        file = tmp_path / "bad.jsonl"
        file.write_text('{"sentence1": "a", "sentence2": "b"}\nnot json\n{"sentence1": "c", "sentence2": "d"}\n')
        message = fail("score", models / "bi", "--pairs", file, code=2)
        assert "bad.jsonl:2" in message
        assert "--skip-bad" in message
        result = run("score", models / "bi", "--pairs", file, "--skip-bad", "--json")
        assert json.loads(result.stdout)["count"] == 2
        assert "1 bad left out" in " ".join(result.stderr.split())


def test_label_keeps_every_teachers_scores(files, models, tmp_path):
    out = tmp_path / "labels.parquet"
    result = run_json("label", models / "bi", models / "cross", "--pairs", files / "pairs.csv", "--out", out)
    labels = PseudoLabels.open(out)
    assert result["count"] == len(labels) == 96
    assert len(labels.by_teacher) == 2
    np.testing.assert_allclose(labels.scores, np.mean(list(labels.by_teacher.values()), axis=0), atol=1e-6)


def test_labels_are_parquet_and_nothing_else(tmp_path):
    message = fail("label", "./missing", "--pairs", "missing.jsonl", "--out", tmp_path / "labels.jsonl", code=2)
    assert "ends in .parquet" in message


class TestExport:
    def test_an_ordinary_folder(self, files, models, tmp_path):
        result = run_json("export", models / "cross", "--out", tmp_path / "out")
        assert (result["kind"], result["format"]) == ("cross", "safetensors")
        pairs = PairSet.read(files / "pairs.csv")
        np.testing.assert_array_equal(
            load_encoder(tmp_path / "out").score(pairs), load_encoder(models / "cross").score(pairs)
        )

    def test_a_missing_extra_names_its_install_line(self, models, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        message = fail("export", models / "bi", "--to", "onnx", "--out", tmp_path / "out", code=2)
        assert 'pip install "trans-encoder[onnx]"' in message


class TestErrors:
    def test_wrong_usage(self):
        assert run("train", "--unknown", code=2)
        assert run("nonsense", code=2)
        assert run("score", "model", code=2)

    @pytest.mark.parametrize("name", ["seed", "objective", "preset", "pooling", "dev", "model", "trust_remote_code"])
    def test_a_setting_that_has_an_option_of_its_own(self, name):
        given = ["--text", "t.txt", "--model", "m", "--out", "o"]
        assert f"give --{name.replace('_', '-')} instead" in fail("bootstrap", *given, "--set", f"{name}=1", code=2)

    @pytest.mark.parametrize("name", ["seed", "preset", "scale", "out", "members"])
    def test_a_setting_of_an_experiment_that_has_an_option_of_its_own(self, name):
        assert f"--set {name}=...: give --" in fail("experiment", "sts", "--set", f"{name}=1", code=2)

    def test_debug_shows_the_traceback(self):
        result = run("--debug", "evaluate", "./missing", "--test", "missing.jsonl", code=2)
        assert "Traceback" in result.stderr

    def test_a_run_that_cannot_be_written(self, files, bert, tmp_path):
        (tmp_path / "file").write_text("")
        arguments = ["--pairs", files / "pairs.csv", "--model", bert, *SETTINGS]
        assert "is a file" in fail("train", *arguments, "--out", tmp_path / "file", code=1)

    def test_remote_code_is_refused(self, files, models, tmp_path):
        run("export", models / "bi", "--out", tmp_path / "model")
        config = tmp_path / "model" / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"auto_map": {"AutoModel": "code.Model"}}))
        message = fail("score", tmp_path / "model", "--pairs", files / "pairs.csv", code=2)
        assert "--trust-remote-code" in message
