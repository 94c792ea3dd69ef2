"""Whole runs of tiny models: the folder, the method, the choice, the result."""

import json
import re
import shutil

import numpy as np
import pytest
import sentence_transformers
import torch
from safetensors.torch import load_file

from conftest import TINY_RUN, contents
from trans_encoder.config import PRESETS, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.cards import escaped
from trans_encoder.distill.cycle import stage_seed
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.run import Result
from trans_encoder.distill.selection import Candidate, choose
from trans_encoder.distill.team import assemble
from trans_encoder.distill.work import Student
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.pipelines.distil import distil
from trans_encoder.runs import identity

MODEL = {
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
}
FILES = {"bi": MODEL | {"1_Pooling/config.json"}, "cross": MODEL - {"modules.json", "sentence_bert_config.json"}}
ONE_CYCLE = {**TINY_RUN, "cycles": 1}


def model_files(folder, kind, *extra):
    return {f"{folder}/{file}" for file in FILES[kind] | set(extra)}


def lines(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_the_run_folder_is_exactly_as_documented(mutual):
    expected = {"config.json", "environment.json", "pairs.arrow", "start.json", "history.jsonl", "result.json"}
    for cycle in (1, 2):
        expected |= {f"cycle-{cycle}/labels-{kind}.parquet" for kind in ("bi", "cross")}
    for member in ("bert-32", "roberta-48"):
        for kind in ("bi", "cross"):
            expected |= model_files(f"best/{member}/{kind}", kind, "README.md")
            for cycle in (1, 2):
                expected |= model_files(f"cycle-{cycle}/{member}/{kind}", kind, "training.json")
    assert set(contents(mutual)) == expected


def test_a_team_of_one_has_a_flatter_best_folder(bert, pairs, dev, tmp_path):
    result = distil(pairs, str(bert), dev=dev, out=tmp_path, **ONE_CYCLE)
    assert set(contents(tmp_path / "best")) == model_files("bi", "bi", "README.md") | model_files(
        "cross", "cross", "README.md"
    )
    assert result.ensemble == {}
    assert list(result.bis) == list(result.crosses) == ["bert-32"]


def test_the_manifest_lists_each_stage_with_its_files_and_inputs(mutual):
    manifest = json.loads((mutual / "manifest.json").read_text())
    stages = manifest["stages"]
    listed = {file for stage in stages.values() for file in stage["files"]}
    assert listed == set(contents(mutual)) - {"config.json", "environment.json"}
    config = json.loads((mutual / "config.json").read_text())
    run = identity({"config": config, "origin": manifest["origin"]})
    assert {stage["inputs"]["run"] for stage in stages.values()} == {run}
    assert stages["cycle-2/bert-32/cross"]["inputs"].keys() == {"run", "labels", "student"}
    assert manifest["origin"].keys() >= {"pairs", "judge", "models"}
    trainings = [stage for name, stage in stages.items() if name.endswith(("/bi", "/cross")) and "cycle" in name]
    assert len(trainings) == 8
    assert all(stage["seconds"] > 0.01 for stage in trainings)


def test_labels_of_a_team_are_the_mean_of_its_members(mutual):
    pairs = PairSet.open(mutual / "pairs.arrow")
    labels = PseudoLabels.open(mutual / "cycle-2" / "labels-cross.parquet")
    folders = {name: mutual / "cycle-2" / name / "cross" for name in ("bert-32", "roberta-48")}
    scores = {name: CrossEncoder.load(folder).score(pairs) for name, folder in folders.items()}
    for name, each in scores.items():
        np.testing.assert_allclose(labels.by_teacher[name], each, atol=1e-6)
    np.testing.assert_allclose(labels.scores, sum(scores.values()) / 2, atol=1e-6)
    assert labels.provenance["teachers"] == ["bert-32", "roberta-48"]
    assert (labels.provenance["kind"], labels.provenance["cycle"]) == ("cross", 2)


def test_the_best_checkpoint_is_the_next_teacher(mutual, dev):
    """The saved student has the score of its best moment, and the next labels are its scores."""
    pairs = PairSet.open(mutual / "pairs.arrow")
    folder = mutual / "cycle-1" / "bert-32" / "bi"
    training = json.loads((folder / "training.json").read_text())
    encoder = BiEncoder.load(folder)
    assert training["best_score"] == max(moment["score"] for moment in training["history"])
    assert measure(encoder.score(dev), TestSet("dev", dev)) == pytest.approx(training["best_score"])
    labels = PseudoLabels.open(mutual / "cycle-2" / "labels-bi.parquet")
    np.testing.assert_allclose(labels.by_teacher["bert-32"], encoder.score(pairs), atol=1e-6)


def test_best_models_are_chosen_independently_by_dev_score(mutual):
    result, history, compared = Result.open(mutual), lines(mutual), 0
    for name, member in result.members.items():
        for kind in ("bi", "cross"):
            judged = [line for line in history if (line["member"], line["kind"]) == (name, kind)]
            first_best = max(judged, key=lambda line: line["score"])
            chosen = member.chosen(kind)
            assert (chosen.cycle, chosen.step, chosen.score) == tuple(
                first_best[key] for key in ("cycle", "step", "score")
            )
            assert chosen.helped == (chosen.score > member.start_score)
            if chosen.cycle:
                kept = mutual / f"cycle-{chosen.cycle}" / name / kind
                assert same(weights(mutual / chosen.folder), weights(kept))
                compared += 1
    assert compared >= 2  # a cross-encoder is always a trained one


def test_a_tie_keeps_the_first_and_no_score_the_last():
    def candidates(*scores):
        return [Candidate(model=None, cycle=cycle, step=0, score=score) for cycle, score in enumerate(scores)]

    assert choose(candidates(-3.0, 5.0, 5.0)).cycle == 1
    assert choose(candidates(5.0, 5.0)).cycle == 0
    assert choose(candidates(-5.0, -7.0)).cycle == 0
    assert choose(candidates(None, None, None)).cycle == 2


def test_history_is_in_the_order_of_the_run(mutual):
    history = lines(mutual)
    assert [tuple(line.values())[:3] for line in history[:2]] == [(0, "bert-32", "bi"), (0, "roberta-48", "bi")]
    assert all(line["loss"] is None for line in history[:2])
    stages = list(dict.fromkeys((line["cycle"], line["kind"], line["member"]) for line in history[2:]))
    members, kinds = ("bert-32", "roberta-48"), ("cross", "bi")
    assert stages == [(cycle, kind, member) for cycle in (1, 2) for kind in kinds for member in members]
    bi = [line["step"] for line in history if (line["cycle"], line["kind"], line["member"]) == (1, "bi", "bert-32")]
    assert bi == [4, 6, 8, 12]  # every 4 steps and at the ends of the 6-step epochs
    cross = [
        line["step"] for line in history if (line["cycle"], line["kind"], line["member"]) == (2, "cross", "bert-32")
    ]
    assert cross == [5, 10, 12]  # 96 pairs in both orders, 16 in a batch


def test_the_result_tells_scores_and_ensembles(mutual, dev):
    result, test = Result.open(mutual), TestSet("dev", dev)
    assert result.metric == "spearman"
    for name in result.members:
        assert measure(result.bis[name].score(dev), test) == pytest.approx(result.members[name].bi.score)
        assert measure(result.crosses[name].score(dev), test) == pytest.approx(result.members[name].cross.score)
    for kind, encoders in (("bi", result.bis), ("cross", result.crosses)):
        mean = np.mean([encoder.score(dev) for encoder in encoders.values()], axis=0)
        assert measure(mean, test) == pytest.approx(result.ensemble[kind], abs=0.1)
    best = max(result.members, key=lambda name: result.members[name].bi.score)
    assert result.bi is result.bis[best]
    assert "start" in result.ensemble
    assert "on dev" in result.summary


def test_one_chosen_model_is_loaded_as_the_run_was_told_and_no_other(mutual, tmp_path):
    run = shutil.copytree(mutual, tmp_path / "run")
    result = Result.open(run)
    best, other = sorted(result.members, key=lambda name: -result.members[name].bi.score)
    shutil.rmtree(run / "best" / other / "bi")
    assert result.bi is result.bi
    assert result.bi.name.endswith(f"{best}/bi")
    assert result.bi.device.type == "cpu"
    model = run / "best" / best / "bi" / "config.json"
    model.write_text(json.dumps({**json.loads(model.read_text()), "auto_map": {}}))
    with pytest.raises(ConfigurationError, match="asks to run its own code"):
        Result.open(run).bi  # noqa: B018
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "trust_remote_code": True}))
    assert Result.open(run).bi.name.endswith(f"{best}/bi")


def test_chosen_models_are_ordinary_sentence_transformers_folders(mutual, dev):
    first, second = dev.sentence1.to_pylist(), dev.sentence2.to_pylist()
    result = Result.open(mutual)
    for name in result.members:
        bi = sentence_transformers.SentenceTransformer(str(mutual / "best" / name / "bi"), device="cpu")
        cosines = bi.similarity_pairwise(bi.encode(first), bi.encode(second)).numpy()
        np.testing.assert_allclose(cosines, result.bis[name].score(dev), atol=1e-5)
        cross = sentence_transformers.CrossEncoder(str(mutual / "best" / name / "cross"), device="cpu")
        np.testing.assert_allclose(
            cross.predict(list(zip(first, second, strict=True))), result.crosses[name].score(dev), atol=1e-5
        )
        kept_start = result.members[name].bi.cycle == 0
        assert bi.max_seq_length == (BiEncoder.load(result.members[name].source).max_tokens if kept_start else 32)
        assert cross.max_seq_length == 48


def test_cards_say_how_a_model_was_made(mutual, pairs):
    result = Result.open(mutual)
    card = (mutual / "best" / "roberta-48" / "cross" / "README.md").read_text()
    cross = result.members["roberta-48"].cross
    for part in ("a team of 2", pairs.hash, "Preset small", "96", f"in cycle {cross.cycle}", f"{cross.score:.2f}"):
        assert part in card
    assert f"{result.members['roberta-48'].start_score:.2f}" in card
    assert "Licence" in card
    assert "from sentence_transformers import CrossEncoder" in card
    assert str(mutual.parent) not in card


def test_cards_show_markup_as_text(bert, pairs, tmp_path):
    folder = tmp_path / "<script>alert(1)<b>|`x`"
    shutil.copytree(bert, folder)
    distil(pairs, str(folder), out=tmp_path / "run", **{**ONE_CYCLE, "formulation": "bi"})
    card = (tmp_path / "run" / "best" / "bi" / "README.md").read_text()
    assert "<script>" not in card
    assert escaped("<script>alert(1)<b>|`x`") in card
    assert escaped("a\n# b") == r"a \# b"


def test_a_team_of_one_is_self_distillation(bert, roberta, pairs, dev, tmp_path):
    """The paper's section 2.2 and 2.3 written out for one model gives the same weights, bit for bit."""
    config = make_config([f"{bert}={roberta}"], overrides=ONE_CYCLE)
    distil(pairs, f"{bert}={roberta}", dev=dev, out=tmp_path / "run", **ONE_CYCLE)

    def taught(student, labels, kind):
        options = TrainingOptions(
            folder=tmp_path / kind,
            seed=stage_seed(config.seed, cycle=1, index=0, kind=kind),
            judge=lambda encoder: measure(encoder.score(dev), TestSet("dev", dev)),
        )
        plan = getattr(config, kind)
        return train(
            student, pairs.with_scores(labels), plan=plan, options=options, both_orders=kind == "cross"
        ).encoder

    start = BiEncoder.load(bert, max_tokens=config.bi.max_tokens, device="cpu")
    seed = stage_seed(config.seed, cycle=1, index=0, kind="cross")
    plm = CrossEncoder.load(roberta, max_tokens=config.cross.max_tokens, device="cpu", seed=seed)
    cross = taught(plm, start.score(pairs), "cross")
    bi = taught(BiEncoder.load(bert, max_tokens=config.bi.max_tokens, device="cpu"), cross.score(pairs), "bi")
    for kind, encoder in (("cross", cross), ("bi", bi)):
        encoder.save(tmp_path / f"by-hand-{kind}")
        assert same(weights(tmp_path / f"by-hand-{kind}"), weights(tmp_path / "run" / "cycle-1" / "bert-32" / kind))


@pytest.fixture
def taught(mutual):
    """The BERT member after the first cycle of the mutual run."""
    config = make_config(json.loads((mutual / "config.json").read_text())["members"])
    member = assemble(config)[0]
    folder = mutual / "cycle-1" / member.name
    return member.with_student("bi", folder / "bi").with_student("cross", folder / "cross")


def body(encoder):
    """Return an encoder's weights without its head, named as in the bare model."""
    found = {
        re.search(r"((embeddings|encoder|pooler)\..*)|$", name)[0]: weight
        for name, weight in encoder.model.state_dict().items()
    }
    return {name: weight for name, weight in found.items() if name}


def config(**overrides):
    return make_config(["any"], overrides=overrides)


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_refreshed_students_start_from_the_original_weights(taught, kind):
    student = Student(taught, kind, config(strategy="refresh"), seed=1).load()
    assert student.kind == kind
    assert same(body(student), body(taught.plm.load() if kind == "cross" else taught.start.load()))


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_sequential_students_start_from_their_teacher(taught, kind):
    student = Student(taught, kind, config(strategy="sequential"), seed=1).load()
    teacher, original = (taught.bi, taught.plm) if kind == "cross" else (taught.cross, taught.start)
    assert student.kind == kind
    assert same(body(student), body(teacher.load()))
    assert not same(body(student), body(original.load()))


def test_new_heads_come_from_the_seed(taught):
    def head(seed):
        student = Student(taught, "cross", config(strategy="refresh"), seed=seed).load()
        return [weight for name, weight in student.model.state_dict().items() if "classifier.weight" in name]

    assert torch.equal(head(1)[0], head(1)[0])
    assert not torch.equal(head(1)[0], head(2)[0])


def test_a_run_of_bi_encoders_alone_does_not_look_at_the_plm(bert, pairs, dev, tmp_path):
    unreachable = f"{bert}={tmp_path / 'nothing'}"
    result = distil(dev, unreachable, out=tmp_path / "run", formulation="bi", **ONE_CYCLE)
    assert not any("PLM" in note for note in result.notes)


def test_standard_self_distillation_has_no_cross_encoder(bert, pairs, dev, tmp_path):
    result = distil(pairs, str(bert), dev=dev, out=tmp_path, formulation="bi", strategy="sequential", **TINY_RUN)
    made = set(contents(tmp_path))
    assert {file for file in made if "cross" in file} == set()
    assert {f"cycle-{cycle}/labels-bi.parquet" for cycle in (1, 2)} <= made
    teacher = BiEncoder.load(tmp_path / "cycle-1" / "bert-32" / "bi")
    labels = PseudoLabels.open(tmp_path / "cycle-2" / "labels-bi.parquet")
    np.testing.assert_allclose(labels.scores, teacher.score(pairs), atol=1e-6)
    with pytest.raises(RunError, match="trained no cross-encoder"):
        _ = result.cross


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs(bert, pairs, dev, tmp_path, preset):
    small = {"cycles": 1, "device": "cpu", "cross.epochs": 1, "bi.epochs": 1}
    result = distil(pairs.take(range(24)), str(bert), preset=preset, dev=dev, out=tmp_path, **small)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["cross"]["learning_rate"] == PRESETS[preset]["cross"]["learning_rate"]
    assert {line["cycle"] for line in lines(result.folder)} == {0, 1}


def test_without_a_judge_the_last_is_kept(bert, pairs, tmp_path):
    result = distil(pairs, str(bert), out=tmp_path, selection="last", **TINY_RUN)
    for kind in ("bi", "cross"):
        assert result.members["bert-32"].chosen(kind).cycle == 2
        assert same(weights(tmp_path / "best" / kind), weights(tmp_path / "cycle-2" / "bert-32" / kind))
    assert result.helped == {"bi": None, "cross": None}
    assert "it is not known whether it is better" in result.summary
    assert "whether it is better is not known" in (tmp_path / "best" / "bi" / "README.md").read_text()
    assert all(line["score"] is None for line in lines(tmp_path))


def test_a_start_that_was_better_is_kept_and_the_result_says_so(bert, pairs, dev, tmp_path):
    harmful = {**ONE_CYCLE, "bi": {**ONE_CYCLE["bi"], "learning_rate": 0.3, "epochs": 1}}
    result = distil(pairs, str(bert), dev=dev, out=tmp_path, **harmful)
    member = result.members["bert-32"]
    assert (member.bi.cycle, member.bi.score, member.bi.helped) == (0, member.start_score, False)
    assert result.helped["bi"] is False
    assert result.summary.startswith("It did not help the bi-encoder: the start")
    np.testing.assert_allclose(result.bi.score(dev), BiEncoder.load(bert).score(dev), atol=1e-6)
    assert result.bi.max_tokens == BiEncoder.load(bert).max_tokens > TINY_RUN["bi"]["max_tokens"]
    assert "unchanged" in (tmp_path / "best" / "bi" / "README.md").read_text()


def test_later_labels_are_anchored_to_the_start(bert, pairs, tmp_path):
    distil(pairs, str(bert), out=tmp_path, anchor=0.25, **ONE_CYCLE)
    start = PseudoLabels.open(tmp_path / "cycle-1" / "labels-bi.parquet")
    later = PseudoLabels.open(tmp_path / "cycle-1" / "labels-cross.parquet")
    np.testing.assert_array_equal(start.scores, start.by_teacher["bert-32"])
    np.testing.assert_allclose(later.scores, 0.75 * later.by_teacher["bert-32"] + 0.25 * start.scores, atol=1e-6)
    assert "anchor 0.25" in (tmp_path / "best" / "bi" / "README.md").read_text()


def test_pairs_where_the_order_matters_are_seen_in_one(bert, pairs, tmp_path):
    distil(pairs, str(bert), out=tmp_path, both_orders=False, selection="last", **ONE_CYCLE)
    assert [line["step"] for line in lines(tmp_path) if line["kind"] == "cross"] == [5, 6]


def test_a_loss_that_is_no_number_names_cycle_and_member(bert, pairs, tmp_path):
    wild = {**ONE_CYCLE, "cross": {**ONE_CYCLE["cross"], "learning_rate": 1e30}}
    with pytest.raises(RunError, match="cycle 1, cross-encoder of bert-32"):
        distil(pairs, str(bert), out=tmp_path, **wild)


def test_gold_of_the_training_pairs_is_never_kept(bert, dev, tmp_path):
    distil(dev, str(bert), out=tmp_path, formulation="bi", **ONE_CYCLE)
    assert PairSet.open(tmp_path / "pairs.arrow").scores is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"models": "/no/such/model"}, ConfigurationError, "/no/such/model does not exist"),
        ({"models": []}, ConfigurationError, "members: given"),
        ({"precision": "fp16", "device": "cpu"}, ConfigurationError, "precision is fp16, but the run is on a CPU"),
        ({"cycles": 0}, ConfigurationError, "cycles: given 0, must be greater than 0"),
        ({"source": PairSet.from_lists(["a"], ["b"])}, DataError, "a run needs at least 2"),
        ({"dev": PairSet.from_lists(["a", "b"], ["b", "c"])}, DataError, "no gold scores"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(bert, pairs, tmp_path, change, error, message):
    given = {"source": pairs, "models": str(bert), "dev": None, "out": tmp_path / "run", **change}
    with pytest.raises(error, match=message):
        distil(**given)
    assert not (tmp_path / "run").exists()
