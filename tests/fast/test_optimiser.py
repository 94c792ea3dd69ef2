"""Clipping and AdamW that threads share out give what torch's own give."""

import copy

import pytest
import torch

from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.trainer import StageTrainer
from trans_encoder.encoders.training import Imitation, TrainingOptions
from trans_encoder.fast.optimiser import SharedOutAdamW, clip_gradients


@pytest.fixture
def passes(bert, cores):
    encoder = BiEncoder.load(bert)
    set_dropout(encoder.model, 0.0)
    with encoder.passes.side_by_side():
        assert encoder.passes._pool is not None
        yield encoder.passes


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
def test_gradients_are_clipped_as_torch_does_it(passes, weights, most):
    others = copy.deepcopy(weights)
    set_gradients(weights, others, seed=1)
    norm = clip_gradients(iter(weights), most, passes.share_out)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(others, most))
    for weight, other in zip(weights, others, strict=True):
        torch.testing.assert_close(weight.grad, other.grad)


def test_gradients_that_are_small_enough_keep_their_bits(passes, weights):
    others = copy.deepcopy(weights)
    set_gradients(weights, others, seed=1)
    clip_gradients(weights, 1e3, passes.share_out)
    assert all(torch.equal(weight.grad, other.grad) for weight, other in zip(weights[1:], others[1:], strict=True))


def test_a_norm_that_is_no_number_spoils_every_weight(passes, weights):
    set_gradients(weights, seed=1)
    weights[2].grad[0] = torch.nan
    clip_gradients(weights, 1.0, passes.share_out)
    assert all(bool(weight.grad.isnan().all()) for weight in weights[1:])


def test_steps_are_those_of_adamw_and_continue_from_a_checkpoint(passes, weights):
    def groups(weights):
        return [{"params": weights[:3], "weight_decay": 0.1}, {"params": weights[3:], "weight_decay": 0.0}]

    others, settings = copy.deepcopy(weights), {"lr": 0.1, "fused": True}
    ours = SharedOutAdamW(groups(weights), share_out=passes.share_out, **settings)
    theirs = torch.optim.AdamW(groups(others), **settings)
    for step in range(6):
        if step == 3:
            state = copy.deepcopy(ours.state_dict())
            ours = SharedOutAdamW(groups(weights), share_out=passes.share_out, **settings)
            ours.load_state_dict(state)
        set_gradients(weights, others, seed=step)
        for optimiser in (ours, theirs):
            optimiser.param_groups[0]["lr"] = 0.1 / (step + 1)  # as a schedule does
            optimiser.step()
    for weight, other in zip(weights, others, strict=True):
        torch.testing.assert_close(weight, other, atol=1e-6, rtol=1e-5)
    assert len(ours.state) == len(theirs.state) == 4


def test_a_training_on_a_cpu_uses_both(bert, dev, tmp_path):
    student = BiEncoder.load(bert)
    plan = TrainingPlan(loss="mse", batch_size=16, epochs=1, learning_rate=1e-3, max_tokens=32, max_grad_norm=1e-3)
    objective = Imitation(student, dev, plan=plan, both_orders=False)
    trainer = StageTrainer(student, objective, plan=plan, options=TrainingOptions(folder=tmp_path))
    assert type(trainer.create_optimizer()) is SharedOutAdamW
    set_gradients(list(trainer.model.parameters()), seed=0)
    trainer._clip_grad_norm(trainer.model)
    norms = [weight.grad.norm() for weight in trainer.model.parameters() if weight.grad is not None]
    assert torch.stack(norms).norm() == pytest.approx(1e-3, rel=1e-3)
