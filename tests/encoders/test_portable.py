"""Saved folders have the files and fields that earlier sentence-transformers and other programs read."""

import json

import numpy as np
import pytest
import sentence_transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer

from conftest import FAMILIES
from trans_encoder.encoders import BiEncoder, CrossEncoder

POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# What each program asks for, by file; written from the fields that its loader reads.
SENTENCE_TRANSFORMERS_3 = {
    "sentence_bert_config.json": {"max_seq_length", "do_lower_case"},
    "1_Pooling/config.json": {"word_embedding_dimension", "include_prompt", *POOLING_KEYS.values()},
}
"""Version 3 passes every key on as an argument, so there may be no others."""
TEXT_EMBEDDINGS_INFERENCE = {
    "config.json": {"architectures", "model_type", "hidden_size", "num_hidden_layers", "max_position_embeddings"},
    "1_Pooling/config.json": {"pooling_mode_cls_token", "pooling_mode_mean_tokens"},
    "sentence_bert_config.json": {"max_seq_length"},
}
MODULES = [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")]
"""vLLM and llama.cpp look for the pooling and the normalising by these paths."""


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.fixture
def bi(bert, tmp_path):
    body = Transformer(str(bert))
    plain = SentenceTransformer(modules=[body, Pooling(32, "cls"), Normalize()])
    BiEncoder(plain, name="bi").save(tmp_path / "bi")
    return tmp_path / "bi"


@pytest.fixture
def cross(bert, tmp_path):
    CrossEncoder.load(bert, max_tokens=40).save(tmp_path / "cross")
    return tmp_path / "cross"


def test_a_bi_encoder_has_what_sentence_transformers_3_reads_and_nothing_else(bi):
    assert [module["type"] for module in read(bi, "modules.json")] == MODULES
    for name, keys in SENTENCE_TRANSFORMERS_3.items():
        assert read(bi, name).keys() == keys
    assert read(bi, "sentence_bert_config.json") == {"max_seq_length": 64, "do_lower_case": False}


def test_a_bi_encoder_has_what_text_embeddings_inference_reads(bi):
    for name, keys in TEXT_EMBEDDINGS_INFERENCE.items():
        assert keys <= read(bi, name).keys()
    assert read(bi, "config.json")["architectures"] == ["BertModel"]
    assert (bi / "tokenizer.json").exists()


@pytest.mark.parametrize("mode", POOLING_KEYS)
def test_the_first_true_field_of_the_pooling_is_its_mode_as_vllm_reads_it(bert, tmp_path, mode):
    BiEncoder.load(bert, pooling=mode).save(tmp_path / "bi")
    config = read(tmp_path / "bi", "1_Pooling/config.json")
    assert next(name for name, value in config.items() if value is True) == POOLING_KEYS[mode]
    assert sum(config[key] for key in POOLING_KEYS.values()) == 1
    assert BiEncoder.load(tmp_path / "bi").pooling == mode


def test_a_cross_encoder_is_a_transformers_folder_with_one_label(cross):
    assert not (cross / "modules.json").exists()
    config = read(cross, "config.json")
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert (config["id2label"], config["label2id"]) == ({"0": "LABEL_0"}, {"LABEL_0": 0})
    assert read(cross, "tokenizer_config.json")["model_max_length"] == 40


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokenizer_names_a_class_that_every_version_of_transformers_knows(tiny_model, family, tmp_path):
    encoder = BiEncoder.load(tiny_model(family))
    encoder.save(tmp_path / "bi")
    config = read(tmp_path / "bi", "tokenizer_config.json")
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["model_input_names"] == list(encoder.model.tokenizer.model_input_names)
    assert not {"backend", "is_local", "local_files_only"} & config.keys()
    text = "The OLD farmer, in the market!"
    assert AutoTokenizer.from_pretrained(tmp_path / "bi")(text) == encoder.model.tokenizer(text)


def test_the_merges_of_a_tokenizer_are_written_as_tokenizers_before_020_read_them(roberta, tmp_path):
    BiEncoder.load(roberta).save(tmp_path / "bi")
    merges = read(tmp_path / "bi", "tokenizer.json")["model"]["merges"]
    assert merges
    assert all(isinstance(merge, str) and merge.count(" ") == 1 for merge in merges)
    assert read(tmp_path / "bi", "tokenizer_config.json")["add_prefix_space"] is True


def test_outputs_are_the_same_in_this_version_of_sentence_transformers(bert, dev, tmp_path):
    body = Transformer(str(bert))
    plain = SentenceTransformer(modules=[body, Pooling(32, ("cls", "mean")), Dense(64, 16), Normalize()])
    left, right = dev.sentence1.to_pylist(), dev.sentence2.to_pylist()
    expected = plain.encode(left)
    BiEncoder(plain, name="bi").save(tmp_path / "bi")
    assert "module_input_name" not in read(tmp_path / "bi", "2_Dense/config.json")
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path / "bi"), device="cpu").encode(left), expected)
    cross = sentence_transformers.CrossEncoder(str(bert), num_labels=1, device="cpu")
    pairs = list(zip(left, right, strict=True))
    expected = cross.predict(pairs)
    CrossEncoder(cross, name="cross").save(tmp_path / "cross")
    again = sentence_transformers.CrossEncoder(str(tmp_path / "cross"), device="cpu")
    np.testing.assert_array_equal(again.predict(pairs), expected)


def test_poolings_that_the_old_keys_cannot_order_keep_the_new_ones(bert, dev, tmp_path):
    plain = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, ("mean", "cls"))])
    left = dev.sentence1.to_pylist()
    expected = plain.encode(left)
    BiEncoder(plain, name="bi").save(tmp_path / "bi")
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path / "bi"), device="cpu").encode(left), expected)
