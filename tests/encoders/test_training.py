"""Training: shortcuts give what the plain way gives, the best is kept, a killed training continues exactly."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
import torch

from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.losses import LOSSES, logit_gradients
from trans_encoder.encoders.trainer import _arguments
from trans_encoder.encoders.training import Distillation, TrainingOptions, train
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.metrics import spearman

pytestmark = pytest.mark.usefixtures("either_runner")
ENCODERS = {"bi": BiEncoder, "cross": CrossEncoder}
PLAN = TrainingPlan(
    loss="mse", batch_size=16, epochs=2, learning_rate=1e-3, max_tokens=32, dev_steps=4, checkpoint_steps=3
)


def labelled(pairs, seed=0):
    return pairs.with_scores(np.random.default_rng(seed).random(len(pairs)))


def weights(encoder) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in encoder.model.state_dict().items()}


def same(left, right) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_batch_gives_the_loss_of_the_plain_way(request, pairs, kind, family):
    student = ENCODERS[kind].load(request.getfixturevalue(family))
    student.model.eval()
    data = labelled(pairs)
    objective = Distillation(student, data, plan=PLAN, both_orders=False)
    rows = np.arange(0, len(pairs), 3)
    with torch.no_grad():
        ours = objective.module(**objective.collate(rows)).mean()
    first, second = ([texts[i] for i in rows] for texts in (pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()))
    if kind == "bi":
        left, right = (student.model.encode(texts, convert_to_tensor=True) for texts in (first, second))
        outputs = torch.cosine_similarity(left, right)
    else:
        outputs = student.model.predict(list(zip(first, second, strict=True)), convert_to_tensor=True)
    plain = LOSSES["mse"](outputs, torch.tensor(np.asarray(data.scores)[rows], dtype=torch.float32)).mean()
    assert ours.item() == pytest.approx(plain.item(), abs=1e-6)


def test_a_cross_encoder_labels_on_the_scale_it_was_taught_whatever_the_loss(bert, pairs, tmp_path):
    taught, spans = pairs.take(range(8)).with_scores([0.1, 0.9] * 4), {}
    settings = {"epochs": 60, "learning_rate": 3e-3, "max_tokens": 48, "dropout": 0.0}
    for loss in ("bce", "mse", "log-cosh"):
        plan = PLAN.model_copy(update={**settings, "loss": loss})
        options = TrainingOptions(folder=tmp_path / loss)
        scores = train(CrossEncoder.load(bert, seed=1), taught, plan=plan, options=options).encoder.score(taught)
        spans[loss] = (scores[0::2].mean(), scores[1::2].mean())
    assert spans == {loss: pytest.approx((0.1, 0.9), abs=0.1) for loss in spans}


def test_a_re_ranker_of_logits_gives_probabilities_elsewhere_once_it_is_trained(bert, pairs, tmp_path):
    reranker = CrossEncoder.load(bert, seed=1)
    reranker.model.activation_fn = torch.nn.Identity()
    reranker.save(tmp_path / "reranker")
    reranker = CrossEncoder.load(tmp_path / "reranker")  # its configuration names the activation, too
    options = TrainingOptions(folder=tmp_path / "training")
    trained = train(reranker, labelled(pairs), plan=PLAN, options=options).encoder
    trained.save(tmp_path / "saved")
    given = [(first, second) for first, second, _ in pairs.rows()]
    elsewhere = sentence_transformers.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(given)
    np.testing.assert_allclose(elsewhere, trained.score(pairs), atol=1e-5)
    config = json.loads((tmp_path / "saved" / "config.json").read_text(encoding="utf-8"))  # what versions 4 and 5 read
    assert config["sentence_transformers"]["activation_fn"] == "torch.nn.modules.activation.Sigmoid"


@pytest.mark.parametrize("kind", ENCODERS)
def test_both_orders_are_seen_with_one_label(bert, pairs, kind):
    student = ENCODERS[kind].load(bert)
    objective = Distillation(student, labelled(pairs), plan=PLAN, both_orders=True)
    assert len(objective.lengths) == 2 * len(pairs)
    batch = objective.collate(np.array([5, 5 + len(pairs)]))
    assert batch["labels"][0] == batch["labels"][1]


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_killed_training_continues_to_the_same_weights(bert, pairs, dev, tmp_path, kind):
    def judge(encoder) -> float:
        return spearman(encoder.score(dev), dev.scores)

    whole = train(
        ENCODERS[kind].load(bert),
        labelled(pairs),
        plan=PLAN,
        options=TrainingOptions(folder=tmp_path / "whole", judge=judge, seed=5),
    )
    for kill_at in (1, 2, 3, 4):
        calls = []

        def killing(encoder, kill_at=kill_at, calls=calls) -> float:
            calls.append(1)
            if len(calls) == kill_at:
                raise KeyboardInterrupt
            return judge(encoder)

        options = TrainingOptions(folder=tmp_path / f"killed-{kill_at}", judge=killing, seed=5)
        with pytest.raises(KeyboardInterrupt):
            train(ENCODERS[kind].load(bert), labelled(pairs), plan=PLAN, options=options)
        resumed = train(ENCODERS[kind].load(bert), labelled(pairs), plan=PLAN, options=replace(options, judge=judge))
        assert resumed.history == whole.history
        assert (resumed.best_step, resumed.best_score) == (whole.best_step, whole.best_score)
        assert same(weights(resumed.encoder), weights(whole.encoder))


def test_a_cut_off_checkpoint_is_passed_over(bert, pairs, tmp_path):
    def interrupt(_) -> float:
        raise KeyboardInterrupt

    options = TrainingOptions(folder=tmp_path / "run", judge=interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(BiEncoder.load(bert), labelled(pairs), plan=PLAN, options=options)
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*")
    (checkpoint / "kept.json").unlink()
    (checkpoint / "model.safetensors").write_bytes(b"half")
    train(BiEncoder.load(bert), labelled(pairs), plan=PLAN, options=replace(options, judge=None))


def test_a_checkpoint_of_other_labels_is_not_continued(bert, pairs, tmp_path):
    def interrupt(_) -> float:
        raise KeyboardInterrupt

    options = TrainingOptions(folder=tmp_path / "run", judge=interrupt, made_from="old labels")
    with pytest.raises(KeyboardInterrupt):
        train(BiEncoder.load(bert), labelled(pairs), plan=PLAN, options=options)
    assert list((tmp_path / "run").glob("checkpoint-*"))
    new = replace(options, judge=None, made_from="new labels")
    trained = train(BiEncoder.load(bert), labelled(pairs, seed=1), plan=PLAN, options=new)
    afresh = replace(new, folder=tmp_path / "afresh")
    whole = train(BiEncoder.load(bert), labelled(pairs, seed=1), plan=PLAN, options=afresh)
    assert trained.history == whole.history
    assert same(weights(trained.encoder), weights(whole.encoder))


def test_the_best_checkpoint_is_kept_and_only_a_strictly_better_one_replaces_it(bert, pairs, tmp_path):
    scores = iter([1.0, 3.0, 3.0, 2.0, 2.5, 0.0])
    seen = []

    def judge(encoder) -> float:
        seen.append(weights(encoder))
        return next(scores)

    result = train(
        BiEncoder.load(bert), labelled(pairs), plan=PLAN, options=TrainingOptions(folder=tmp_path, judge=judge)
    )
    assert [moment.step for moment in result.history] == [4, 6, 8, 12]
    assert (result.best_step, result.best_score) == (6, 3.0)
    assert same(weights(result.encoder), seen[1])


def test_without_a_judge_the_last_weights_are_kept(bert, pairs, tmp_path):
    result = train(BiEncoder.load(bert), labelled(pairs), plan=PLAN, options=TrainingOptions(folder=tmp_path))
    assert result.best_step == 12
    assert result.best_score is None
    assert result.history[-1].loss < result.history[0].loss


def test_a_loss_that_is_not_finite_stops_with_the_remedy(bert, pairs, tmp_path):
    student = BiEncoder.load(bert)
    with torch.no_grad():
        next(student.model.parameters()).fill_(float("nan"))
    options = TrainingOptions(folder=tmp_path, description="cycle 1, tiny, bi")
    with pytest.raises(RunError, match=r"cycle 1, tiny, bi.*step 1.*learning rate"):
        train(student, labelled(pairs), plan=PLAN, options=options)


def test_the_trainer_stays_on_the_students_gpu(monkeypatch, tmp_path):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)  # there may be no GPU here
    options = TrainingOptions(folder=tmp_path, precision="fp32")
    arguments = _arguments(PLAN, options, device=torch.device("cuda:1"))
    assert (arguments.device, chosen[-1]) == (torch.device("cuda:1"), torch.device("cuda:1"))


def test_pairs_without_labels_are_refused(bert, pairs, tmp_path):
    with pytest.raises(DataError, match="label"):
        train(BiEncoder.load(bert), pairs, plan=PLAN, options=TrainingOptions(folder=Path(tmp_path)))


@pytest.mark.parametrize(("negatives", "target"), [("raw", -0.4), ("clamp", 0.0)])
def test_negative_cosines_are_clamped_or_taken_raw_as_the_plan_says(bert, pairs, negatives, target):
    """By hand: BCE of a logit z and a target y is softplus(z) - y z, for any y."""
    student = CrossEncoder.load(bert, seed=1)
    student.model.eval()
    plan = PLAN.model_copy(update={"loss": "bce", "negatives": negatives})
    few = pairs.take([0, 1, 2])
    objective = Distillation(student, few.with_scores([-0.4, -0.4, -0.4]), plan=plan, both_orders=False)
    with torch.no_grad():
        losses = objective.module(**objective.collate(np.arange(3)))
    logits = torch.logit(torch.from_numpy(student.score(few)).double())
    torch.testing.assert_close(
        losses.double(), torch.nn.functional.softplus(logits) - target * logits, atol=1e-5, rtol=1e-4
    )


def test_gradients_of_the_logit_are_those_of_the_papers_appendix():
    probabilities, labels = np.array([0.1, 0.5, 0.9]), np.array([0.3, 0.5, 1.2])
    error = probabilities - labels.clip(0, 1)
    np.testing.assert_allclose(logit_gradients("bce", probabilities, labels), error)
    slope = probabilities * (1 - probabilities)
    np.testing.assert_allclose(logit_gradients("mse", probabilities, labels), 2 * error * slope)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_least_where_the_student_says_the_label(name):
    outputs = torch.linspace(-4, 4, 801)
    label = torch.tensor(0.7)
    target = torch.logit(label) if name == "bce" else label
    assert outputs[LOSSES[name](outputs, label.expand(801)).argmin()] == pytest.approx(target.item(), abs=0.02)


@pytest.mark.parametrize(
    ("patience", "keep_last", "steps"), [(0, False, [4, 6, 8, 12]), (2, False, [4, 6, 8]), (2, True, [4, 6, 8, 12])]
)
def test_a_training_that_gains_nothing_ends_and_keeps_its_best(bert, pairs, tmp_path, patience, keep_last, steps):
    scores, seen = iter([3.0, 3.0, 1.0, 4.0]), []

    def judge(encoder) -> float:
        seen.append(weights(encoder))
        return next(scores)

    plan = PLAN.model_copy(update={"patience": patience})
    options = TrainingOptions(folder=tmp_path, judge=judge, keep_last=keep_last)
    result = train(BiEncoder.load(bert), labelled(pairs), plan=plan, options=options)
    assert [moment.step for moment in result.history] == steps
    assert same(weights(result.encoder), seen[0 if len(steps) == 3 else 3])


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_training_that_ends_early_is_continued_to_the_same_end(bert, pairs, tmp_path, killed_at):
    start = BiEncoder.load(bert).score(pairs)
    plan, calls = PLAN.model_copy(update={"patience": 2, "checkpoint_steps": 2}), []

    def judge(encoder) -> float:
        return -float(np.square(encoder.score(pairs) - start).mean())  # worse with every step

    def killing(encoder) -> float:
        calls.append(1)
        if len(calls) == killed_at:
            raise KeyboardInterrupt
        return judge(encoder)

    options = TrainingOptions(folder=tmp_path / "whole", judge=judge)
    whole = train(BiEncoder.load(bert), labelled(pairs), plan=plan, options=options)
    assert [moment.step for moment in whole.history] == [4, 6, 8]
    options = replace(options, folder=tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        train(BiEncoder.load(bert), labelled(pairs), plan=plan, options=replace(options, judge=killing))
    resumed = train(BiEncoder.load(bert), labelled(pairs), plan=plan, options=options)
    assert resumed.history == whole.history
    assert same(weights(resumed.encoder), weights(whole.encoder))
    again = train(BiEncoder.load(bert), labelled(pairs), plan=plan, options=options)
    assert again.history == whole.history, "the checkpoint before the end is continued to the same end"
