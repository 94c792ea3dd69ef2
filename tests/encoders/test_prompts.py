"""Embeddings equal `SentenceTransformer.encode` for every layout it saves, and prompts can be chosen for each side."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling, WeightedLayerPooling

from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("either_runner")
POOLINGS = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean"), ("mean", "max")]
PROMPTS = {"query": "the baker asks: ", "document": "tall clock: ", "match": "boat: "}


def saved(folder, plm, *, pooling="mean", include_prompt=True, rest=(), **settings):
    body = Transformer(str(plm))
    layers = [Pooling(body.get_embedding_dimension(), pooling, include_prompt=include_prompt), *rest]
    SentenceTransformer(modules=[body, *layers], prompts=PROMPTS, **settings).save_pretrained(str(folder))
    return folder


def texts(pairs):
    return pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()


def check(folder, pairs, *, given=None, names=(None, None)):
    """Our embeddings and scores are those of sentence-transformers, in its own folder and in ours."""
    plain = SentenceTransformer(str(folder), device="cpu")
    task = {"query": "query", "document": "document"}
    expected = [
        plain.encode(side, prompt_name=name, task=task.get(name), convert_to_tensor=True)
        for side, name in zip(texts(pairs), names, strict=True)
    ]
    encoder = BiEncoder.load(folder, prompts=given)
    for side in (0, 1):
        np.testing.assert_allclose(encoder.encode(texts(pairs)[side], side=side), expected[side].numpy(), atol=1e-5)
    cosines = torch.cosine_similarity(*expected).numpy()
    np.testing.assert_allclose(encoder.score(pairs), cosines, atol=1e-5)
    encoder.save(folder.parent / "ours")
    np.testing.assert_allclose(BiEncoder.load(folder.parent / "ours").score(pairs), cosines, atol=1e-5)
    return encoder


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_with_and_without_the_prompt(bert, uneven, tmp_path, pooling, include_prompt):
    folder = saved(tmp_path / "m", bert, pooling=pooling, include_prompt=include_prompt, default_prompt_name="match")
    check(folder, uneven, names=("match", "match"))


def test_prompts_of_each_side_that_are_not_pooled(roberta, uneven, tmp_path):
    folder = saved(tmp_path / "m", roberta, pooling="cls", include_prompt=False)
    check(folder, uneven, given=("query", "document"), names=("query", "document"))


def test_layers_after_the_pooling(bert, uneven, tmp_path):
    folder = saved(tmp_path / "m", bert, rest=[Dense(32, 16), LayerNorm(16), Normalize()])
    check(folder, uneven, given="query", names=("query", "query"))


def test_dropout_and_a_weighted_mean_of_layers(bert, uneven, tmp_path, caplog):
    body = Transformer(str(bert), config_kwargs={"output_hidden_states": True})
    layers = [WeightedLayerPooling(32, num_hidden_layers=2, layer_start=1), Pooling(32), Dropout(0.3)]
    SentenceTransformer(modules=[body, *layers], prompts=PROMPTS).save_pretrained(str(tmp_path / "m"))
    check(tmp_path / "m", uneven)
    assert not [message for message in caplog.messages if "fast forward pass" in message]


@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_padding_on_the_left_does_not_move_a_text(bert, uneven, tmp_path, pooling):
    body = Transformer(str(bert), processor_kwargs={"padding_side": "left"})
    SentenceTransformer(modules=[body, Pooling(32, pooling)]).save_pretrained(str(tmp_path / "m"))
    plain = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert plain.tokenizer.padding_side == "left"
    left = uneven.sentence1.to_pylist()
    # In larger batches sentence-transformers gives a padded text other positions, so its embedding depends on the rest.
    alone = plain.encode(left, batch_size=1)
    assert np.abs(plain.encode(left) - alone).max() > 0.1
    np.testing.assert_allclose(BiEncoder.load(tmp_path / "m").encode(left), alone, atol=1e-5)


def test_embeddings_that_the_model_truncates(bert, uneven, tmp_path):
    check(saved(tmp_path / "m", bert, pooling="cls", rest=[Normalize()], truncate_dim=5), uneven)


def test_routes_that_begin_with_the_text(bert, tiny_model, roberta, uneven, tmp_path):
    def route(plm, width):
        return [Transformer(str(plm)), Pooling(width)]

    same = Router.for_query_document(route(bert, 32), route(tiny_model("bert", width=48), 48))
    SentenceTransformer(modules=[same]).save_pretrained(str(tmp_path / "same"))
    plain = SentenceTransformer(str(tmp_path / "same"), device="cpu")
    left = uneven.sentence1.to_pylist()
    for side, expected in enumerate((plain.encode_query(left), plain.encode_document(left))):
        encoder = BiEncoder.load(tmp_path / "same", prompts=("query", "document"))
        np.testing.assert_allclose(encoder.encode(left, side=side), expected, atol=1e-5)
    other = Router.for_query_document(route(bert, 32), route(roberta, 48))
    SentenceTransformer(modules=[other]).save_pretrained(str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match="have tokenizers of their own"):
        BiEncoder.load(tmp_path / "other")


def test_texts_are_made_lower_case_where_the_model_asks_for_it(roberta, uneven, tmp_path):
    body = Transformer(str(roberta), do_lower_case=True, max_seq_length=12)
    SentenceTransformer(modules=[body, Pooling(48)], prompts=PROMPTS).save_pretrained(str(tmp_path / "m"))
    loud = [(first.upper(), second) for first, second, _ in uneven.rows()]
    quiet = BiEncoder.load(tmp_path / "m").score([(first.lower(), second) for first, second in loud])
    np.testing.assert_allclose(BiEncoder.load(tmp_path / "m").score(loud), quiet, atol=1e-6)


def test_the_routes_of_an_asymmetric_model(bert, uneven, tmp_path):
    router = Router.for_query_document([Dense(32, 8)], [Dense(32, 8)], default_route="document")
    folder = saved(tmp_path / "m", bert, rest=[router])
    plain = SentenceTransformer(str(folder), device="cpu")
    left, right = texts(uneven)
    expected = plain.encode_query(left, convert_to_tensor=True), plain.encode_document(right, convert_to_tensor=True)
    encoder = BiEncoder.load(folder, prompts=("query", "document"))
    np.testing.assert_allclose(encoder.score(uneven), torch.cosine_similarity(*expected).numpy(), atol=1e-5)
    one_way = plain.encode(left, convert_to_tensor=True)
    np.testing.assert_allclose(BiEncoder.load(folder).encode(left), one_way.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ("match", "match")),
        ("none", (None, None)),
        (("query", None), ("query", "match")),
        ("query", ("query",) * 2),
    ],
)
def test_a_prompt_is_chosen_by_name_or_switched_off(bert, pairs, tmp_path, given, names):
    folder = saved(tmp_path / "m", bert, default_prompt_name="match")
    plain = SentenceTransformer(str(folder), device="cpu")
    left, right = (
        plain.encode([PROMPTS.get(name, "") + text for text in side], prompt="", convert_to_tensor=True)
        for side, name in zip(texts(pairs), names, strict=True)
    )
    found = BiEncoder.load(folder, prompts=given).score(pairs)
    np.testing.assert_allclose(found, torch.cosine_similarity(left, right).numpy(), atol=1e-5)


def test_a_text_can_be_a_prompt_and_is_saved_as_the_default(bert, pairs, tmp_path):
    encoder = BiEncoder.load(bert, prompts="quiet sailor: ")
    encoder.save(tmp_path / "m")
    plain = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    left = pairs.sentence1.to_pylist()
    np.testing.assert_allclose(plain.encode(left), encoder.encode(left), atol=1e-5)
    assert not np.allclose(BiEncoder.load(bert).encode(left), encoder.encode(left), atol=1e-3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", r"the prompt for .* is empty; give the name of a prompt"),
        ("passage", r"has no prompt called passage; it has query, document, match\. Give one of them, none, or a text"),
        (("query", "nothing"), "has no prompt called nothing"),
    ],
)
def test_a_prompt_that_is_not_there_is_told_in_one_sentence(bert, tmp_path, given, said):
    with pytest.raises(ConfigurationError, match=said):
        BiEncoder.load(saved(tmp_path / "m", bert), prompts=given)


def test_a_prompt_that_the_model_leaves_empty_is_not_there(bert):
    with pytest.raises(ConfigurationError, match=r"has no prompt called query; it has none\. Give a text"):
        BiEncoder.load(bert, prompts="query")


def test_what_learns_with_two_prompts_is_saved_with_them(bert, dev, tmp_path):
    student = BiEncoder.load(saved(tmp_path / "m", bert, include_prompt=False), prompts=("query", "document"))
    plan = TrainingPlan(loss="mse", batch_size=16, epochs=1, learning_rate=1e-3, max_tokens=32)
    before = student.score(dev)
    trained = train(student, dev, plan=plan, options=TrainingOptions(folder=tmp_path / "work")).encoder
    after = trained.score(dev)
    assert np.abs(after - before).max() > 1e-4
    trained.save(tmp_path / "bi")
    np.testing.assert_allclose(BiEncoder.load(tmp_path / "bi").score(dev), after, atol=1e-6)
    CrossEncoder.load(bert).save(tmp_path / "cross")
    body = BiEncoder.from_body(tmp_path / "cross", like=trained)
    assert body.prompts == trained.prompts
    plain = SentenceTransformer(str(tmp_path / "bi"), device="cpu")
    left, right = (
        plain.encode(side, prompt_name=name, convert_to_tensor=True)
        for side, name in zip(texts(dev), ("sentence1", "sentence2"), strict=True)
    )
    np.testing.assert_allclose(torch.cosine_similarity(left, right).numpy(), after, atol=1e-5)


def test_texts_of_two_thousand_tokens_are_cut_to_what_the_model_takes(bert, roberta):
    long = " ".join(["boat lamp"] * 1000)
    for plm in (bert, roberta):
        for encoder in (BiEncoder, CrossEncoder):
            loaded = encoder.load(plm)
            loaded.model.tokenizer.model_max_length = int(1e30)
            assert np.isfinite(loaded.score([(long, "a clock"), (long, long)])).all()


def test_a_model_that_is_not_a_transformer_is_refused(bert, tmp_path):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from transformers import AutoTokenizer

    static = StaticEmbedding(AutoTokenizer.from_pretrained(bert), embedding_dim=8)
    SentenceTransformer(modules=[static]).save_pretrained(str(tmp_path / "static"))
    with pytest.raises(ConfigurationError, match=r"modules that trans-encoder cannot run \(StaticEmbedding\)"):
        BiEncoder.load(tmp_path / "static")
