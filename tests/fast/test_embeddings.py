"""Training the word embeddings of the tokens that are there gives what training the whole table gives."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from conftest import FAMILIES
from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.fast import runner
from trans_encoder.fast.embeddings import TrainedEmbeddings, word_embeddings

PLAN = TrainingPlan(
    learning_rate=1e-3, weight_decay=0.1, epochs=1, batch_size=4, max_tokens=32, dropout=0.0, dev_steps=2, loss="mse"
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_a_training_gives_the_same_weights_and_scores(family, kind, tiny_model, dev, tmp_path, monkeypatch):
    def trained(folder):
        judged = []

        def judge(encoder):
            judged.append(encoder.score(dev))
            return float(len(judged))

        encoder = kind.load(tiny_model(family), max_tokens=32, device="cpu")
        options = TrainingOptions(tmp_path / folder, judge=judge)
        train(encoder, dev.sample(12, seed=0), plan=PLAN, options=options)
        return encoder.model.state_dict(), np.array(judged)

    ours, scores = trained("ours")
    assert word_embeddings(kind.load(tiny_model(family), device="cpu").model) is not None
    monkeypatch.setattr(runner, "word_embeddings", lambda _: None)
    plain, expected = trained("plain")
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert ours.keys() == plain.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(ours[name], weight, atol=1e-5, rtol=1e-4, msg=name)


def one_step(table, optimiser, ids, embeddings=None):
    table(ids).square().sum().backward()
    if embeddings is not None:
        embeddings.gather()
    optimiser.step()
    optimiser.zero_grad()


def test_rows_that_are_not_trained_decay():
    plain, ours = nn.Embedding(50, 4, padding_idx=0), nn.Embedding(50, 4, padding_idx=0)
    ours.load_state_dict(plain.state_dict())
    weight, before = ours.weight, plain.weight.detach().clone()
    embeddings = TrainedEmbeddings(ours, np.array([3, 7, 9]))
    with embeddings.in_place():
        assert ours.weight.shape == (5, 4)  # padding, three tokens and the row of ones
        optimisers = [torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.5) for table in (plain, ours)]
        for ids in ([3, 7, 3, 0], [9, 9], [3]):
            one_step(plain, optimisers[0], torch.tensor(ids))
            one_step(ours, optimisers[1], torch.tensor(ids), embeddings)
        torch.testing.assert_close(ours.state_dict(), plain.state_dict())
    assert ours.weight is weight
    assert (plain.weight[20] / before[20] < 0.9).all()
    torch.testing.assert_close(ours(torch.arange(50)), plain(torch.arange(50)))


def test_a_token_that_was_not_announced_is_an_error():
    table = nn.Embedding(50, 4)
    with TrainedEmbeddings(table, np.array([3, 7])).in_place(), pytest.raises(IndexError):
        table(torch.tensor([8]))


def test_a_saved_table_is_whole_and_can_be_put_back():
    table = nn.Embedding(50, 4)
    other = {"weight": torch.rand(50, 4)}
    embeddings = TrainedEmbeddings(table, np.array([3, 7]))
    with embeddings.in_place():
        table.load_state_dict(other)
        torch.testing.assert_close(table(torch.tensor([7])), other["weight"][[7]])
        torch.testing.assert_close(table.eval()(torch.tensor([8])), other["weight"][[8]])
        torch.testing.assert_close(dict(table.state_dict()), other)


def test_only_a_plain_table_that_is_read_in_one_place_is_taken(bert):
    model = BiEncoder.load(bert, device="cpu").model
    table = word_embeddings(model)
    assert table.num_embeddings == len(model.tokenizer)
    tied, frozen = copy.deepcopy(model), copy.deepcopy(model)
    tied.head = nn.Linear(table.embedding_dim, table.num_embeddings)
    tied.head.weight = word_embeddings(tied).weight
    word_embeddings(frozen).weight.requires_grad_(False)
    assert word_embeddings(tied) is None
    assert word_embeddings(frozen) is None
