"""Clipping and AdamW that threads share out give what torch's own give."""

import copy

import pytest
import torch
from transformers import TrainerCallback

from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.trainer import StageTrainer
from trans_encoder.encoders.training import Distillation, TrainingOptions
from trans_encoder.fast.optimiser import ShardedAdamW, clip_gradients
from trans_encoder.fast.threads import Lanes, thread_pool


@pytest.fixture
def share_out(bert, cores):
    with thread_pool(2) as pool:
        yield Lanes(BiEncoder.load(bert).model, lambda *_: None, threads=2, pool=pool).share_out


@pytest.fixture
def weights():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size)) for size in ((40, 30), (30,), (7, 5), (1,), (300, 9))]


def set_gradients(*models, seed):
    for weights in models:
        generator = torch.Generator().manual_seed(seed)
        for weight in weights[1:]:  # the first is not trained
            weight.grad = torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize("most", [1e-3, 1e3])
def test_gradients_are_clipped_as_torch_does_it(share_out, weights, most):
    others = copy.deepcopy(weights)
    set_gradients(weights, others, seed=1)
    norm = clip_gradients(iter(weights), most, share_out)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(others, most))
    for weight, other in zip(weights, others, strict=True):
        torch.testing.assert_close(weight.grad, other.grad)


def test_gradients_that_are_small_enough_keep_their_bits(share_out, weights):
    others = copy.deepcopy(weights)
    set_gradients(weights, others, seed=1)
    clip_gradients(weights, 1e3, share_out)
    assert all(torch.equal(weight.grad, other.grad) for weight, other in zip(weights[1:], others[1:], strict=True))


def test_a_norm_that_is_no_number_spoils_every_weight(share_out, weights):
    set_gradients(weights, seed=1)
    weights[2].grad[0] = torch.nan
    clip_gradients(weights, 1.0, share_out)
    assert all(bool(weight.grad.isnan().all()) for weight in weights[1:])


def test_steps_are_those_of_adamw_and_continue_from_a_checkpoint(share_out, weights):
    def groups(weights):
        return [{"params": weights[:3], "weight_decay": 0.1}, {"params": weights[3:], "weight_decay": 0.0}]

    others, settings = copy.deepcopy(weights), {"lr": 0.1, "fused": True}
    ours = ShardedAdamW(groups(weights), share_out=share_out, **settings)
    theirs = torch.optim.AdamW(groups(others), **settings)
    for step in range(6):
        if step == 3:
            state = copy.deepcopy(ours.state_dict())
            ours = ShardedAdamW(groups(weights), share_out=share_out, **settings)
            ours.load_state_dict(state)
        set_gradients(weights, others, seed=step)
        for optimiser in (ours, theirs):
            optimiser.param_groups[0]["lr"] = 0.1 / (step + 1)  # as a schedule does
            optimiser.step()
    for weight, other in zip(weights, others, strict=True):
        torch.testing.assert_close(weight, other, atol=1e-6, rtol=1e-5)
    assert len(ours.state) == len(theirs.state) == 4


@pytest.mark.parametrize("fast", [True, False])
def test_a_training_clips_and_steps_either_way(fast, bert, dev, tmp_path):
    student = BiEncoder.load(bert, fast=fast)
    plan = TrainingPlan(loss="mse", batch_size=16, epochs=1, learning_rate=1e-3, max_tokens=32, max_grad_norm=1e-3)
    objective = Distillation(student, dev, plan=plan, both_orders=False)
    trainer = StageTrainer(student, objective, plan=plan, options=TrainingOptions(folder=tmp_path))
    norms = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            assert isinstance(trainer.optimizer.optimizer, ShardedAdamW) == fast
            grads = [weight.grad.norm() for weight in trainer.model.parameters() if weight.grad is not None]
            norms.append(torch.stack(grads).norm())

    trainer.add_callback(Watch())
    trainer.run()
    assert norms == [pytest.approx(1e-3, rel=1e-2)] * 3
