"""Prompts, pooling and lengths on the command line: chosen for each model and side, wrong ones told in one sentence."""

import json

import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels.pseudo_labels import PseudoLabels
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


def test_eight_identical_pairs_are_one_sentence_and_leave_no_folder(asked, tmp_path):
    same = tmp_path / "same.jsonl"
    same.write_text('{"sentence1": "a boat", "sentence2": "the boat"}\n' * 8, encoding="utf-8")
    said = fail("train", "--pairs", same, "--model", asked, "--out", tmp_path / "run")
    assert "most of them are the same pair" in said
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_padding_is_one_sentence(bert, file, tmp_path):
    import shutil

    shutil.copytree(bert, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (tmp_path / "bare" / "tokenizer_config.json").write_text(json.dumps(config))
    assert "has no padding token" in fail("score", tmp_path / "bare", "--kind", "cross", "--pairs", file)


def test_members_of_a_run_have_prompts_from_flags_and_files(asked, bert, file, tmp_path):
    from trans_encoder.cli.jobs import prepare

    config = tmp_path / "run.toml"
    config.write_text(f'members = [{{bi = "{asked}", prompt = "query"}}, {{bi = "{bert}"}}]\n', encoding="utf-8")
    flags = {"inputs.pairs": str(file), "inputs.out": str(tmp_path / "run")}
    job = prepare(config, flags=flags, assignments=[], prompts={"prompt2": ["document", "quiet: "]})
    assert [member.prompts for member in job.config.members] == [("query", "document"), (None, "quiet: ")]
