"""Prompts, pooling and lengths on the command line: chosen for each model and side, wrong ones told in one sentence."""

import json
import shutil

import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.encoders import BiEncoder, CrossEncoder


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def fail(*arguments):
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


@pytest.fixture
def asked(bert, tmp_path):
    """A model with prompts of its own."""
    prompts = {"query": "the baker asks: ", "document": "tall clock: "}
    SentenceTransformer(modules=list(SentenceTransformer(str(bert))), prompts=prompts).save_pretrained(
        str(tmp_path / "asked")
    )
    return tmp_path / "asked"


@pytest.fixture
def file(pairs, tmp_path):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    return tmp_path / "pairs.jsonl"


@pytest.fixture
def dev_file(dev, tmp_path):
    write_pairs(dev, tmp_path / "dev.jsonl")
    return tmp_path / "dev.jsonl"


def scores(*arguments):
    return json.loads(run("score", *arguments, "--json").stdout)["scores"]


def test_score_takes_a_prompt_for_each_side(asked, file, pairs):
    found = scores(asked, "--pairs", file, "--prompt1", "query", "--prompt2", "document")
    expected = BiEncoder.load(asked, prompts=("query", "document")).score(pairs)
    assert found == pytest.approx(expected.tolist(), abs=1e-6)
    assert found != pytest.approx(scores(asked, "--pairs", file), abs=1e-4)


def test_score_takes_pooling_and_length(bert, file, pairs):
    found = scores(bert, "--pairs", file, "--pooling", "max", "--max-tokens", "8")
    expected = BiEncoder.load(bert, pooling="max", max_tokens=8).score(pairs)
    assert found == pytest.approx(expected.tolist(), abs=1e-6)


def test_label_takes_a_prompt_for_each_model(asked, bert, file, pairs, tmp_path):
    out = tmp_path / "labels.parquet"
    run("label", asked, bert, "--pairs", file, "--prompt", "query", "--prompt", "quiet: ", "--out", out)
    labels = PseudoLabels.open(out)
    for model, prompt in ((asked, "query"), (bert, "quiet: ")):
        expected = BiEncoder.load(model, prompts=prompt).score(pairs)
        assert labels.by_teacher[str(model)].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_an_ensemble_of_both_kinds_prompts_its_bi_encoder(asked, bert, dev_file, tmp_path):
    CrossEncoder.load(bert).save(tmp_path / "cross")
    run("evaluate", asked, tmp_path / "cross", "--test", dev_file, "--prompt", "query")
    said = fail("evaluate", tmp_path / "cross", "--test", dev_file, "--prompt", "query")
    assert "is a cross-encoder" in said


def test_what_is_wrong_with_a_prompt_is_one_sentence(asked, bert, file):
    score = ("score", asked, "--pairs", file)
    assert "has no prompt called title; it has query, document" in fail(*score, "--prompt", "title")
    assert "--prompt1 is empty" in fail(*score, "--prompt1", "")
    assert "--prompt is given 2 times for 1 models" in fail(*score, "--prompt", "query", "--prompt", "document")
    assert "takes at most 80 tokens" in fail(*score, "--max-tokens", "2000")


@pytest.mark.parametrize("judged", ["held-out pairs", "dev", "nothing"])
def test_eight_identical_pairs_are_one_sentence_and_leave_no_folder(asked, dev_file, tmp_path, judged):
    same = tmp_path / "same.jsonl"
    same.write_text('{"sentence1": "a boat", "sentence2": "the boat"}\n' * 8, encoding="utf-8")
    by = {"held-out pairs": [], "dev": ["--dev", dev_file], "nothing": ["--set", "selection=last"]}[judged]
    for command in ("check", "train"):
        said = fail(command, "--pairs", same, "--model", asked, *by, "--out", tmp_path / "run")
        assert "all 8 pairs have the same two texts; give pairs that differ" in said
    assert "give pairs that differ" in fail("check", "--pairs", same, "--model", asked, *by)
    assert not (tmp_path / "run").exists()
    fail("label", asked, "--pairs", same, "--out", tmp_path / "labels.parquet")


def test_pairs_that_are_mostly_the_same_are_one_sentence(asked, tmp_path):
    same = tmp_path / "same.jsonl"
    lines = ['{"sentence1": "a boat", "sentence2": "the boat"}\n'] * 7
    same.write_text("".join([*lines, '{"sentence1": "a lamp", "sentence2": "the boat"}\n']), encoding="utf-8")
    said = fail("train", "--pairs", same, "--model", asked, "--out", tmp_path / "run")
    assert "most of them are the same pair" in said
    assert not (tmp_path / "run").exists()


@pytest.fixture
def bare(bert, tmp_path):
    """A model whose tokenizer has no padding token."""
    shutil.copytree(bert, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (tmp_path / "bare" / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path / "bare"


def test_a_tokenizer_without_padding_is_one_sentence(bare, file):
    for kind in ("bi", "cross"):
        (*_, said) = run("score", bare, "--kind", kind, "--pairs", file, code=2).stderr.strip().splitlines()
        assert "has no padding token" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--prompt", "title"), "has no prompt called title"),
        (("--set", "bi.max_tokens=2000"), "takes at most 80 tokens"),
        (("--model", "BARE"), "has no padding token"),
        (("--model", "BERT=BARE"), "has no padding token"),
        (("--teacher", "BARE"), "has no padding token"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_before_a_run_is_begun(
    asked, bare, bert, file, corpus, tmp_path, wrong, said
):
    named = [each.replace("BARE", str(bare)).replace("BERT", str(bert)) for each in wrong]
    model = [] if "--model" in wrong else ["--model", asked]
    for source in (("--pairs", file), ("--text", corpus)):
        errors = run("train", *source, *model, *named, "--out", tmp_path / "run", code=2).stderr
        assert said in errors.strip().splitlines()[-1]
        assert not (tmp_path / "run").exists()


def test_learn_and_bootstrap_tell_what_is_wrong_before_they_begin(asked, bare, bert, dev_file, corpus, tmp_path):
    out = ("--out", tmp_path / "out")
    learn = ("learn", dev_file, "--kind", "bi", *out)
    assert "has no prompt called title" in fail(*learn, "--model", asked, "--prompt", "title")
    assert "takes at most 80 tokens" in fail(*learn, "--model", asked, "--set", "max_tokens=2000")
    assert "pooling and prompts are for --kind bi" in fail(
        "learn", dev_file, "--kind", "cross", *out, "--model", asked, "--prompt", "query"
    )
    bootstrap = ("bootstrap", "--text", corpus, *out)
    assert "has no padding token" in run(*bootstrap, "--model", bare, code=2).stderr
    assert "takes at most 80 tokens" in run(*bootstrap, "--model", bert, "--set", "max_tokens=2000", code=2).stderr
    assert not (tmp_path / "out").exists()


def test_members_of_a_run_have_prompts_from_flags_and_files(asked, bert, file, tmp_path):
    from trans_encoder.cli.groups import JobOptions
    from trans_encoder.cli.jobs import read_job
    from trans_encoder.cli.options import PromptOptions

    config = tmp_path / "run.toml"
    config.write_text(f'members = [{{bi = "{asked}", prompt = "query"}}, {{bi = "{bert}"}}]\n', encoding="utf-8")
    prompts = PromptOptions(prompt2=["document", "quiet: "])
    job = read_job(JobOptions(config, pairs=str(file), prompts=prompts, out=str(tmp_path / "run")))
    assert [member.prompts for member in job.config.members] == [("query", "document"), (None, "quiet: ")]


def test_the_pooling_of_a_runs_members_is_chosen_on_the_command_line(bert, roberta, file, caplog, tmp_path):
    few = ("--set", "cycles=1", "--set", "formulation=bi", "--set", "bi.epochs=1", "--set", "selection=last")
    models = ("--model", bert, "--model", roberta, "--pooling", "max")
    run("train", "--pairs", file, *models, *few, "--out", tmp_path / "run")
    saved = (tmp_path / "run" / "best").glob("*/bi")
    assert [BiEncoder.load(folder).pooling for folder in saved] == ["max", "max"]
    assert "does not say how token embeddings" not in caplog.text
