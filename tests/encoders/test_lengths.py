"""Lengths: what covers the texts, what is cut, and what a model can take."""

import numpy as np
import pytest
from transformers import AutoTokenizer

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.lengths import count_cuts, fitting_length
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.encoders.training import TrainingOptions, train

WORDS = ["the", "old", "farmer", "sells", "the", "red", "boat", "near", "the", "school"]


def text(tokens: int, *, first: int = 0) -> str:
    """Return a text of this many tokens, [CLS] and [SEP] included."""
    return " ".join(WORDS[(first + place) % len(WORDS)] for place in range(tokens - 2))


def of_lengths(*lengths: int) -> PairSet:
    """Return a pair for each length, both of its texts this long and all of them different."""
    counted = list(enumerate(lengths))
    return PairSet.from_lists(
        [f"{place} {text(length - len(str(place)), first=0)}" for place, length in counted],
        [f"{place} {text(length - len(str(place)), first=1)}" for place, length in counted],
    )


def test_the_words_of_these_tests_are_one_token_each(bert):
    assert len(AutoTokenizer.from_pretrained(bert)(text(30))["input_ids"]) == 30
    lengths = BiEncoder.load(bert).tokeniser(of_lengths(20, 50), max_tokens=64).tokens.whole + 2
    assert sorted(lengths.tolist()) == [20, 20, 50, 50]


@pytest.mark.parametrize(
    ("lengths", "bi", "cross"),
    [
        ([20] * 100, 24, 40),  # rounded up to a multiple of eight; a pair has three special tokens, not four
        ([20] * 99 + [60], 24, 40),  # one text in a hundred may be cut
        ([20] * 98 + [60] * 2, 64, 80),  # two may not, but a pair is bounded by the model's 80 positions
        ([300] * 10, 80, 80),
    ],
)
def test_a_length_covers_99_percent_of_the_texts_as_far_as_the_model_goes(bert, lengths, bi, cross):
    pairs = of_lengths(*lengths)
    assert fitting_length(BiEncoder.load(bert), pairs) == bi
    assert fitting_length(CrossEncoder.load(bert), pairs) == cross


@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_cuts_are_counted_at_the_model_s_own_length_or_another(bert, kind):
    encoder, pairs = kind.load(bert, max_tokens=40), of_lengths(10, 10, 60, 200)
    cuts = count_cuts(encoder, pairs)
    each = 2 if kind is BiEncoder else 1
    assert (cuts.max_tokens, cuts.counted, cuts.cut) == (40, 4 * each, 2 * each)
    assert cuts.longest == (200 if kind is BiEncoder else 399)
    assert f"{2 * each} of {4 * each} {cuts.unit} (50.0%) are longer than 40 tokens and are cut" in str(cuts)
    none = count_cuts(encoder, pairs, max_tokens=512)
    assert (none.cut, str(none)) == (0, f"none of {4 * each} {cuts.unit} is longer than 512 tokens")


def test_counting_and_scoring_share_one_tokenisation_and_longer_tokens_serve_shorter_asks(bert, monkeypatch):
    tokeniser, pairs = PairTokeniser(AutoTokenizer.from_pretrained(bert)), of_lengths(200, 30)
    PairTokeniser.forget()
    whole = tokeniser(pairs, max_tokens=150)
    assert tokeniser(pairs, max_tokens=32) is whole
    assert whole.tokens.lengths.max() == 150
    longer = tokeniser(pairs, max_tokens=180)
    assert longer.tokens.lengths.max() == 180
    assert longer.tokens.whole.tolist() == whole.tokens.whole.tolist() == [198, 28, 198, 28]


@pytest.mark.parametrize(("family", "positions"), [("bert", 80), ("roberta", 78), ("modernbert", 80)])
def test_a_tokenizer_that_names_no_length_leaves_the_positions_as_the_limit(tiny_model, tmp_path, family, positions):
    for part in tiny_model(family).iterdir():
        (tmp_path / part.name).write_bytes(part.read_bytes())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.model_max_length = 10**30
    tokenizer.save_pretrained(tmp_path)
    for encoder in (BiEncoder.load(tmp_path), CrossEncoder.load(tmp_path)):
        assert (encoder.max_tokens, encoder.token_limit) == (positions, positions)
        assert np.isfinite(encoder.score(of_lengths(2000, 10))).all()


@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_training_cuts_what_is_learnt_from_and_leaves_the_model_its_own_length(bert, tmp_path, kind):
    plan = TrainingPlan(loss="mse", batch_size=2, epochs=1, learning_rate=1e-3, max_tokens=16, dropout=0.0)
    pairs = of_lengths(10, 60, 70, 30).with_scores([0.0, 1.0, 0.5, 0.2])

    def weights(student, labelled: PairSet, name: str) -> np.ndarray:
        options = TrainingOptions(folder=tmp_path / name)
        trained = train(student, labelled, plan=plan, options=options).encoder
        assert trained.max_tokens == 64
        return np.concatenate([value.detach().numpy().ravel() for value in trained.model.parameters()])

    cut = weights(kind.load(bert), pairs, "cut")
    # What is beyond the cut has no say: the same texts with other ends teach the same.
    texts = ([one.as_py() for one in side] for side in (pairs.sentence1, pairs.sentence2))
    longer = ([f"{one} boat boat" if place in (1, 2) else one for place, one in enumerate(side)] for side in texts)
    changed = PairSet.from_lists(*longer).with_scores([0.0, 1.0, 0.5, 0.2])
    np.testing.assert_array_equal(cut, weights(kind.load(bert), changed, "changed"))
