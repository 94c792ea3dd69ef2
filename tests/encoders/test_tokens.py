"""Tokenising once gives exactly what the tokenizer gives for every input."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, CanineTokenizer

from conftest import FAMILIES
from trans_encoder.encoders import tokens
from trans_encoder.encoders.batching import assemble, budget_batches, epoch_batches
from trans_encoder.encoders.tokens import PairTokeniser, SpecialTokens, longest_first, tokenise
from trans_encoder.errors import ConfigurationError
from trans_encoder.runner import split_by_length

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=300).map(np.array)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("max_tokens", [8, 21, 64])
def test_inputs_equal_the_tokenizers_own(tiny_model, pairs, family, max_tokens):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(family))
    first, second = pairs.sentence1.to_pylist()[:20], pairs.sentence2.to_pylist()[:20]
    second[0] = "boat"
    first[1] = " ".join(first)
    tokens = [tokenise(tokenizer, pa.array(texts), max_tokens=512) for texts in (first, second)]
    single, pair = SpecialTokens.of(tokenizer, texts=1), SpecialTokens.of(tokenizer, texts=2)
    cut = longest_first(tokens[0].lengths, tokens[1].lengths, limit=max_tokens - pair.extra)
    ours = [
        assemble([[tokens[0][i][: max_tokens - single.extra]] for i in range(20)], single),
        assemble([[tokens[0][i][: cut[0][i]], tokens[1][i][: cut[1][i]]] for i in range(20)], pair),
    ]
    options = {"truncation": True, "max_length": max_tokens, "padding": True, "return_tensors": "pt"}
    theirs = [tokenizer(first, **options), tokenizer(first, second, **options)]
    for own, expected in zip(ours, theirs, strict=True):
        assert own.keys() == expected.keys()
        assert all(torch.equal(own[name], expected[name]) for name in own)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 50))
def test_longest_first_truncates_as_fast_tokenizers_do(first, second, limit):
    tokenizer = Tokenizer(models.WordLevel({"w": 0}, unk_token="w"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(limit, strategy="longest_first")
    kept = tokenizer.encode("w " * first, "w " * second).sequence_ids
    ours = longest_first(np.array([first]), np.array([second]), limit=limit)
    assert [int(length[0]) for length in ours] == [kept.count(0), kept.count(1)]


def test_a_pair_set_is_tokenised_once(bert, pairs):
    tokeniser = PairTokeniser(AutoTokenizer.from_pretrained(bert))
    assert tokeniser(pairs, max_tokens=32) is PairTokeniser(AutoTokenizer.from_pretrained(bert))(pairs, max_tokens=64)


def test_what_is_remembered_is_bounded_in_bytes(bert, pairs, monkeypatch):
    PairTokeniser.forget()
    tokeniser = PairTokeniser(AutoTokenizer.from_pretrained(bert))
    parts = [pairs.between(start, start + 8) for start in range(0, 32, 8)]
    monkeypatch.setattr(tokens, "_REMEMBERED_BYTES", 2 * tokeniser(parts[0], max_tokens=32).nbytes)
    for part in parts:
        last = tokeniser(part, max_tokens=32)
    held = list(PairTokeniser._remembered.values())
    assert 1 <= len(held) <= 2
    assert held[-1][1] is last
    PairTokeniser.forget()


def test_a_tokenizer_written_in_python_is_refused_with_what_to_do():
    with pytest.raises(ConfigurationError, match="CanineTokenizer is written in Python; expected a fast one"):
        SpecialTokens.of(CanineTokenizer(), texts=1)


def test_a_tokenizer_without_padding_is_refused_with_what_to_do(bert):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.pad_token = None
    with pytest.raises(ConfigurationError, match=r"has no padding token.*tokenizer\.pad_token = "):
        SpecialTokens.of(tokenizer, texts=2)


@given(LENGTHS, st.integers(16, 512))
def test_budget_batches_hold_each_input_once_within_the_budget(lengths, budget):
    batches = list(budget_batches(lengths, max_batch_tokens=budget))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= budget for batch in batches)


@given(LENGTHS, st.integers(1, 16), st.booleans())
def test_an_epoch_holds_each_example_once_in_full_batches(lengths, batch_size, by_length):
    batches = epoch_batches(lengths, batch_size=batch_size, seed=3, epoch=1, by_length=by_length)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_batches_of_similar_length_pad_little_and_still_vary():
    lengths = np.random.default_rng(0).integers(4, 60, size=4000)

    def batches(epoch: int) -> list[np.ndarray]:
        return epoch_batches(lengths, batch_size=32, seed=0, epoch=epoch, by_length=True)

    chosen = [lengths[batch] for batch in batches(0)]
    computed = sum(len(group) * found[group].max() for found in chosen for group in split_by_length(found))
    assert computed < 1.1 * lengths.sum()
    assert np.mean([np.ptp(found) for found in chosen]) > 20, "a batch holds short and long inputs"
    assert [batch.tolist() for batch in batches(0)] == [batch.tolist() for batch in batches(0)]
    assert {frozenset(batch.tolist()) for batch in batches(0)}.isdisjoint(frozenset(b.tolist()) for b in batches(1))


@given(LENGTHS)
def test_groups_of_a_batch_hold_each_input_once(lengths):
    assert sorted(np.concatenate(split_by_length(lengths))) == list(range(len(lengths)))
