"""Encoders that run an exported ONNX graph with onnxruntime: the same verbs, nothing to train."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.encoders.loading import explained
from trans_encoder.encoders.prompts import Prompts, choose_prompts
from trans_encoder.encoders.tokens import PairTokeniser, SpecialTokens
from trans_encoder.errors import ConfigurationError, import_extra
from trans_encoder.files import read_json
from trans_encoder.runner import Inputs, PlainRunner

GRAPHS = "onnx"
"""The folder of graphs in a model folder."""
NOTE = "encoder.json"
"""Says, in that folder, which graph to run and how."""


def has_graph(name: str | Path) -> bool:
    """Return whether a model folder is an ONNX export of ours."""
    return (Path(name).expanduser() / GRAPHS / NOTE).is_file()


class Graph(torch.nn.Module):
    """A graph and its tokenizer in the place of a sentence-transformers model."""

    def __init__(self, folder: Path, *, max_tokens: int | None = None) -> None:
        """Open the graph of a model folder."""
        super().__init__()
        runtime = import_extra("onnxruntime", extra="onnx")
        from transformers import AutoTokenizer

        with explained(folder):
            note = read_json(folder / GRAPHS / NOTE)
            options = runtime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            options.log_severity_level = 3
            self.session = runtime.InferenceSession(
                folder / GRAPHS / note["file"], options, providers=["CPUExecutionProvider"]
            )
            self.tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        if max_tokens is not None and max_tokens > note["max_tokens"]:
            raise ConfigurationError(
                f"model {folder} was exported for at most {note['max_tokens']} tokens, but max_tokens is {max_tokens}"
            )
        self.note = note
        self.max_seq_length: int = max_tokens or note["max_tokens"]
        self.prompts: dict[str, str] = note["prompts"]
        self.default_prompt_name: str | None = note["default_prompt_name"]
        self.device = torch.device("cpu")

    def get_embedding_dimension(self) -> int | None:
        """Return the width of a sentence embedding."""
        return self.note.get("dimension")

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the embeddings, or the logits, of one batch."""
        given = {name: inputs[name].numpy() for name in self.note["inputs"]}
        (found,) = self.session.run([self.note["output"]], given)
        return torch.from_numpy(found if self.note["kind"] == "bi" else found[:, 0])


class _GraphRunner(PlainRunner):
    """Takes a graph through batches, but not through a training."""

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Refuse to be trained."""
        raise ConfigurationError(
            f"an ONNX export cannot be trained ({len(groups)} batches given); give the model that it was exported from"
        )


def _runner(graph: Graph) -> _GraphRunner:
    return _GraphRunner(graph, lambda model, inputs: model(inputs))


class _FromGraph:
    """What encoders that run a graph have in common."""

    model: Any
    name: str

    @property
    def max_tokens(self) -> int:
        """Longest text, or pair, in tokens, special ones included."""
        return int(self.model.max_seq_length)

    @property
    def token_limit(self) -> int:
        """Longest text, or pair, that the graph was exported for."""
        return int(self.model.note["max_tokens"])

    def save(self, folder: Path) -> None:
        """Copy the exported folder."""
        shutil.copytree(Path(self.name).expanduser(), folder, dirs_exist_ok=True)


class OnnxBiEncoder(_FromGraph, BiEncoder):
    """A bi-encoder whose embeddings come from an ONNX graph."""

    def __init__(self, graph: Graph, *, name: str, prompts: Prompts = None) -> None:
        """Wrap an opened graph."""
        self.model: Any = graph
        self.name = name
        self.prompts = choose_prompts(graph, prompts, name=name)
        self._features = [{}, {}]
        self.tokeniser = PairTokeniser(graph.tokenizer, prompts=(self.prompts[0].text, self.prompts[1].text))
        self.layout = SpecialTokens.of(graph.tokenizer, texts=1)
        self.runner = _runner(graph)

    @property
    def pooling(self) -> str:
        """How token embeddings become a sentence embedding, inside the graph."""
        return str(self.model.note["pooling"])


class OnnxCrossEncoder(_FromGraph, CrossEncoder):
    """A cross-encoder whose logits come from an ONNX graph."""

    def __init__(self, graph: Graph, *, name: str) -> None:
        """Wrap an opened graph."""
        self.model: Any = graph
        self.name = name
        prompt = str(graph.prompts.get(graph.default_prompt_name or "") or "")
        self.tokeniser = PairTokeniser(graph.tokenizer, prompts=(prompt, ""))
        self.layout = SpecialTokens.of(graph.tokenizer, texts=2)
        self.runner = _runner(graph)
