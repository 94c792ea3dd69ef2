"""Mining: bands, balance, rules, and the same pairs for the same seed."""

import importlib
import json
import logging
from collections import Counter
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import sentence, words
from trans_encoder.cli import app
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.mining import Mix, mine
from trans_encoder.mining.bands import rank_limits
from trans_encoder.mining.parts import two_parts
from trans_encoder.mining.search import DenseSearcher, LexicalSearcher

NEAR = Mix(near=1)
ALL_RANKS = Mix.parse("4,2,2,2,0")


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    random = Random(5)
    return list(dict.fromkeys(sentence(words(random)) for _ in range(500)))


@pytest.fixture(scope="module")
def encoder(bert) -> BiEncoder:
    return BiEncoder.load(bert, device="cpu")


def rows(pairs: PairSet) -> list[tuple[str, str]]:
    return [(first, second) for first, second, _ in pairs.rows()]


def overlap(pairs: PairSet) -> float:
    """Return the mean number of words that the sentences of a pair share."""
    return float(np.mean([len(set(first.split()) & set(second.split())) for first, second in rows(pairs)]))


def test_gives_the_asked_pairs_in_the_asked_mix(corpus):
    mined = mine(corpus, pairs=200, mix=Mix(near=2, middle=1, far=1, random=1))
    assert len(mined.pairs) == mined.asked == 200
    assert mined.sentences == len(corpus)
    assert mined.counts == {
        "near": {"lexical": 80},
        "middle": {"lexical": 40},
        "far": {"lexical": 40},
        "random": {"random": 40},
    }
    assert mined.to_dict()["pairs"] == 200


def test_bands_order_the_likeness(corpus):
    def only(band):
        mix = Mix(**{name: float(name == band) for name in Mix.model_fields})
        return overlap(mine(corpus, pairs=150, mix=mix).pairs)

    near, middle, far, random = map(only, ("near", "middle", "far", "random"))
    assert near > middle > max(far, random)


def test_parts_are_of_one_sentence_and_alike_to_every_degree(corpus):
    mined = mine(corpus, pairs=300, mix=Mix(parts=1), seed=3)
    assert mined.counts == {"parts": {"parts": 300}}
    shared = []
    for first, second in rows(mined.pairs):
        assert first != second
        assert any(first in text and second in text for text in corpus)
        shared.append(len(set(first.split()) & set(second.split())) / len(set(first.split()) | set(second.split())))
    assert min(shared) == 0 < np.quantile(shared, 0.25) < np.quantile(shared, 0.75) < max(shared)
    assert len(set(map(frozenset, rows(mined.pairs)))) == 300


@pytest.mark.parametrize("sentence", ["我喜欢安静的小猫和大狗", "ab", "one two three four five six"])
def test_parts_of_any_script_and_length(sentence):
    rng = np.random.default_rng(0)
    for _ in range(50):
        first, second = two_parts(sentence, rng=rng)
        assert first.strip()
        assert second.strip()
        assert first in sentence
        assert second in sentence


def test_rules_hold_when_the_text_is_squeezed(corpus):
    doubled = corpus[:30] + [f" {text.upper()}  " for text in corpus[:30]]
    mined = mine(doubled, pairs=120, mix=ALL_RANKS, max_per_sentence=11)
    keys = [frozenset((first, second)) for first, second in rows(mined.pairs)]
    assert mined.sentences == 30
    assert len(set(keys)) == len(keys) == 120
    assert all(len(key) == 2 for key in keys)
    uses = Counter(text for key in keys for text in key)
    assert max(uses.values()) <= 11


def test_a_small_text_gives_many_parts_of_each_sentence(corpus):
    few = [each for each in corpus if len(each.split()) > 6][:20]
    assert len(mine(few, pairs=3000, seed=0).pairs) > 10 * len(few)


def test_a_hub_does_not_dominate():
    hub = "alpha beta gamma delta epsilon zeta"
    spokes = [f"{word} number{i}" for i, word in enumerate(hub.split() * 20)]
    mined = mine([hub, *spokes], pairs=100, mix=NEAR, max_per_sentence=3)
    uses = Counter(text for pair in rows(mined.pairs) for text in pair)
    assert uses[hub] <= 3
    assert max(uses.values()) == 3


def test_same_seed_same_pairs(corpus):
    first, again, other = (mine(corpus, pairs=100, mix=ALL_RANKS, seed=seed).pairs for seed in (1, 1, 2))
    assert first.hash == again.hash != other.hash


def test_says_how_many_there_were(corpus, caplog):
    with caplog.at_level(logging.WARNING):
        mined = mine(corpus[:10], pairs=1000, mix=ALL_RANKS)
    assert 0 < len(mined.pairs) <= 45
    assert f"asked for 1000 pairs, but 10 distinct sentences gave only {len(mined.pairs)}" in caplog.text


def test_shards_together_give_the_asked_pairs(corpus, monkeypatch):
    monkeypatch.setattr(importlib.import_module("trans_encoder.mining.mine"), "_SHARD", 64)
    mined = mine(corpus, pairs=300, mix=ALL_RANKS)
    assert mined.counts == mine(corpus, pairs=300, mix=ALL_RANKS).counts
    assert len({text for pair in rows(mined.pairs) for text in pair}) > len(corpus) / 2


def test_dense_and_lexical_share_each_band(corpus, encoder):
    mined = mine(corpus, pairs=100, encoder=encoder, mix=Mix(near=3, middle=1, far=1, random=0, parts=0))
    assert mined.counts == {
        "near": {"lexical": 30, "dense": 30},
        "middle": {"lexical": 10, "dense": 10},
        "far": {"lexical": 10, "dense": 10},
    }


def test_dense_neighbours_are_those_of_the_encoder(corpus, encoder):
    near = mine(corpus, pairs=100, encoder=encoder, methods=["dense"], mix=NEAR).pairs
    random = mine(corpus, pairs=100, mix=Mix(near=0, middle=0, far=0, random=1, parts=0)).pairs
    assert encoder.score(near).mean() > encoder.score(random).mean()


def test_dense_search_ranks_by_cosine(corpus, encoder):
    embeddings = encoder.encode(corpus)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    found = DenseSearcher(corpus, encoder).search(np.array([7]), 5)
    cosines = unit @ unit[7]
    np.testing.assert_allclose(cosines[found[0]], np.sort(cosines)[::-1][:5], atol=1e-5)


def test_lexical_search_ranks_by_shared_words_and_stops_where_none_is_shared():
    found = LexicalSearcher(["red boat", "red boat sails", "red house", "quiet hill"]).search(np.array([0]), 4)
    assert found.tolist() == [[0, 1, 2, -1]]


def test_lexical_search_reads_scripts_without_spaces():
    found = LexicalSearcher(["我喜欢猫", "他喜欢猫", "今天下雨"]).search(np.array([0]), 2)
    assert found.tolist() == [[0, 1]]


def test_rank_limits_shrink_with_the_text():
    assert rank_limits(100_000) == {"near": (0, 10), "middle": (10, 100), "far": (100, 1000)}
    assert rank_limits(28) == {"near": (0, 3), "middle": (3, 9), "far": (9, 27)}


@pytest.mark.parametrize("pairs", [1, 7, 99, 1000])
def test_mix_counts_add_up(pairs):
    assert sum(Mix(near=1, middle=1, far=1, random=0.5).counts(pairs).values()) == pairs


def test_refusals(corpus):
    with pytest.raises(ConfigurationError, match="needs a bi-encoder"):
        mine(corpus, pairs=10, methods=["dense"])
    with pytest.raises(ConfigurationError, match="the mix has none"):
        mine(corpus, pairs=10, methods=["lexical"])
    with pytest.raises(ConfigurationError, match="choose from: lexical, dense"):
        mine(corpus, pairs=10, methods=[])
    with pytest.raises(ConfigurationError, match="at least 1"):
        mine(corpus, pairs=0)
    with pytest.raises(ConfigurationError, match="all zero"):
        mine(corpus, pairs=10, mix=Mix())
    with pytest.raises(DataError, match="two different sentences"):
        mine(["One line.", "one  line."], pairs=1)
    with pytest.raises(DataError, match="no pair could be mined"):
        mine(["a b", "c d"], pairs=1, mix=NEAR)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_the_command_writes_pairs_that_can_be_read(corpus, tmp_path, suffix):
    (tmp_path / "text.txt").write_text("\n".join(corpus) + "\n")
    out = tmp_path / f"pairs{suffix}"
    command = ["mine", "--text", tmp_path / "text.txt", "--out", out, "--pairs", 50, "--mix", "3,1,0,1,0", "--json"]
    ran = CliRunner().invoke(app, [str(part) for part in command])
    assert ran.exit_code == 0, ran.output
    assert "Building index" not in ran.stderr, "a library's own log is for --debug alone"
    assert json.loads(ran.stdout)["counts"] == {
        "near": {"lexical": 30},
        "middle": {"lexical": 10},
        "random": {"random": 10},
    }
    read = PairSet.read(out)
    assert (len(read), read.scores) == (50, None)


def test_the_command_refuses_a_model_that_it_would_not_use(corpus, tmp_path, bert):
    (tmp_path / "text.txt").write_text("\n".join(corpus) + "\n")
    command = ["mine", "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "pairs.csv"), "--model", str(bert)]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 2
    assert "the mix has none" in ran.stderr


@pytest.mark.parametrize("mix", ["1,2,3,4", "a,b,c,d,e", "1,-1,1,1,1"])
def test_the_command_refuses_a_strange_mix(corpus, tmp_path, mix):
    (tmp_path / "text.txt").write_text("\n".join(corpus) + "\n")
    ran = CliRunner().invoke(
        app, ["mine", "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "pairs.csv"), "--mix", mix]
    )
    assert ran.exit_code == 2
    assert "expected five shares" in ran.stderr
