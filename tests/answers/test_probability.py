"""Probabilities: on the corpus's own scale, monotone, with an interval, kept as JSON."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import graded
from trans_encoder.answers.deciding import Scored, decide, pair_probabilities
from trans_encoder.answers.probability.edits import lightly_edited
from trans_encoder.answers.probability.estimate import Probability, Scale, estimate_probability
from trans_encoder.answers.probability.evidence import text_evidence
from trans_encoder.answers.retrieval.dense import DenseIndex
from trans_encoder.answers.retrieval.embedded import Embedded
from trans_encoder.cli import app
from trans_encoder.data.corpus import Corpus
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, DataError


@pytest.fixture(scope="module")
def probability(embedder, sentences):
    rows = Embedded.of(Corpus.from_texts(sentences), embedder)
    return estimate_probability(rows, embedder, DenseIndex(rows.vectors))


def test_a_higher_score_is_never_less_likely(probability):
    values = probability(np.linspace(-1, 1, 200))
    assert (np.diff(values) >= 0).all()
    assert (values[0], values[-1]) == (pytest.approx(0, abs=0.05), values.max())
    low, high = probability.interval(np.linspace(-1, 1, 200))
    assert (low <= high + 1e-9).all()
    assert (low <= values + 1e-9).all()
    assert (values <= high + 1e-9).all()


def test_the_scale_is_that_of_the_corpus(probability):
    assert probability.scale.unrelated < probability.scale.same <= 1
    assert "mean the same" in probability.notion


def test_a_model_whose_cosines_begin_high_is_measured_on_its_own_scale(embedder, sentences):
    rows = Embedded.of(Corpus.from_texts(sentences), embedder)

    class Raised:
        """The same encoder with a constant added, so that all cosines are high."""

        names = ("raised",)

        def encode(self, texts):
            vectors = embedder.encode(texts)
            return np.column_stack([vectors, np.full(len(texts), 2.0, dtype=np.float32)]) / np.sqrt(5)

    raised = Embedded(rows.rows, rows.place, rows.texts, Raised().encode(rows.texts.to_pylist()))
    high = estimate_probability(raised, Raised(), DenseIndex(raised.vectors))
    usual = estimate_probability(rows, embedder, DenseIndex(rows.vectors))
    assert high.scale.unrelated > 0.8
    scores = np.linspace(0, 1, 9)
    np.testing.assert_allclose(high((scores + 4) / 5), usual(scores), atol=0.05)


def test_it_survives_json(probability):
    assert Probability.from_dict(json.loads(json.dumps(probability.to_dict()))) == probability


def test_other_numbers_and_negation_count_against():
    import pyarrow as pa

    texts = pa.chunked_array(
        [["order 1,234 is late", "order 99 is late", "order 1,234 is not late", "order isn't late"]]
    )
    found = text_evidence(texts, np.array([0, 0, 0, 2]), np.array([1, 2, 0, 3]))
    assert found.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_light_edits_keep_most_of_a_text(sentences):
    rng = np.random.default_rng(0)
    edited = lightly_edited([*sentences[:50], "a", "!?", "ab cd"], rng=rng)
    assert all(text.strip() for text in edited)
    assert sum(before != after for before, after in zip(sentences[:50], edited, strict=False)) > 40
    assert all(abs(len(before) - len(after)) <= 4 for before, after in zip(sentences[:50], edited, strict=False))


def scored(probabilities):
    values = np.array(probabilities)
    apart = np.zeros(len(values), dtype=bool)
    return Scored(None, values.astype(np.float32), values, values, values, np.full(len(values), None), apart)


def test_a_precision_is_kept_in_expectation():
    chosen, least = decide(scored([0.5, 0.99, 0.9, 0.1]), precision=0.9, threshold=None)
    assert (chosen.tolist(), least) == ([False, True, True, False], 0.9)
    assert decide(scored([0.5]), precision=0.9, threshold=None)[0].tolist() == [False]
    assert decide(scored([]), precision=None, threshold=None)[0].tolist() == []


def test_without_a_wish_the_expected_f1_is_the_best_there_is():
    values = np.array([0.9, 0.8, 0.6, 0.3, 0.1])
    chosen, _ = decide(scored(values), precision=None, threshold=None)

    def f1(count):
        return 2 * values[:count].sum() / (count + values.sum())

    assert chosen.sum() == max(range(1, 6), key=f1)


def test_a_precision_outside_0_to_1_is_refused():
    with pytest.raises(ConfigurationError, match="between 0 and 1, not 90"):
        decide(scored([0.5]), precision=90, threshold=None)
    with pytest.raises(ConfigurationError, match="not both"):
        decide(scored([0.5]), precision=0.9, threshold=0.5)


def test_scale_parts_and_scores_are_inverse():
    scale = Scale(0.2, 0.9)
    assert scale(np.array([0.2, 0.9])).tolist() == pytest.approx([0, 1])
    assert scale(np.array([scale.score(0.3)])).tolist() == pytest.approx([0.3])


def test_score_gives_probabilities_of_pairs(tmp_path, bert, pairs):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    arguments = [
        "score",
        str(bert),
        "--kind",
        "bi",
        "--pairs",
        str(tmp_path / "pairs.jsonl"),
        "--probability",
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert (content["of"], len(content["scores"])) == ("probability", len(pairs))
    assert all(0 <= value <= 1 for value in content["scores"])


def test_either_kind_of_encoder_gives_probabilities(bert):
    some = graded(12, seed=0).without_scores()
    for encoder in (BiEncoder.load(bert), CrossEncoder.load(bert)):
        scores, probabilities = pair_probabilities(some, encoder)
        assert len(scores) == len(probabilities) == 12
        assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_one_pair_alone_has_no_probability(bert):
    """There are no other texts that the two could be nearer to each other than."""
    one = PairSet.from_lists(["a dog barks"] * 8, ["the cat sleeps"] * 8)
    for encoder in (BiEncoder.load(bert), CrossEncoder.load(bert)):
        with pytest.raises(DataError, match=r"2 different texts .* at least 3"):
            pair_probabilities(one, encoder)


def test_in_an_index_of_two_texts_unrelated_ones_are_not_the_same(embedder, sentences):
    rows = Embedded.of(Corpus.from_texts(sentences[:2]), embedder)
    likely = estimate_probability(rows, embedder, DenseIndex(rows.vectors))
    assert likely(np.array([likely.scale.unrelated]))[0] < 0.1
