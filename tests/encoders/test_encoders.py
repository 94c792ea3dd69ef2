"""Encoders: scores equal sentence-transformers' own, the kind is found, what must not be loaded is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from trans_encoder.encoders import BiEncoder, CrossEncoder, find_kind, load_encoder
from trans_encoder.encoders.known import KNOWN, Known
from trans_encoder.errors import ConfigurationError, DataError

pytestmark = pytest.mark.usefixtures("either_runner")


def test_the_kind_is_found_from_the_folder(bert, tmp_path):
    BiEncoder.load(bert).save(tmp_path / "bi")
    CrossEncoder.load(bert).save(tmp_path / "cross")
    assert [find_kind(path) for path in (bert, tmp_path / "bi", tmp_path / "cross")] == ["bi", "bi", "cross"]
    assert isinstance(load_encoder(tmp_path / "cross"), CrossEncoder)
    assert isinstance(load_encoder(tmp_path / "cross", kind="bi"), BiEncoder)


def test_a_models_own_prompt_is_used_everywhere(bert, pairs, tmp_path):
    plain = SentenceTransformer(str(bert))
    prompted = SentenceTransformer(modules=list(plain), prompts={"match": "baker: "}, default_prompt_name="match")
    prompted.save_pretrained(str(tmp_path / "prompted"))
    encoder = BiEncoder.load(tmp_path / "prompted")
    left, right = pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()
    expected = [prompted.encode(texts, convert_to_tensor=True) for texts in (left, right)]
    assert np.allclose(encoder.encode(left), expected[0].numpy(), atol=1e-5)
    assert np.allclose(encoder.score(pairs), torch.cosine_similarity(*expected).numpy(), atol=1e-5)
    assert not np.allclose(BiEncoder.load(bert).encode(left), expected[0].numpy(), atol=1e-3)


@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_pooling_is_read_from_the_checkpoint_unless_given(bert, tmp_path, mode):
    BiEncoder.load(bert, pooling=mode).save(tmp_path / "model")
    assert BiEncoder.load(tmp_path / "model").pooling == mode
    other = {"cls": "mean", "mean": "cls"}[mode]
    assert BiEncoder.load(tmp_path / "model", pooling=other).pooling == other


def test_a_checkpoint_that_does_not_say_its_pooling_gets_the_known_one(bert, monkeypatch, tmp_path):
    monkeypatch.setitem(KNOWN, str(bert), Known("plm", "cls"))
    assert load_encoder(bert).pooling == "cls"
    assert BiEncoder.load(bert, pooling="mean").pooling == "mean"
    BiEncoder.load(bert, pooling="mean").save(tmp_path / "said")
    monkeypatch.setitem(KNOWN, str(tmp_path / "said"), Known("plm", "cls"))
    assert BiEncoder.load(tmp_path / "said").pooling == "mean"


def test_a_guessed_pooling_is_said(bert, caplog, tmp_path):
    plain = shutil.copytree(bert, tmp_path / "plain")
    encoder = BiEncoder.load(plain)
    assert encoder.pooling == "mean"
    assert f"{plain} does not say how token embeddings become a sentence's, so their mean is taken" in caplog.text
    assert "give its pooling (--pooling" in caplog.text
    encoder.save(tmp_path / "said")
    caplog.clear()
    BiEncoder.load(tmp_path / "said")
    assert not caplog.text


def test_a_local_copy_of_the_authors_model_reads_the_first_token_and_says_why(bert, caplog, tmp_path):
    copy = shutil.copytree(bert, tmp_path / "trans-encoder-bi-simcse-bert-base")
    assert BiEncoder.load(copy).pooling == "cls"
    assert "cls as for cambridgeltl/trans-encoder-bi-simcse-bert-base, whose name it has, is taken" in caplog.text
    assert "--pooling" in caplog.text
    assert BiEncoder.load(copy, pooling="mean").pooling == "mean"


def test_a_model_that_is_remade_keeps_its_prompts_and_similarity(bert, tmp_path):
    settings = {"prompts": {"match": "baker: "}, "default_prompt_name": "match", "similarity_fn_name": "dot"}
    SentenceTransformer(modules=list(SentenceTransformer(str(bert))), **settings).save_pretrained(str(tmp_path / "bi"))
    CrossEncoder.load(bert).save(tmp_path / "cross")
    pooled = BiEncoder.load(tmp_path / "bi", pooling="cls")
    for encoder in (pooled, BiEncoder.from_body(tmp_path / "cross", like=pooled)):
        assert encoder.model.prompts["match"] == "baker: "
        assert (encoder.model.default_prompt_name, encoder.model.similarity_fn_name) == ("match", "dot")


def test_a_new_head_depends_on_the_seed_alone(bert):
    heads = [CrossEncoder.load(bert, seed=seed).model.transformers_model.classifier.weight for seed in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_saved_head_is_kept(bert, pairs, tmp_path):
    encoder = CrossEncoder.load(bert, seed=3)
    encoder.save(tmp_path / "cross")
    assert np.array_equal(CrossEncoder.load(tmp_path / "cross", seed=4).score(pairs), encoder.score(pairs))


def test_scores_of_many_pairs_do_not_depend_on_how_they_are_cut(bert, pairs, monkeypatch):
    encoder = BiEncoder.load(bert)
    whole = encoder.score(pairs)
    monkeypatch.setattr("trans_encoder.encoders.bi._EMBEDDINGS_BYTES", 10 * 2 * 4 * 32)
    assert np.allclose(encoder.score(pairs), whole, atol=1e-6)


def test_pickled_weights_that_cannot_be_converted_safely_are_refused(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").rename(tmp_path / "old" / "pytorch_model.bin")
    with pytest.raises(ConfigurationError, match=r"pytorch_model\.bin.*cannot be converted safely"):
        BiEncoder.load(tmp_path / "old")


def test_remote_code_is_refused_unless_asked_for(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "odd.Model"}}))
    for load in (BiEncoder.load, CrossEncoder.load):
        with pytest.raises(ConfigurationError, match="--trust-remote-code"):
            load(tmp_path / "odd")


@pytest.mark.parametrize(
    ("name", "said"),
    [("./nowhere", "does not exist"), ("organisation/unknown-model", "could not be loaded")],
)
def test_what_cannot_be_loaded_is_said_with_what_was_expected(name, said):
    with pytest.raises(ConfigurationError, match=said):
        BiEncoder.load(name)


def test_a_run_folder_given_as_a_model_is_refused_with_the_models_inside(bert, tmp_path):
    run = tmp_path / "run"
    for place, encoder in (("best/bi", BiEncoder), ("best/cross", CrossEncoder), ("cycle-1/cross", CrossEncoder)):
        encoder.load(bert).save(run / place)
    (run / "config.json").write_text('{"preset": "small"}', encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load_encoder(run)
    best = run / "best"
    assert str(refused.value) == (
        f"folder {run} is no model, but holds some: {best / 'bi'}, {best / 'cross'}, ...; give one of them"
    )


@pytest.mark.parametrize("encoder", [BiEncoder, CrossEncoder])
def test_scores_are_in_full_precision_whatever_surrounds_them(bert, pairs, encoder):
    model = encoder.load(bert)
    expected = model.score(pairs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(model.score(pairs), expected)


def test_a_cross_encoder_with_several_labels_is_refused(bert, tmp_path):
    from sentence_transformers import CrossEncoder as Plain

    Plain(str(bert), num_labels=3).save_pretrained(str(tmp_path / "nli"))
    with pytest.raises(ConfigurationError, match="3 labels"):
        CrossEncoder.load(tmp_path / "nli")


@pytest.mark.parametrize("encoder", [BiEncoder, CrossEncoder])
def test_lists_of_two_texts_are_scored_as_pair_sets_are(bert, pairs, encoder):
    model = encoder.load(bert)
    listed = [(first, second) for first, second, _ in pairs.rows()]
    assert np.array_equal(model.score(listed), model.score(pairs))
    assert len(model.score([])) == 0
    assert len(model.score([("a boat", ""), ("a boat", "a lamp")])) == 2
    for wrong in (["two texts"], [("one",)], [("one", 2)]):
        with pytest.raises(DataError, match=r"pair 1 is .*expected two texts"):
            model.score(wrong)


@pytest.mark.parametrize("size", ["base", "large"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_authors_released_models_read_the_first_token(family, size):
    for kind in ("bi", "cross"):
        known = KNOWN[f"cambridgeltl/trans-encoder-{kind}-simcse-{family}-{size}"]
        assert known.pooling == "cls"
        assert family in known.plm
        assert size in known.plm
        assert not known.supervised
