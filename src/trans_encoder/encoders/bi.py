"""The bi-encoder: one sentence in, one embedding out; a pair's score is the cosine of its two embeddings."""

import logging
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.config import Kind, PoolingMode
from trans_encoder.data import PairSet, Scores
from trans_encoder.encoders.batching import assemble, budget_batches, places_in
from trans_encoder.encoders.known import copy_of, known_pooling
from trans_encoder.encoders.loading import (
    Loaded,
    check_layout,
    check_length,
    checked_name,
    explained,
    inference,
    is_sentence_encoder,
    loading_options,
)
from trans_encoder.encoders.prompts import Prompts, Side, choose_prompts, prompt_features
from trans_encoder.encoders.runners import runner_for
from trans_encoder.encoders.tokens import Integers, PairTokeniser, PairTokens, Tokens
from trans_encoder.progress import progress
from trans_encoder.runner import Inputs

logger = logging.getLogger(__name__)

# Distinct sentences are encoded once; this bounds how many embeddings are held in memory at a time.
_EMBEDDINGS_BYTES = 512 * 2**20


class BiEncoder(Loaded):
    """A SentenceTransformer with the verbs of this package: load, score, save, and the batches of its training."""

    kind: Kind = "bi"
    model: SentenceTransformer

    def __init__(
        self, model: SentenceTransformer, *, name: str, prompts: Prompts = None, fast: bool | None = None
    ) -> None:
        """Wrap a loaded SentenceTransformer; `prompts` as in `load`."""
        check_layout(model, name=name)
        super().__init__(model, name=name, texts=1, runner=runner_for(model, _embeddings, fast))
        self.fast = fast
        self.use_prompts(prompts)

    def use_prompts(self, prompts: Prompts) -> None:
        """Put these prompts before the texts of either side from now on; see `load`."""
        self.prompts = choose_prompts(self.model, prompts, name=self.name)
        self._features = [prompt_features(self.model, prompt) for prompt in self.prompts]
        self.tokeniser = PairTokeniser(self.model.tokenizer, prompts=(self.prompts[0].text, self.prompts[1].text))

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        pooling: PoolingMode | None = None,
        prompts: Prompts = None,
        max_tokens: int | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        fast: bool | None = None,
    ) -> Self:
        """Load a bi-encoder, or a bare PLM, from a folder or hub name.

        `pooling`, `prompts` and `max_tokens` replace the checkpoint's own settings. A checkpoint that does not say its
        pooling gets that which it is known to be trained with, else the mean, and a warning. `prompts` is one prompt
        for all texts or a tuple for the first and the second of each pair: a name ("query"), a text or "none".
        `fast=False` switches the CPU speed-ups off.
        """
        path = checked_name(name, trust_remote_code=trust_remote_code)
        with explained(name):
            options = loading_options(path, device=device, trust_remote_code=trust_remote_code)
            model = SentenceTransformer(path, **options)
            pooling = pooling or _unsaid_pooling(str(name))
            if pooling is not None:
                model = _with_pooling(model, pooling)
        if max_tokens is not None:
            check_length(model, max_tokens, name=name)
            model.max_seq_length = max_tokens
        return cls(model, name=str(name), prompts=prompts, fast=fast)

    @classmethod
    def from_body(cls, folder: Path, *, like: "BiEncoder", trust_remote_code: bool = False) -> Self:
        """Make a bi-encoder from the body of a saved cross-encoder, pooled as `like` ("sequential", section 2.3)."""
        with explained(folder):
            trust = {"trust_remote_code": trust_remote_code}
            body = Transformer(
                str(folder),
                model_kwargs={"dtype": torch.float32, "use_safetensors": True, **trust},
                config_kwargs=trust,
                processor_kwargs=trust,
            )
            model = _remade([body, *list(like.model)[1:]], like=like.model)
        model.max_seq_length = like.max_tokens
        return cls(model, name=str(folder), fast=like.fast)

    def followed_by(self, module: nn.Module) -> Self:
        """Return the encoder with one more module after its own."""
        model = _remade([*self.model, module], like=self.model)
        model.max_seq_length = self.max_tokens
        return type(self)(model, name=self.name, fast=self.fast)

    @property
    def pooling(self) -> str:
        """How token embeddings become a sentence embedding."""
        modes = [module.get_config_dict()["pooling_mode"] for module in self.model if isinstance(module, Pooling)]
        return str(modes[0]) if modes else "none"

    def encode(self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, *, side: Side = 0) -> Scores:
        """Return one embedding for each text; `side` chooses the prompt of the first or the second texts of pairs."""
        sentences = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.large_string())
        tokens = self.tokeniser.sentences(sentences, max_tokens=self.max_tokens, side=side)
        return self._embed(tokens, np.arange(len(tokens)), np.full(len(tokens), side, dtype=np.int8))

    def score(self, pairs: PairSet | Sequence[tuple[str, str]]) -> Scores:
        """Return the cosine of each pair, raw (section 2.2)."""
        pairs = PairSet.of(pairs)
        tokenised = self.tokeniser(pairs, max_tokens=self.max_tokens)
        width = int(self.model.get_embedding_dimension() or 1)
        block = max(_EMBEDDINGS_BYTES // (2 * 4 * width), 1)
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in range(0, len(pairs), block):
            index = tokenised.index[start : start + block]
            sentences, place = np.unique(index, return_inverse=True)
            embeddings = torch.from_numpy(self._embed(tokenised.tokens, sentences, tokenised.sides[sentences]))
            unit = functional.normalize(embeddings, dim=1)
            places = torch.from_numpy(place.reshape(index.shape))
            for part in range(0, len(index), 65536):
                left, right = places[part : part + 65536].unbind(1)
                cosines = (unit[left] * unit[right]).sum(dim=1)
                scores[start + part : start + part + len(cosines)] = cosines.numpy()
        return scores

    def _embed(self, tokens: Tokens, sentences: NDArray[np.integer[Any]], sides: NDArray[np.int8]) -> Scores:
        """Encode the given sentences, similar lengths together."""
        max_tokens = self.max_tokens
        lengths = self._cut(tokens.lengths[sentences], max_tokens) + self.layout.extra
        embeddings: Scores | None = None
        with (
            inference(self.model, self.device, precision=self.precision),
            progress(f"encoding with {self.name}", total=len(sentences)) as advance,
        ):
            batches = (
                part[rows]
                for part in self._apart(sides)
                for rows in budget_batches(lengths[part], max_batch_tokens=self.batch_tokens)
            )
            inputs = partial(self._inputs, tokens, max_tokens=max_tokens)
            for rows, batch in self.runner.predict(
                batches, lambda rows: inputs(sentences[rows], side=int(sides[rows[0]]))
            ):
                if embeddings is None:
                    embeddings = np.empty((len(sentences), batch.shape[1]), dtype=np.float32)
                embeddings[rows] = batch.numpy()
                advance(len(rows))
        return embeddings if embeddings is not None else np.empty((0, 0), dtype=np.float32)

    def _cut(self, lengths: Integers, max_tokens: int) -> Integers:
        return np.minimum(lengths, max_tokens - self.layout.extra)

    def _apart(self, sides: NDArray[np.int8]) -> list[NDArray[np.intp]]:
        """Return which sentences may share a batch: all, unless the model treats the two prompts differently."""
        if self._features[0] == self._features[1]:
            return [np.arange(len(sides))]
        return [rows for side in (0, 1) if len(rows := np.flatnonzero(sides == side))]

    def _inputs(self, tokens: Tokens, sentences: NDArray[np.integer[Any]], *, side: int, max_tokens: int) -> Inputs:
        limit = max_tokens - self.layout.extra
        keep = slice(-limit, None) if self.model.tokenizer.truncation_side == "left" else slice(limit)
        return assemble([[tokens[sentence][keep]] for sentence in sentences], self.layout) | self._features[side]

    # What training needs: how long an example is, how a batch is put together, what the student outputs.

    def whole_lengths(self, pairs: PairTokens) -> Integers:
        """Return how many tokens each distinct sentence has before any cut, special ones included."""
        return pairs.tokens.whole + self.layout.extra

    def lengths(self, pairs: PairTokens, *, max_tokens: int | None = None) -> Integers:
        """Return how many tokens each pair costs, its sentences cut to `max_tokens` or the model's own length."""
        lengths: Integers = self._cut(pairs.tokens.lengths, max_tokens or self.max_tokens) + self.layout.extra
        return lengths[pairs.index[:, 0]] + lengths[pairs.index[:, 1]]

    def collate(self, pairs: PairTokens, rows: Integers, *, max_tokens: int | None = None) -> dict[str, Any]:
        """Build one batch: each distinct sentence once, in groups of similar length, and which two make each pair."""
        max_tokens = max_tokens or self.max_tokens
        sentences, place = np.unique(pairs.index[rows], return_inverse=True)
        lengths = self._cut(pairs.tokens.lengths[sentences], max_tokens) + self.layout.extra
        sides = pairs.sides[sentences]
        groups = [part[group] for part in self._apart(sides) for group in self.runner.split(lengths[part])]
        inputs = partial(self._inputs, pairs.tokens, max_tokens=max_tokens)
        return {
            "inputs": [inputs(sentences[group], side=int(sides[group[0]])) for group in groups],
            "place": torch.from_numpy(places_in(groups)[place.reshape(-1, 2)]),
        }

    def collate_texts(self, texts: Sequence[NDArray[np.int32]]) -> dict[str, Any]:
        """Build one batch of single texts, cut already: in groups of similar length, and where each text is."""
        groups = self.runner.split(np.array([len(ids) for ids in texts]) + self.layout.extra)
        return {
            "inputs": [assemble([[texts[i]] for i in group], self.layout) for group in groups],
            "place": torch.from_numpy(places_in(groups)),
        }

    def unit_vectors(self, batch: dict[str, Any]) -> Tensor:
        """Return the normalised embedding of each sentence of a batch, with gradients."""
        return functional.normalize(self.runner(batch["inputs"]).float(), dim=1)

    def outputs(self, batch: dict[str, Any]) -> Tensor:
        """Return the cosine of each pair of a batch, with gradients."""
        unit = self.unit_vectors(batch)
        left, right = batch["place"].unbind(1)
        return (unit[left] * unit[right]).sum(dim=1)

    score_batch = outputs
    """A cosine is the score itself."""


def _embeddings(model: Any, inputs: Inputs) -> Tensor:
    features = {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in inputs.items()}
    embeddings: Tensor = model(features)["sentence_embedding"]
    return embeddings[..., : model.truncate_dim]


def _with_pooling(model: SentenceTransformer, mode: PoolingMode) -> SentenceTransformer:
    body: Any = model[0]
    pooling = Pooling(body.get_embedding_dimension(), pooling_mode=mode)
    rest = [module for module in list(model)[1:] if not isinstance(module, Pooling)]
    return _remade([body, pooling, *rest], like=model)


def _remade(modules: list[Any], *, like: SentenceTransformer) -> SentenceTransformer:
    """Put modules together to a model with the device, prompts and similarity of another."""
    return SentenceTransformer(
        modules=modules,
        device=str(like.device),
        prompts={name: prompt for name, prompt in like.prompts.items() if prompt is not None},
        default_prompt_name=like.default_prompt_name,
        similarity_fn_name=like.similarity_fn_name,
        truncate_dim=like.truncate_dim,
    )


def _unsaid_pooling(name: str) -> PoolingMode | None:
    """Return the pooling of a checkpoint that does not say it, if it is known; warn if it is not."""
    if is_sentence_encoder(name):
        return None
    pooling = known_pooling(name)
    if pooling is not None:
        return pooling
    original = copy_of(name)
    pooling = known_pooling(original) if original else None
    _warn_of_guess(name, original if pooling else None, pooling or "mean")
    return pooling


@cache
def _warn_of_guess(name: str, original: str | None, pooling: PoolingMode) -> None:
    """Warn once of each model."""
    logger.warning(
        "%s does not say how token embeddings become a sentence's, so %s is taken; "
        "if it was trained otherwise, give its pooling (--pooling; pooling of a member in TOML and Python)",
        name,
        f"{pooling} as for {original}, whose name it has," if original else "their mean",
    )
