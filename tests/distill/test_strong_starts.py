"""Starts that may have been trained on labels: anchored, and without labels kept."""

import json
import logging
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from conftest import TINY_RUN
from trans_encoder.config import MemberConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.text import Text
from trans_encoder.distill import run as run_module
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.distill.judges import LabelFreeJudge, hold_out
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.selection import LEARNT
from trans_encoder.distill.team import ANCHOR, IN_BATCH, MERGE, SMALL_STEPS, TEAM_STEPS, merge_of, resolve_members
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.planning import plan_run
from trans_encoder.report import write_report
from trans_encoder.teachers import may_know_labels

SHORT = {**TINY_RUN, "cycles": 1}
KEPT = "harm to such a start cannot be seen without labels: its bi-encoder is kept in best/"
MIXED_IN = "may have been trained on labels: 0.7 of the first labels is mixed into every later label"


@pytest.fixture(scope="module")
def run(tmp_path_factory, start, pairs):
    """A finished run of it without a dev set. Do not change it."""
    return distil(pairs, str(start), out=tmp_path_factory.mktemp("strong") / "run", **SHORT)


def told(result, what):
    return any(what in note for note in result.notes)


def test_without_labels_the_start_is_anchored_and_kept(run, start, pairs):
    assert told(run, KEPT)
    assert told(run, f"start {MIXED_IN}")
    member = run.members["start"]
    assert (member.bi.cycle, member.cross.cycle) == (0, 1)
    assert member.cross.agreement < LEARNT
    assert run.helped == {"bi": None, "cross": False}  # what has not learnt is not better
    assert "Kept the original bi-encoder of start: without labels it is not known" in run.summary
    np.testing.assert_allclose(run.bi.score(pairs), BiEncoder.load(start).score(pairs), atol=1e-6)
    assert PseudoLabels.open(run.folder / "cycle-1" / "labels-cross.parquet").provenance["anchor"] == ANCHOR
    assert told(run, f"such bi-encoders learn at a rate of {SMALL_STEPS:g}")
    assert "Kept the original bi-encoder of start" in write_report([run.folder]).read_text()


def test_a_student_of_anchored_labels_is_asked_for_what_it_was_taught(run, start, pairs):
    held_out = hold_out(pairs, seed=42).held_out
    judge, cycle = LabelFreeJudge.of(held_out, seed=42), run.folder / "cycle-1" / "start"
    student, teacher, first = BiEncoder.load(cycle / "bi"), CrossEncoder.load(cycle / "cross"), BiEncoder.load(start)
    agreement = json.loads((cycle / "bi" / "training.json").read_text())["agreement"]
    assert agreement == pytest.approx(judge.agreement(student, [teacher], starts=[first], anchor=ANCHOR), abs=1e-3)
    assert agreement != pytest.approx(judge.agreement(student, [teacher]), abs=1e-3)


def test_the_plan_says_so_before(start, pairs, dev):
    config = make_config([str(start)], overrides=SHORT)
    plan = plan_run(config, pairs)
    assert any(KEPT in note for note in plan.notes)
    assert plan.config.anchor == ANCHOR
    assert not any(KEPT in note for note in plan_run(config, pairs, dev=TestSet("dev", dev)).notes)


def test_the_run_warns(start, pairs, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        distil(pairs, str(start), out=tmp_path, formulation="bi", **SHORT)
    assert KEPT in caplog.text
    assert MIXED_IN in caplog.text


def test_who_says_that_there_were_no_labels_is_believed(start, pairs, tmp_path):
    result = distil(pairs, str(start), out=tmp_path, supervised=False, formulation="bi", **SHORT)
    assert result.helped["bi"] is not None
    assert not told(result, KEPT)
    assert not told(result, MIXED_IN)


def test_a_dev_set_decides(start, pairs, dev, tmp_path):
    result = distil(pairs, str(start), dev=dev, out=tmp_path, formulation="bi", **SHORT)
    assert result.helped["bi"] is not None
    assert not told(result, KEPT)
    assert told(result, MIXED_IN)


def test_who_wants_the_last_gets_the_last(start, pairs, tmp_path):
    result = distil(pairs, str(start), out=tmp_path, selection="last", formulation="bi", **SHORT)
    assert (result.members["start"].bi.cycle, result.helped) == (1, {"bi": None})


def test_a_weak_member_of_a_strong_team_may_learn(start, bert, pairs, tmp_path):
    result = distil(pairs, [str(start), str(bert)], out=tmp_path, formulation="bi", **SHORT)
    strong, weak = result.members["start"].bi, result.members["bert-32"].bi
    assert (strong.cycle, strong.helped) == (0, None)
    assert weak.helped is not None
    assert result.helped == {"bi": None}
    assert sum(KEPT in note for note in result.notes) == 1


def test_a_run_that_cannot_be_compared_is_not_stopped_early(start, pairs, tmp_path):
    idle = {**TINY_RUN, "bi": {**TINY_RUN["bi"], "learning_rate": 1e-9, "epochs": 1}, "patience": 1}
    for supervised, cycles in ((False, 1), (True, 2)):
        out = tmp_path / str(supervised)
        result = distil(pairs, str(start), out=out, formulation="bi", supervised=supervised, **idle)
        assert result.cycles == cycles


def test_the_anchor_follows_from_the_start_unless_it_is_given(bert, start):
    def anchor(*models, **settings):
        return resolve_members(make_config(list(models), **settings))[0].anchor

    weak, strong = str(bert), str(start)
    assert (anchor(weak), anchor(strong), anchor(weak, strong)) == (0, ANCHOR, ANCHOR)
    assert anchor("sentence-transformers/all-MiniLM-L6-v2") == ANCHOR
    assert anchor("princeton-nlp/unsup-simcse-bert-base-uncased") == 0
    assert anchor(strong, overrides={"anchor": 0.3}) == 0.3
    assert anchor(strong, overrides={"supervised": False}) == 0
    assert anchor(weak, overrides={"supervised": True}) == ANCHOR
    assert anchor(MemberConfig(bi=strong, supervised=False), overrides={"supervised": True}) == 0
    assert anchor(strong, preset="paper-sts") == 0


def test_strong_members_learn_in_small_steps_unless_told_otherwise(bert, start):
    def rates(*models, **settings):
        config = resolve_members(make_config(list(models), **settings))[0]
        return [config.plan("bi", member.name).learning_rate for member in config.members]

    weak, strong = str(bert), str(start)
    assert rates(strong) == [SMALL_STEPS]
    assert rates(weak, strong) == [1e-4, TEAM_STEPS]
    assert rates(strong, overrides={"teachers": [weak]}) == [TEAM_STEPS]
    assert rates(strong, overrides={"bi": {"learning_rate": 1e-6}}) == [1e-6]
    assert rates(MemberConfig(bi=strong, learning_rate=3e-5)) == [3e-5]
    assert rates(strong, overrides={"anchor": 0.7}) == rates(strong, overrides={"supervised": False}) == [1e-4]
    assert rates(strong, preset="paper-sts") == [5e-5]


def test_a_member_is_trained_at_its_own_rate_and_its_card_says_so(start, pairs, tmp_path):
    rates = {"still": 1e-12, "moved": 1e-3}
    members = [MemberConfig(bi=str(start), name=name, learning_rate=rate) for name, rate in rates.items()]
    distil(pairs, members, out=tmp_path, selection="last", formulation="bi", **SHORT)
    first = BiEncoder.load(start).score(pairs)
    still, moved = (BiEncoder.load(tmp_path / "best" / name / "bi").score(pairs) for name in rates)
    np.testing.assert_allclose(still, first, atol=1e-5)
    assert np.abs(moved - first).max() > 1e-3
    assert r"learning\_rate 1e-12" in (tmp_path / "best" / "still" / "bi" / "README.md").read_text()


def test_what_was_made_without_labels_says_so(run, mutual, bert, start, tmp_path):
    assert not may_know_labels(str(bert))
    for name, model in (("weak", bert), ("strong", start)):
        text = Text.from_sentences([f"sentence number {number} of a text" for number in range(40)])
        bootstrap(text, model, out=tmp_path / name, batch_size=16, epochs=1)
    assert not may_know_labels(str(tmp_path / "weak" / "bi"))
    assert may_know_labels(str(tmp_path / "strong" / "bi"))
    assert not may_know_labels(str(mutual / "best" / "bert-32" / "bi"))
    assert may_know_labels(str(run.folder / "best" / "bi"))
    shutil.copytree(start, tmp_path / "tagged")
    (tmp_path / "tagged" / "README.md").write_text("---\ntags: [unsupervised]\n---\n", encoding="utf-8")
    assert not may_know_labels(str(tmp_path / "tagged"))


def test_strong_starts_learn_every_cosine_of_a_batch_from_other_bi_encoders(start, roberta, pairs, tmp_path):
    settings = {**SHORT, "formulation": "bi", "selection": "last", "supervised": True, "scale": "rank"}
    taught = distil(pairs, str(start), teachers=[str(start), str(roberta)], out=tmp_path / "taught", **settings)
    assert json.loads((taught.folder / "config.json").read_text())["in_batch"] == IN_BATCH
    made = {path.name: np.load(path) for path in (taught.folder / "embeddings").iterdir()}
    assert set(made) == {"start.npy", "start-2.npy"}, "a weak teacher has nothing to say of a strong start's batches"
    np.testing.assert_array_equal(made["start.npy"], made["start-2.npy"])
    np.testing.assert_allclose(np.linalg.norm(made["start.npy"].astype(np.float32), axis=1), 1.0, atol=2e-3)
    plain = distil(
        pairs,
        str(start),
        teachers=[str(start), str(roberta)],
        out=tmp_path / "plain",
        in_batch=0,
        merge=1.0,
        **settings,
    )
    assert not (plain.folder / "embeddings").exists()
    assert not np.allclose(plain.bi.score(pairs), taught.bi.score(pairs), atol=1e-4)


@pytest.mark.parametrize(
    ("overrides", "in_batch", "merge"),
    [
        ({"teachers": ["STRONG"]}, IN_BATCH, {"bi": 1.0, "cross": MERGE}),
        ({"teachers": ["STRONG"], "in_batch": 0}, 0, {"bi": MERGE, "cross": MERGE}),
        ({"teachers": ["STRONG"], "merge": 0.5}, IN_BATCH, {"bi": 0.5, "cross": 0.5}),
        ({"teachers": ["lexical"]}, 0, {"bi": MERGE, "cross": MERGE}),
        ({"teachers": ["STRONG"], "supervised": False}, 0, {"bi": 1.0, "cross": 1.0}),
        ({"teachers": [{"spec": "STRONG", "prompt1": "query: "}]}, 0, {"bi": MERGE, "cross": MERGE}),
        ({"teachers": ["STRONG"], "preset": "paper-sts"}, 0, {"bi": 1.0, "cross": 1.0}),
    ],
)
def test_in_batch_distillation_or_merging_holds_a_strong_start(start, overrides, in_batch, merge):
    overrides = json.loads(json.dumps(overrides).replace("STRONG", str(start)))
    config, _ = resolve_members(make_config([str(start)], preset=overrides.pop("preset", "small"), overrides=overrides))
    assert config.in_batch == in_batch
    assert {kind: merge_of(config, kind) for kind in ("bi", "cross")} == merge


def test_new_pairs_of_a_later_cycle_are_embedded_too(start, pairs, tmp_path):
    settings = {**SHORT, "formulation": "bi", "cycles": 3, "first_share": 0.25, "scale": "rank", "patience": 0}
    done: list[int] = []

    @contextmanager
    def counted(name, *, total):
        del name
        yield done.append
        assert sum(done) == total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "progress", counted)
        result = distil(pairs, str(start), teachers=[str(start)], out=tmp_path, **settings)
    for place, of in (("embeddings", "pairs.arrow"), ("cycle-2/embeddings", "cycle-2/pairs.arrow")):
        sentences = PairSet.open(tmp_path / of).distinct().sentences
        assert {len(np.load(path)) for path in (tmp_path / place).iterdir()} == {len(sentences)}
    assert not (tmp_path / "cycle-3" / "embeddings").exists(), "those of the second cycle serve"
    assert result.cycles == 3


def test_embeddings_that_students_learn_from_label_the_pairs_as_the_models_would(start, roberta, pairs, tmp_path):
    settings = {**SHORT, "formulation": "bi", "in_batch": 1.0, "scale": "rank"}
    distil(pairs, str(start), teachers=[str(start), str(roberta)], out=tmp_path, **settings)
    labels = PseudoLabels.open(tmp_path / "cycle-1" / "labels-bi.parquet")
    for model, scores in zip((start, start, roberta), labels.by_teacher.values(), strict=True):
        own = BiEncoder.load(model).score(labels.pairs)
        assert np.abs(scores - own).max() < 1e-3  # 16-bit unit vectors
        assert np.corrcoef(scores, own)[0, 1] > 0.9999
