"""Shared wording: letter groups and words, without a model."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from trans_encoder.data.wording import matched_words, shared_wording


def bm25(query: str, document: str, texts: list[str]) -> float:
    """BM25 as the formula has it, word by word."""
    split = [text.lower().split() for text in texts]
    mean_length, words = np.mean([len(each) for each in split]), document.lower().split()
    total = 0.0
    for word in set(query.lower().split()):
        having = sum(word in each for each in split)
        idf, count = np.log(1 + (len(texts) - having + 0.5) / (having + 0.5)), words.count(word)
        total += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / mean_length))
    return total


def test_matched_words_are_bm25_both_ways_as_shares_of_what_a_text_scores_with_itself():
    first = ["the old farmer rides", "the cat sleeps", "a dog barks at the old old cat"]
    second = ["the farmer rides", "a dog barks", "the cat sleeps"]
    texts = list(dict.fromkeys([*first, *second]))
    expected = [
        (bm25(one, other, texts) / bm25(one, one, texts) + bm25(other, one, texts) / bm25(other, other, texts)) / 2
        for one, other in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(matched_words(first, second), expected, rtol=1e-5)
    np.testing.assert_allclose(matched_words(second, first), expected, rtol=1e-5)


def test_equal_texts_match_wholly_and_texts_without_a_common_word_not_at_all():
    assert matched_words(["red green", "red", "?"], ["green red", "blue", "!"]).tolist() == [1, 0, 0]
    assert matched_words(["?!", "..."], ["!?", "."]).tolist() == [0, 0]


def test_scripts_without_spaces_are_matched_by_character():
    assert matched_words(["今日は雨です", "猫"], ["明日は雨です", "犬"]) == pytest.approx([0.7, 0], abs=0.2)


def test_both_measures_order_pairs_by_what_they_share(dev):
    first, second = dev.sentence1.to_pylist(), dev.sentence2.to_pylist()
    for measure in (matched_words, shared_wording):
        assert spearmanr(measure(first, second), dev.scores).statistic > 0.8
