"""Lengths in a run: found from the data, told when they cut, and the start measured as its user has it."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from typer.testing import CliRunner

from conftest import TINY_RUN, contents, save_model, sentence, shape, wordpiece, words
from trans_encoder.cli import app
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import BiEncoder, load_encoder
from trans_encoder.pipelines.distil import distil

OWN, POSITIONS = 128, 256
LENGTHS = (10, 60, 200)
QUICK = ["cycles=1", "cross.epochs=1", "bi.epochs=1", "bi.batch_size=16", "cross.batch_size=16", "device=cpu"]


def command(*arguments, code: int = 0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def as_json(*arguments) -> dict:
    return json.loads(command(*arguments, "--json").stdout)


def graded_texts(count: int, *, tokens: int, seed: int) -> PairSet:
    """Make pairs of texts of this many tokens; the score is the share of the sentences that both have."""
    random = Random(seed)
    left, right, scores = [], [], []
    for number in range(count):
        first, other = ([sentence(words(random)) for _ in range(20)] for _ in range(2))
        kept = number % 6
        mixed = first[:kept] + other[kept:]
        both = (" ".join(" ".join(text).split()[: tokens - 2]) for text in (first, mixed))
        for side, text in zip((left, right), both, strict=True):
            side.append(text)
        scores.append(min(1.0, kept * 11 / (tokens - 2)))
    return PairSet.from_lists(left, right, scores=scores)


@pytest.fixture(scope="module")
def long_start(tmp_path_factory, sentences) -> Path:
    """A bi-encoder with a prompt, a dense layer and a length of its own, shorter than its positions."""
    plm, folder = tmp_path_factory.mktemp("plm"), tmp_path_factory.mktemp("long") / "start"
    tokenizer = wordpiece(sentences)
    tokenizer.model_max_length = OWN
    config = shape("bert", width=32, tokenizer=tokenizer)
    config.max_position_embeddings = POSITIONS
    save_model(plm, config, tokenizer)
    body = SentenceTransformer(str(plm), device="cpu")[0]
    modules = [body, Pooling(32, pooling_mode="mean"), Dense(32, 16), Normalize()]
    prompts = {"query": "the old farmer ", "document": ""}
    SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="query", device="cpu").save_pretrained(
        str(folder)
    )
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for tokens in LENGTHS:
        write_pairs(graded_texts(36, tokens=tokens, seed=tokens), folder / f"test{tokens}.jsonl")
    mixed = [graded_texts(16, tokens=tokens, seed=1) for tokens in LENGTHS]
    write_pairs(mixed[0].concat(mixed[1]).concat(mixed[2]).without_scores(), folder / "pairs.jsonl")
    return folder


@pytest.fixture(scope="module", params=["given", "auto"])
def run(request, tmp_path_factory, long_start, files):
    """A finished run at given lengths and one at those of the data, with what the command printed."""
    out = tmp_path_factory.mktemp("run") / request.param
    given = [*QUICK, *(["bi.max_tokens=32", "cross.max_tokens=64"] if request.param == "given" else [])]
    tests = [part for tokens in LENGTHS for part in ("--test", files / f"test{tokens}.jsonl")]
    settings = [part for setting in given for part in ("--set", setting)]
    arguments = ["train", "--pairs", files / "pairs.jsonl", "--model", long_start, "--dev", files / "test60.jsonl"]
    return out, request.param, as_json(*arguments, *tests, *settings, "--out", out)


def test_the_start_s_row_of_a_run_is_what_evaluate_says_of_the_start(run, long_start, files):
    _, _, result = run
    for tokens in LENGTHS:
        said = as_json("evaluate", long_start, "--test", files / f"test{tokens}.jsonl")["average"]
        assert result["tests"]["start"][f"test{tokens}"] == pytest.approx(said, abs=0.01)
    dev = as_json("evaluate", long_start, "--test", files / "test60.jsonl")["average"]
    assert next(iter(result["members"].values()))["start_score"] == pytest.approx(dev, abs=0.01)


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_the_rows_of_a_run_s_models_are_what_evaluate_says_of_their_folders(run, files, kind):
    out, _, result = run
    for tokens in LENGTHS:
        said = as_json("evaluate", out / "best" / kind, "--test", files / f"test{tokens}.jsonl")["average"]
        assert result["tests"][kind][f"test{tokens}"] == pytest.approx(said, abs=0.01)


def test_trained_models_are_saved_with_the_start_s_own_length_or_the_given_one(run, files):
    out, lengths, _ = run
    saved = {kind: load_encoder(next(out.glob(f"cycle-1/*/{kind}"))) for kind in ("bi", "cross")}
    records = {kind: json.loads(next(out.glob(f"cycle-1/*/{kind}/training.json")).read_text()) for kind in saved}
    learnt = {kind: record["cuts"]["max_tokens"] for kind, record in records.items()}
    if lengths == "given":
        assert learnt == {"bi": 32, "cross": 64} == {kind: encoder.max_tokens for kind, encoder in saved.items()}
    else:
        # A third of the texts has 200 tokens and three of the prompt: more than the start's own 128, so longer models.
        assert learnt == {"bi": 208, "cross": POSITIONS} == {kind: each.max_tokens for kind, each in saved.items()}


def test_cuts_are_in_the_notes_the_report_and_the_card(run):
    out, lengths, result = run
    if lengths == "given":
        expected = {"bi": "64 of 83 texts", "cross": "32 of 48 pairs"}
    else:
        expected = {"cross": "16 of 48 pairs"}
    page = (out / "report.html").read_text()
    for kind, counted in expected.items():
        (note,) = [note for note in result["notes"] if f"in the training of {kind}-encoders" in note]
        assert f"{counted} " in note
        assert "are cut; the longest has" in note
        assert counted in page
    card = (out / "best" / "cross" / "README.md").read_text()
    whole = 48 - int(expected["cross"].split()[0])
    assert f"({whole} of 48 pairs whole), cuts longer ones at" in card


def test_texts_that_fit_are_trained_whole_and_leave_the_model_its_own_length(tmp_path, long_start):
    pairs = graded_texts(40, tokens=30, seed=3).without_scores()
    settings = {**TINY_RUN, "cycles": 1, "bi": {**TINY_RUN["bi"], "max_tokens": "auto"}}
    settings["cross"] = {**TINY_RUN["cross"], "max_tokens": None}
    result = distil(pairs, str(long_start), out=tmp_path / "run", supervised=False, **settings)
    for kind, learnt in (("bi", 40), ("cross", 64)):
        folder = next((tmp_path / "run").glob(f"cycle-1/*/{kind}"))
        assert json.loads((folder / "training.json").read_text())["cuts"]["max_tokens"] == learnt
        assert load_encoder(folder).max_tokens == OWN
    assert not [note for note in result.notes if "are cut" in note]
    before = contents(tmp_path / "run")
    distil(pairs, str(long_start), out=tmp_path / "run", supervised=False, **settings)
    assert contents(tmp_path / "run") == before


def test_a_start_that_is_kept_is_the_user_s_model_in_all_that_it_says(tmp_path, long_start):
    pairs = graded_texts(40, tokens=60, seed=4).without_scores()
    settings = {**TINY_RUN, "cycles": 1}
    result = distil(pairs, str(long_start), out=tmp_path / "run", supervised=True, **settings)
    assert next(iter(result.members.values())).bi.cycle == 0
    own, kept = (SentenceTransformer(str(path), device="cpu") for path in (long_start, tmp_path / "run/best/bi"))
    texts = [text for tokens in LENGTHS for text in graded_texts(4, tokens=tokens, seed=5).sentence1.to_pylist()]
    np.testing.assert_array_equal(own.encode(texts), kept.encode(texts))
    np.testing.assert_array_equal(*(model.encode(texts, prompt_name="document") for model in (own, kept)))
    assert (kept.max_seq_length, kept.prompts, kept.default_prompt_name) == (OWN, own.prompts, "query")
    assert [type(module) for module in kept] == [type(module) for module in own]


def test_texts_of_2000_tokens_are_cut_and_told_and_nothing_is_lost(tmp_path, long_start):
    pairs = graded_texts(20, tokens=30, seed=6).without_scores()
    huge = " ".join(["the old farmer sells the red boat near the school"] * 200)
    pairs = pairs.concat(PairSet.from_lists([huge, f"{huge} boat"], [f"boat {huge}", "the red boat"]))
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    write_pairs(pairs.with_scores(np.arange(22.0)), tmp_path / "test.jsonl")
    settings = [part for setting in QUICK for part in ("--set", setting)]
    inputs = ["--pairs", tmp_path / "pairs.jsonl", "--model", long_start, "--out", tmp_path / "run"]
    shown = command("check", *inputs, "--set", "selection=last", *settings).stdout
    counted = len(set(pairs.sentence1.to_pylist() + pairs.sentence2.to_pylist()))
    cut = f"3 of {counted} texts ({3 / counted:.1%}) are longer than 256 tokens and are cut; the longest has 2,006"
    assert f"{cut}. With 32 tokens, " in shown
    planned = as_json("check", *inputs, "--set", "selection=last", *settings)["lengths"]
    assert [(each["cuts"]["kind"], each["cuts"]["max_tokens"], each["cuts"]["cut"]) for each in planned] == [
        ("bi", POSITIONS, 3),
        ("cross", POSITIONS, 2),
    ]
    assert [(each["shorter_cuts"]["max_tokens"], each["own_cuts"]["max_tokens"]) for each in planned] == [
        (32, OWN),
        (64, OWN),
    ]
    result = as_json("train", *inputs, "--test", tmp_path / "test.jsonl", "--set", "selection=last", *settings)
    assert len([note for note in result["notes"] if "are longer than 256 tokens and are cut" in note]) == 2
    told = {model: (cuts["max_tokens"], cuts["cut"]) for model, cuts in result["cuts"].items()}
    assert told == {"start": (OWN, 3), "bi": (POSITIONS, 3), "cross": (POSITIONS, 2)}
    best = tmp_path / "run" / "best"
    assert BiEncoder.load(best / "bi").max_tokens == POSITIONS
    for model, unit in (("bi", f"3 of {counted} texts"), ("cross", "2 of 22 pairs")):
        scored = command("score", best / model, "--pairs", tmp_path / "pairs.jsonl")
        assert len(scored.stdout.splitlines()) == 22
        assert f"{unit} " in " ".join(scored.stderr.split())
        assert as_json("score", best / model, "--pairs", tmp_path / "pairs.jsonl")["cuts"][str(best / model)]["cut"] > 1
        told = command("evaluate", best / model, "--test", tmp_path / "test.jsonl")
        assert f"{unit} " in " ".join(told.stderr.split())
        (cuts,) = as_json("evaluate", best / model, "--test", tmp_path / "test.jsonl")["cuts"].values()
        assert cuts["max_tokens"] == POSITIONS
        labels = tmp_path / f"{model}.parquet"
        (cuts,) = as_json("label", best / model, "--pairs", tmp_path / "pairs.jsonl", "--out", labels)["cuts"].values()
        assert cuts["cut"] > 1
