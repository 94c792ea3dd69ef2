"""Search: meaning and words fused, filters, errors that help."""

import pyarrow as pa
import pytest

from trans_encoder.answers.filters import matching
from trans_encoder.answers.index import build_index
from trans_encoder.data.corpus import Corpus
from trans_encoder.encoders import CrossEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.serve.service import Service


@pytest.fixture(scope="module")
def index(tmp_path_factory, embedder):
    texts = ["the old farmer sells a boat", "a golden clock", "error E4711 at start", "the young singer", "a tiny lamp"]
    columns = {"year": [2019, 2020, 2021, 2022, None], "lang": ["en", "de", "en", "fr", "en"]}
    corpus = Corpus.from_texts(texts, ids=list("abcde"), columns=columns)
    return build_index(corpus, tmp_path_factory.mktemp("search") / "index", models=embedder)


def test_the_nearest_row_comes_first(index):
    hits = index.search("the old farmer sells a boat", top=3)
    assert (hits[0].id, hits[0].columns) == ("a", {"year": 2019, "lang": "en"})
    assert hits[0].score == pytest.approx(1, abs=1e-3)
    assert len(hits) == 3
    assert hits[0].probability >= hits[-1].probability


def test_changed_rows_do_not_hide_what_is_there(tmp_path, embedder):
    """Earlier versions of a text stay among the vectors until the index is made again."""
    build_index(
        Corpus.from_texts(["a golden clock", "the old farmer sells a boat"], ids=["a", "b"]), tmp_path, models=embedder
    )
    for version in ("the old farmer sells a lamp", "the old farmer sells a bicycle", "the young singer"):
        index = build_index(Corpus.from_texts([version], ids=["b"]), tmp_path, models=embedder)
    assert index.embedded.unused == 3
    assert {hit.id for hit in index.search("the old farmer sells a boat", top=2)} == {"a", "b"}
    (answer,) = Service(index).same([{"text": "the old farmer sells a boat", "top": 2}])
    assert {hit["id"] for hit in answer["hits"]} == {"a", "b"}


def test_a_word_that_models_do_not_know_is_found(index):
    assert "c" in [hit.id for hit in index.search("E4711", top=2)]


def test_a_filter_leaves_only_rows_that_meet_it(index):
    assert {hit.id for hit in index.search("the old farmer", where='year >= 2020 and lang in ["en", "fr"]')} == {
        "c",
        "d",
    }
    assert index.search("the old farmer", where="year > 3000") == []


def test_a_cross_encoder_ranks_again(index, bert):
    hits = index.search("the old farmer", top=5, cross=CrossEncoder.load(bert))
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_an_empty_text_is_refused(index):
    with pytest.raises(DataError, match="is empty"):
        index.search("  ")


TABLE = pa.table({"year": ["2019", "2020", None], "n": [1, 2, 3], "a b": ["x", "y", "z"]})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("year >= 2020", [False, True, False]),
        ('year == "2019" or n == 3', [True, False, True]),
        ("not (n < 3)", [False, False, True]),
        ("n not in [1, 2]", [False, False, True]),
        ('col("a b") == "y"', [False, True, False]),
    ],
)
def test_conditions_are_answered(condition, expected):
    assert matching(TABLE, condition).tolist() == expected


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "n",
        "n ==",
        "__import__('os')",
        "n == open('x')",
        "m == 1",
        "1 == n",
        "n < 'x'",
        "1 < n < 3",
        "n in 3",
        "(" * 500,
    ],
)
def test_other_conditions_are_refused_with_help(condition):
    with pytest.raises(ConfigurationError, match="filter"):
        matching(TABLE, condition)
