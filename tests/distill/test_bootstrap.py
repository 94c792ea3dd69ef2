"""Stage 0: Eq. 1 and its views, learning, continuation and the folder."""

import json
import logging
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import FAMILIES, sentence, words
from trans_encoder.cli import app
from trans_encoder.data.text import Text
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.bootstrap import bootstrap, make_plan
from trans_encoder.distill.bootstrap.contrast import Contrast, dropped_heads, duplicates, info_nce, mask_span
from trans_encoder.distill.bootstrap.tuning import find_positives, tokenised
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.trainer import StageTrainer
from trans_encoder.errors import ConfigurationError, DataError, RunError

FAST = {"batch_size": 16, "learning_rate": 3e-3, "dev_steps": 5, "checkpoint_steps": 2}


@pytest.fixture(scope="module")
def text() -> Text:
    """Sixty-four sentences in documents of four."""
    random = Random(3)
    sentences = list(dict.fromkeys(sentence(words(random)) for _ in range(80)))[:64]
    return Text.from_sentences(sentences, documents=[number // 4 for number in range(64)])


@pytest.fixture
def encoder(bert) -> BiEncoder:
    return BiEncoder.load(bert, device="cpu")


def plan(objective="simcse", **overrides):
    return make_plan("small", objective=objective, overrides={**FAST, **overrides})


def contrast(encoder, text, *, objective="simcse", seed=0) -> Contrast:
    chosen = plan(objective)
    positives = tokenised(encoder, text, find_positives(text, plan=chosen, seed=seed), plan=chosen)
    return Contrast(encoder, positives, plan=chosen, seed=seed)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def dropout_rates(encoder) -> list[float]:
    return [module.p for module in encoder.model.modules() if isinstance(module, torch.nn.Dropout)]


class TestLoss:
    def test_is_equation_1(self):
        left, right = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
        none = torch.zeros(5, 5, dtype=torch.bool)
        similar = torch.cosine_similarity(left[:, None], right[None], dim=2).div(0.05).exp()
        expected = -(similar.diag() / similar.sum(dim=1)).log()
        torch.testing.assert_close(info_nce(left, right, temperature=0.05, duplicates=none), expected)

    def test_leaves_duplicates_out(self):
        left, right = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
        right[3] = right[0]
        marked = torch.zeros(4, 4, dtype=torch.bool)
        marked[0, 3] = True
        loss = info_nce(left, right, temperature=0.05, duplicates=marked)
        none = torch.zeros(3, 3, dtype=torch.bool)
        assert loss[0] == pytest.approx(float(info_nce(left[:3], right[:3], temperature=0.05, duplicates=none)[0]))

    def test_marks_pairs_with_a_sentence_in_common(self):
        a, b, c, d = (np.array([number], dtype=np.int32) for number in range(4))
        # (a, a) and (a, b) share a; (c, b) shares b with (a, b); (d, d) is alone.
        marked = duplicates([a, a, c, d], [a, b, b, d])
        assert marked.tolist() == [
            [False, True, False, False],
            [True, False, True, False],
            [False, True, False, False],
            [False, False, False, False],
        ]


class TestViews:
    def test_a_batch_holds_both_views_in_one_pass(self, encoder, text):
        batch = contrast(encoder, text).collate(np.arange(8))
        assert sum(len(group["input_ids"]) for group in batch["inputs"]) == 16
        encoder.model.eval()
        embeddings = torch.cat([encoder.model(dict(group))["sentence_embedding"] for group in batch["inputs"]])
        left, right = embeddings[batch["place"]].chunk(2)
        torch.testing.assert_close(left, right)
        expected = torch.from_numpy(encoder.encode(text.sentences.slice(0, 8)))
        torch.testing.assert_close(left.detach(), expected, atol=1e-5, rtol=1e-4)

    def test_dropout_tells_the_views_apart(self, encoder, text):
        objective = contrast(encoder, text)
        batch = objective.collate(np.arange(8))
        torch.manual_seed(0)
        noisy, other = (objective.module.train()(**batch) for _ in range(2))
        clean, same = (objective.module.eval()(**batch) for _ in range(2))
        assert not torch.allclose(noisy, other)
        torch.testing.assert_close(clean, same)

    def test_mirror_masks_one_view_only_and_the_same_way_again(self, encoder, text):
        mask = encoder.model.tokenizer.mask_token_id
        objective = contrast(encoder, text, objective="mirror")
        batch = objective.collate(np.arange(8))
        ids = [row.tolist() for group in batch["inputs"] for row in group["input_ids"]]
        views = [ids[place] for place in batch["place"]]
        assert not any(mask in view for view in views[:8])
        assert all(view.count(mask) == 1 for view in views[8:])
        again = objective.collate(np.arange(8))
        for one, other in zip(batch["inputs"], again["inputs"], strict=True):
            assert torch.equal(one["input_ids"], other["input_ids"])

    def test_a_span_becomes_one_mask(self):
        ids = np.arange(10, 20, dtype=np.int32)
        masked = mask_span(ids, span=3, mask_id=4, rng=np.random.default_rng(0))
        place = masked.tolist().index(4)
        assert masked.tolist() == [*range(10, 10 + place), 4, *range(13 + place, 20)]
        assert len(mask_span(ids, span=3, mask_id=None, rng=np.random.default_rng(0))) == 7

    @pytest.mark.parametrize(("length", "left"), [(0, 0), (1, 1), (2, 2), (4, 3)])
    def test_a_short_sentence_keeps_half(self, length, left):
        ids = np.arange(length, dtype=np.int32)
        assert len(mask_span(ids, span=5, mask_id=99, rng=np.random.default_rng(0))) == left

    @pytest.mark.parametrize("family", FAMILIES)
    def test_heads_are_dropped_in_training_and_only_there(self, family, tiny_model, sentences):
        encoder = BiEncoder.load(tiny_model(family), device="cpu")
        inputs = encoder.model.preprocess(sentences[:4])
        before = dropout_rates(encoder)

        def embeddings():
            return encoder.model(dict(inputs))["sentence_embedding"]

        encoder.model.eval()
        plain = embeddings()
        with dropped_heads(encoder, probability=0.5):
            torch.testing.assert_close(embeddings(), plain)
            encoder.model.train()
            assert not torch.allclose(embeddings(), embeddings())
        with dropped_heads(encoder, probability=0.0):
            torch.testing.assert_close(embeddings(), plain)
        assert dropout_rates(encoder) == before

    def test_one_head_is_always_left(self, encoder, sentences):
        with dropped_heads(encoder, probability=0.999):
            encoder.model.train()
            embeddings = encoder.model(encoder.model.preprocess(sentences[:8]))["sentence_embedding"]
        assert embeddings.isfinite().all()

    def test_simcse_needs_dropout(self, tiny_model, text, tmp_path):
        with pytest.raises(ConfigurationError, match="no dropout"):
            bootstrap(text, tiny_model("modernbert"), out=tmp_path, **FAST)


class TestPositives:
    def test_neighbours_stay_within_a_document(self, text):
        pairs = find_positives(text, plan=plan("neighbours"), seed=0)
        assert len(pairs) == 16 * 3
        assert (pairs[:, 1] - pairs[:, 0] == 1).all()
        assert (text.document[pairs[:, 0]] == text.document[pairs[:, 1]]).all()

    def test_a_long_text_is_sampled(self, text):
        pairs = find_positives(text, plan=plan(max_sentences=10), seed=0)
        assert len(np.unique(pairs)) == 10
        assert not np.array_equal(pairs, find_positives(text, plan=plan(max_sentences=10), seed=1))

    def test_neighbours_need_documents(self, text):
        loose = Text.from_sentences(text.sentences.to_pylist())
        with pytest.raises(DataError, match="whole documents"):
            find_positives(loose, plan=plan("neighbours"), seed=0)


@pytest.mark.parametrize("objective", ["simcse", "mirror", "neighbours"])
def test_learns_and_leaves_a_plain_folder(objective, bert, text, tmp_path):
    before = contrast(BiEncoder.load(bert, device="cpu"), text, objective=objective)
    encoder = bootstrap(text, bert, out=tmp_path / "out", objective=objective, epochs=8, **FAST)
    after = contrast(encoder, text, objective=objective)
    losses = [each.module.eval()(**each.collate(np.arange(24))).mean() for each in (before, after)]
    assert losses[1] < losses[0]
    assert encoder.pooling == "mean"
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name != ".lock") == [
        "bi",
        "config.json",
        "manifest.json",
    ]
    history = json.loads((tmp_path / "out" / "bi" / "training.json").read_text())["history"]
    assert history[-1]["loss"] < history[0]["loss"]


@pytest.mark.parametrize("objective", ["simcse", "mirror"])
def test_what_is_dropped_does_not_depend_on_the_number_of_threads(objective, bert, text, tmp_path, cores):
    made = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        bootstrap(text, bert, out=tmp_path / f"{threads}", objective=objective, epochs=1, **FAST)
        made.append(weights(tmp_path / f"{threads}" / "bi"))
    assert made[0] == made[1]


def test_continues_after_a_kill_to_the_same_weights(bert, text, tmp_path, monkeypatch):
    settings = {"objective": "mirror", "epochs": 2, **FAST}
    bootstrap(text, bert, out=tmp_path / "whole", **settings)

    class Killed(BaseException):
        pass

    steps = 0
    compute_loss = StageTrainer.compute_loss

    def dies(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        if steps == 6:
            raise Killed
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(StageTrainer, "compute_loss", dies)
    with pytest.raises(Killed):
        bootstrap(text, bert, out=tmp_path / "killed", **settings)
    assert not (tmp_path / "killed" / "bi").exists()
    steps = -100
    bootstrap(text, bert, out=tmp_path / "killed", **settings)
    assert steps == -100 + 8 - 4  # eight steps in all, the checkpoint was at the fourth
    assert weights(tmp_path / "killed" / "bi") == weights(tmp_path / "whole" / "bi")
    assert not list((tmp_path / "killed").glob("*.training"))


def test_is_not_done_twice(bert, text, tmp_path, monkeypatch):
    first = bootstrap(text, bert, out=tmp_path, **FAST)
    monkeypatch.setattr(StageTrainer, "run", lambda self: pytest.fail("trained again"))
    again = bootstrap(text, bert, out=tmp_path, **FAST)
    np.testing.assert_array_equal(first.encode(["the old boat"]), again.encode(["the old boat"]))


def test_refuses_a_folder_begun_with_other_settings(bert, text, tmp_path):
    bootstrap(text, bert, out=tmp_path, **FAST)
    with pytest.raises(RunError, match=r"plan\.temperature: was 0\.05, now 0\.1"):
        bootstrap(text, bert, out=tmp_path, temperature=0.1, **FAST)


def test_pooling_is_the_asked_one(bert, text, tmp_path):
    assert bootstrap(text, bert, out=tmp_path, pooling="cls", **FAST).pooling == "cls"


def test_a_dev_set_chooses_the_best_checkpoint(bert, text, dev, tmp_path):
    bootstrap(text, bert, out=tmp_path, dev=dev, epochs=4, **FAST)
    record = json.loads((tmp_path / "bi" / "training.json").read_text())
    assert record["best_score"] == max(moment["score"] for moment in record["history"])


def test_a_worse_result_is_never_kept_silently(bert, text, dev, tmp_path, monkeypatch, caplog):
    marks = iter([90.0, 10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr("trans_encoder.distill.judges.DevJudge.__call__", lambda self, encoder: next(marks))
    with caplog.at_level(logging.WARNING):
        tuned = bootstrap(text, bert, out=tmp_path, dev=dev, **FAST)
    assert "kept as it was" in caplog.text
    start = BiEncoder.load(bert, device="cpu")
    np.testing.assert_array_equal(tuned.encode(["the old boat"]), start.encode(["the old boat"]))


def test_a_study_of_tuning_sees_the_tuned_model_where_tuning_hurts(bert, text, dev, tmp_path, monkeypatch, caplog):
    marks = iter([90.0, 10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr("trans_encoder.distill.judges.DevJudge.__call__", lambda self, encoder: next(marks))
    with caplog.at_level(logging.WARNING):
        tuned = bootstrap(text, bert, out=tmp_path, dev=dev, keep_start=False, **FAST)
    assert "the tuned one is kept all the same" in caplog.text
    start = BiEncoder.load(bert, device="cpu")
    assert np.abs(tuned.encode(["the old boat"]) - start.encode(["the old boat"])).max() > 1e-4


def test_refuses_unknown_settings(bert, text, tmp_path):
    with pytest.raises(ConfigurationError, match="precision is fp16, but the run is on a CPU"):
        bootstrap(text, bert, out=tmp_path, precision="fp16", device="cpu")
    with pytest.raises(ConfigurationError, match="unknown preset 'tiny'"):
        bootstrap(text, bert, out=tmp_path, preset="tiny")
    with pytest.raises(ConfigurationError, match="objective: given 'other'"):
        bootstrap(text, bert, out=tmp_path, objective="other")
    with pytest.raises(ConfigurationError, match="learning_rate: given -1"):
        bootstrap(text, bert, out=tmp_path, learning_rate=-1)


def test_the_command_tunes_and_says_so(bert, text, dev, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(text.sentences.to_pylist()) + "\n")
    write_pairs(dev, tmp_path / "dev.jsonl")
    command = ["bootstrap", "--text", tmp_path / "text.txt", "--model", bert, "--out", tmp_path / "out", "--json"]
    command += ["--dev", tmp_path / "dev.jsonl", "--set", "batch_size=16", "--set", "learning_rate=3e-3"]
    ran = CliRunner().invoke(app, [str(part) for part in command])
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert result["out"] == str(tmp_path / "out" / "bi")
    assert result["start_score"] is not None
    assert BiEncoder.load(result["out"]).encode(["the old boat"]).shape == (1, 32)
