"""Encoders that run an exported ONNX graph with onnxruntime: the same verbs, nothing to train."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.encoders.loading import Loaded, explained
from trans_encoder.encoders.prompts import Prompts, default_prompt
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.errors import ConfigurationError, import_extra
from trans_encoder.files import read_json
from trans_encoder.runner import Inputs, PlainRunner, in_order

GRAPHS = "onnx"
"""The folder of graphs in a model folder."""
NOTE = "encoder.json"
"""Says, in that folder, which graph to run and how."""

T = TypeVar("T")

_BATCH_TOKENS = 512
"""onnxruntime keeps every intermediate result in memory: larger batches fall out of the cache."""
_SLOW_FUSIONS = ["SkipLayerNormFusion"]
"""Fused nodes that onnxruntime computes more slowly than their parts."""


def has_graph(name: str | Path) -> bool:
    """Return whether a model folder is an ONNX export of ours."""
    return (Path(name).expanduser() / GRAPHS / NOTE).is_file()


class Graph(torch.nn.Module):
    """A graph and its tokenizer in the place of a sentence-transformers model."""

    def __init__(self, folder: Path, *, max_tokens: int | None = None) -> None:
        """Open the graph of a model folder."""
        super().__init__()
        self._runtime = import_extra("onnxruntime", extra="onnx")
        from transformers import AutoTokenizer

        with explained(folder):
            note = read_json(folder / GRAPHS / NOTE)
            self.path = folder / GRAPHS / note["file"]
            self._sessions: dict[int, Any] = {}
            self.session(torch.get_num_threads())
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

    def session(self, threads: int) -> Any:
        """Return a session whose passes take this many threads; it is opened when it is first asked for."""
        if threads not in self._sessions:
            options = self._runtime.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3
            self._sessions[threads] = self._runtime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW_FUSIONS
            )
        return self._sessions[threads]

    def forward(self, inputs: Inputs, threads: int | None = None) -> Tensor:
        """Return the embeddings, or the logits, of one batch."""
        given = {name: inputs[name].numpy() for name in self.note["inputs"]}
        (found,) = self.session(threads or torch.get_num_threads()).run([self.note["output"]], given)
        return torch.from_numpy(found if self.note["kind"] == "bi" else found[:, 0])


class _GraphRunner(PlainRunner):
    """Takes a graph through batches, but not through a training."""

    def predict(self, batches: Iterable[T], inputs: Callable[[T], Inputs]) -> Iterator[tuple[T, Tensor]]:
        """Yield each batch with its outputs: one batch in all threads, several in a thread each."""
        batches, threads = iter(batches), torch.get_num_threads()
        first, second = next(batches, None), next(batches, None)
        if first is None:
            return
        if second is None or threads == 1:
            yield from super().predict(chain([first], [] if second is None else [second], batches), inputs)
            return
        self.model.session(1)  # opened here, so that the threads find it

        def work(batch: T) -> tuple[T, Tensor]:
            return batch, self.model(inputs(batch), threads=1).float()

        with ThreadPoolExecutor(threads) as pool:
            yield from in_order(pool, work, chain([first, second], batches), ahead=2 * threads)

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
    def batch_tokens(self) -> int:
        """Tokens of a batch in scoring, padding included."""
        return _BATCH_TOKENS

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
        Loaded.__init__(self, graph, name=name, texts=1, runner=_runner(graph))
        self.use_prompts(prompts)

    @property
    def pooling(self) -> str:
        """How token embeddings become a sentence embedding, inside the graph."""
        return str(self.model.note["pooling"])


class OnnxCrossEncoder(_FromGraph, CrossEncoder):
    """A cross-encoder whose logits come from an ONNX graph."""

    def __init__(self, graph: Graph, *, name: str) -> None:
        """Wrap an opened graph."""
        Loaded.__init__(self, graph, name=name, texts=2, runner=_runner(graph))
        self.tokeniser = PairTokeniser(graph.tokenizer, prompts=(default_prompt(graph), ""))
