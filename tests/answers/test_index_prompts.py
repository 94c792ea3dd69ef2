"""Prompts of an index: as `SentenceTransformer.encode` applies them, kept with it, for rows and for queries."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from trans_encoder.answers.duplicates import find_duplicates
from trans_encoder.answers.index import Index, build_index
from trans_encoder.answers.store import Manifest
from trans_encoder.cli import app
from trans_encoder.config import EngineConfig
from trans_encoder.data.corpus import Corpus
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.evaluation.probe import probe
from trans_encoder.mining.search import DenseSearcher
from trans_encoder.runs import make_engine

QUERY, DOCUMENT = "the baker asks: ", "tall clock: "


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def fail(*arguments):
    said = run(*arguments, code=2).stderr
    assert len(said.strip().splitlines()) == 1, said
    return said


@pytest.fixture(params=["transformer", "static"])
def asked(request, bert, static, tmp_path):
    """A model with prompts of its own, for queries and for documents."""
    plain = SentenceTransformer(str(bert if request.param == "transformer" else static), device="cpu")
    prompts = {"query": QUERY, "document": DOCUMENT}
    SentenceTransformer(modules=list(plain), prompts=prompts, device="cpu").save_pretrained(str(tmp_path / "asked"))
    return tmp_path / "asked"


@pytest.fixture
def rows(sentences, tmp_path):
    texts = list(dict.fromkeys(sentences))[:12]
    (tmp_path / "rows.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return tmp_path / "rows.txt"


def encoded(model, texts, **choice):
    return SentenceTransformer(str(model), device="cpu").encode(texts, normalize_embeddings=True, **choice)


def vectors(index):
    return np.asarray(index.embedded.vectors[index.embedded.place], dtype=np.float32)


def indexed(model, rows, out, *options):
    run("index", "--text", rows, "--model", model, "--out", out, *options)
    return Index.open(out)


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ((), {"prompt_name": "document"}),
        (("--prompt", "query"), {"prompt_name": "query"}),
        (("--prompt2", "query"), {"prompt_name": "query"}),
        (("--prompt1", "query"), {"prompt_name": "document"}),
        (("--prompt", "quiet: "), {"prompt": "quiet: "}),
        (("--prompt", "none"), {"prompt": ""}),
    ],
)
def test_rows_are_embedded_as_sentence_transformers_does_it(asked, rows, tmp_path, options, choice):
    index = indexed(asked, rows, tmp_path / "i", *options)
    texts = rows.read_text(encoding="utf-8").splitlines()
    np.testing.assert_allclose(vectors(index), encoded(asked, texts, **choice), atol=2e-3)


def test_a_search_asks_with_the_query_prompt_unless_told_otherwise(asked, rows, tmp_path):
    index = indexed(asked, rows, tmp_path / "i")
    texts = rows.read_text(encoding="utf-8").splitlines()
    stored = encoded(asked, texts, prompt_name="document")
    for options, choice in (
        ((), {"prompt_name": "query"}),
        (("--prompt1", "quiet: "), {"prompt": "quiet: "}),
        (("--prompt1", "none"), {"prompt": ""}),
    ):
        found = json.loads(run("search", tmp_path / "i", texts[3], "--top", 1, *options, "--json").stdout)["hits"][0]
        cosine = stored[texts.index(found["text"])] @ encoded(asked, [texts[3]], **choice)[0]
        assert found["score"] == pytest.approx(cosine, abs=2e-3)
    assert index.search(texts[3])[0].probability > 0.9  # the very text is here, whatever a question about it scores


def test_a_default_prompt_is_for_rows_and_queries_alike(bert, rows, tmp_path):
    prompts = {"query": QUERY, "document": DOCUMENT}
    plain = list(SentenceTransformer(str(bert), device="cpu"))
    model = SentenceTransformer(modules=plain, prompts=prompts, default_prompt_name="query", device="cpu")
    model.save_pretrained(str(tmp_path / "asked"))
    index = indexed(tmp_path / "asked", rows, tmp_path / "i")
    texts = rows.read_text(encoding="utf-8").splitlines()
    np.testing.assert_allclose(vectors(index), encoded(tmp_path / "asked", texts), atol=2e-3)
    assert not index.embedder.asks_otherwise


def test_another_prompt_for_the_rows_is_refused_or_everything_is_embedded_again(asked, rows, tmp_path):
    out = tmp_path / "i"
    before = vectors(indexed(asked, rows, out, "--prompt", "query"))
    again = ("index", "--text", rows, "--model", asked, "--out", out)
    for command in ((*again, "--prompt", "document"), (*again, "--prompt2", "none"), (*again[:3], *again[5:])):
        if "--prompt" in command or "--prompt2" in command:
            said = fail(*command)
            assert f"with the prompt {QUERY!r}" in said
            assert "--reindex" in said
        else:
            run(*command)  # without a choice an index keeps its models and its prompts
    for refused in (("search", out, "clock"), ("duplicates", out, "--out", tmp_path / "d")):
        assert f"was embedded with {asked} with the prompt {QUERY!r}" in fail(*refused, "--prompt2", "document")
    np.testing.assert_array_equal(vectors(Index.open(out)), before)
    run(*again, "--prompt", "document", "--reindex")
    texts = rows.read_text(encoding="utf-8").splitlines()
    np.testing.assert_allclose(vectors(Index.open(out)), encoded(asked, texts, prompt_name="document"), atol=2e-3)


def test_another_prompt_for_queries_is_kept_without_embedding_again(asked, rows, tmp_path):
    out = tmp_path / "i"
    indexed(asked, rows, out)
    said = run("index", "--text", rows, "--model", asked, "--out", out, "--prompt1", "quiet: ").stdout
    assert "0 embedded now" in said
    assert Manifest.read(out).prompts == (("quiet: ", None),)
    assert [prompt.text for prompt in Index.open(out).embedder.encoders[0].prompts] == ["quiet: ", DOCUMENT]


def test_each_model_of_a_team_has_its_own_prompt(asked, static, rows, tmp_path):
    out = tmp_path / "i"
    run("index", "--text", rows, "--model", asked, "--model", static, "--prompt", "query", "--prompt", "a: ",
        "--out", out)  # fmt: skip
    assert [encoder.prompts[1].text for encoder in Index.open(out).embedder.encoders] == [QUERY, "a: "]
    said = fail("search", out, "clock", "--prompt1", "a", "--prompt1", "b", "--prompt1", "c")
    assert "--prompt1 is given 3 times for 2 models" in said


def test_workers_embed_with_the_same_prompt(asked, rows, tmp_path):
    corpus = Corpus.read(rows)
    here = build_index(corpus, tmp_path / "here", models=[str(asked)], prompts="query")
    with make_engine(EngineConfig(workers=2)) as engine:
        there = build_index(corpus, tmp_path / "there", models=[str(asked)], prompts="query", engine=engine)
    np.testing.assert_allclose(vectors(here), vectors(there), atol=2e-3)


def test_duplicates_compare_rows_with_one_prompt(asked, rows, tmp_path):
    options = ("--model", asked, "--threshold", 0.5, "--json")
    run("duplicates", rows, *options, "--prompt", "query", "--out", tmp_path / "d")
    texts = rows.read_text(encoding="utf-8").splitlines()
    expected = encoded(asked, texts, prompt_name="query")
    np.testing.assert_allclose(vectors(Index.open(tmp_path / "d" / "index")), expected, atol=2e-3)
    found = find_duplicates(texts, models=str(asked), prompts=(None, "query"), threshold=0.5)
    for pair in found.pairs:
        cosine = expected[int(pair.id1) - 1] @ expected[int(pair.id2) - 1]
        assert pair.score == pytest.approx(cosine, abs=2e-3)
    assert "is given 2 times for 1 models" in fail(
        "duplicates", rows, *options, "--prompt", "a: ", "--prompt", "b: ", "--out", tmp_path / "e"
    )


def test_a_run_keeps_the_prompts_that_its_models_learnt_with(rows, tmp_path):
    said = fail("duplicates", rows, "--run", tmp_path, "--prompt", "query: ", "--out", tmp_path / "d")
    assert "a run's models keep their prompts" in said


def test_mining_asks_with_the_prompt_of_first_texts(bert, rows, tmp_path):
    texts = rows.read_text(encoding="utf-8").splitlines()
    encoder = BiEncoder.load(bert, prompts=("quiet: ", "tall: "))
    ranked = DenseSearcher(texts, encoder).search(np.arange(len(texts)), 3)
    scores = encoded(bert, texts, prompt="quiet: ") @ encoded(bert, texts, prompt="tall: ").T
    np.testing.assert_array_equal(ranked, np.argsort(-scores, axis=1, kind="stable")[:, :3])
    options = ("mine", "--text", rows, "--out", tmp_path / "pairs.jsonl", "--pairs", 5, "--mix", "4,2,2,2,0")
    run(*options, "--model", bert, "--prompt", "quiet: ")
    assert "give --model" in fail(*options, "--prompt", "quiet: ")
    assert "has no prompt called title" in fail(*options, "--model", bert, "--prompt", "title")


def test_a_probe_takes_prompts(bert):
    found = json.loads(run("probe", bert, "--prompt1", "quiet: ", "--prompt2", "tall: ", "--json").stdout)
    expected = probe(str(bert), prompts=("quiet: ", "tall: "))
    assert found["written"]["all"]["flip"] == pytest.approx(expected.written["all"].flip, abs=1e-6)
    assert expected.written["all"].paraphrase != pytest.approx(probe(str(bert)).written["all"].paraphrase, abs=1e-4)
    with pytest.raises(ConfigurationError, match="load the encoder with them instead"):
        probe(BiEncoder.load(bert), prompts="quiet: ")
