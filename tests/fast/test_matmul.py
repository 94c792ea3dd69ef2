"""Linear layers by oneDNN, with prepacked weights or not, give what torch's own give."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.fast import matmul
from trans_encoder.fast.matmul import linear, prepacked, rows_to_add
from trans_encoder.fast.packing import packable

HAS_IT = torch.backends.mkldnn.is_available()


@pytest.fixture(params=["AVX512", "AVX2", ""] if HAS_IT else [""])
def cpu(request, monkeypatch):
    """What the CPU can do, with no product too small for it."""
    monkeypatch.setattr(matmul, "_capability", lambda: request.param)
    monkeypatch.setattr(matmul, "_FEWEST_ROWS", 1)
    return request.param


def layers_of(count):
    torch.manual_seed(0)
    return [nn.Linear(24, 8 * (place + 1)) for place in range(count)]


def plain(inputs, layers, *, gelu):
    outputs = torch.cat([functional.linear(inputs, layer.weight, layer.bias) for layer in layers], dim=-1)
    return functional.gelu(outputs) if gelu else outputs


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rows", [5, 16, 32])
def test_a_product_and_its_gradients_are_those_of_the_layers(cpu, rows, count, gelu):
    layers, inputs = layers_of(count), torch.randn(rows, 24, requires_grad=True)
    learnt = [inputs, *(weight for layer in layers for weight in layer.parameters())]
    outputs = [
        way(inputs, layers) for way in (lambda x, ls: linear(x, *ls, gelu=gelu), lambda x, ls: plain(x, ls, gelu=gelu))
    ]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(output.square().sum(), learnt) for output in outputs]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("rows", [7, 16, 2000])
def test_frozen_weights_give_the_same_for_any_number_of_rows(cpu, rows, gelu):
    layers, inputs, layouts = layers_of(2), torch.randn(rows, 24), {}
    with torch.inference_mode(), prepacked(layouts):
        found = [linear(inputs, *layers, gelu=gelu) for _ in range(2)]
    assert len(layouts) == (bool(cpu) and rows_to_add(rows) == 0)
    for outputs in found:
        torch.testing.assert_close(outputs, plain(inputs, layers, gelu=gelu), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("rows", [5, 16, 32])
def test_what_is_added_has_its_gradients_too(cpu, rows):
    (layer,), inputs = layers_of(1), torch.randn(rows, 24, requires_grad=True)
    others = torch.randn(rows, 8, requires_grad=True)
    plain = layer(inputs) + others
    outputs = linear(inputs, layer, plus=others), plain
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(each.square().sum(), [inputs, others, *layer.parameters()]) for each in outputs]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with torch.inference_mode(), prepacked({}):
        torch.testing.assert_close(linear(inputs, layer, plus=others), outputs[1])


@pytest.mark.parametrize(("vendor", "used"), [("GenuineIntel", False), ("AuthenticAMD", True)])
def test_intels_cpus_keep_torchs_own_gemm(vendor, used, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : {vendor}\n")
    monkeypatch.setattr(matmul, "Path", lambda _: tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert (matmul._capability.__wrapped__() == "AVX512") == (used and HAS_IT)


def test_few_rows_are_left_as_they_are():
    assert rows_to_add(2) == 0


def test_products_in_half_precision_are_left_to_torch(cpu):
    (layer,), inputs = layers_of(1), torch.randn(16, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(inputs, layer).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_weights_that_have_changed_are_packed_again(kind, bert, dev, no_pass_is_too_small, monkeypatch):
    encoder = kind.load(bert, max_tokens=32)
    before = encoder.score(dev)
    with torch.no_grad():
        for name, weight in encoder.model.named_parameters():
            if "layer." in name:
                weight.mul_(10)
    after = encoder.score(dev)
    assert np.abs(after - before).max() > 1e-3
    monkeypatch.setattr(matmul, "_capability", lambda: "")
    np.testing.assert_allclose(after, encoder.score(dev), atol=1e-5)


def test_layers_that_are_more_than_their_weights_are_left_alone(bert, dev):
    class Adapted(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) + 1

    encoder = BiEncoder.load(bert, max_tokens=32)
    attention = encoder.model[0].model.encoder.layer[0].attention.self
    assert packable(copy.deepcopy(encoder.model))
    attention.value.__class__ = Adapted
    assert not packable(encoder.model)
