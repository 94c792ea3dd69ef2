"""The cross-encoder: two sentences in, one logit out; a pair's score is the logit's sigmoid."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import sentence_transformers
import torch
from torch import Tensor

from trans_encoder.config import Kind
from trans_encoder.data import PairSet, Scores
from trans_encoder.encoders.batching import assemble, budget_batches, places_in
from trans_encoder.encoders.loading import (
    Loaded,
    check_length,
    checked_name,
    explained,
    inference,
    loading_options,
)
from trans_encoder.encoders.prompts import default_prompt
from trans_encoder.encoders.runners import runner_for
from trans_encoder.encoders.tokens import Integers, PairTokeniser, PairTokens, longest_first
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import progress
from trans_encoder.runner import Inputs


class CrossEncoder(Loaded):
    """A sentence-transformers CrossEncoder with the verbs of this package, mirroring `BiEncoder`."""

    kind: Kind = "cross"
    model: sentence_transformers.CrossEncoder

    def __init__(self, model: sentence_transformers.CrossEncoder, *, name: str, fast: bool | None = None) -> None:
        """Wrap a loaded CrossEncoder with one label."""
        if model.num_labels != 1:
            raise ConfigurationError(
                f"cross-encoder {name} has {model.num_labels} labels; expected one score a pair (num_labels=1)"
            )
        super().__init__(model, name=name, texts=2, runner=runner_for(model, _logits, fast))
        self.tokeniser = PairTokeniser(model.tokenizer, prompts=(default_prompt(model), ""))
        self.head_is_new = False
        """Whether the head was drawn at random when the model was loaded."""

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        max_tokens: int | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        seed: int = 0,
        fast: bool | None = None,
    ) -> Self:
        """Load a cross-encoder, or any encoder's body under a new head drawn from `seed`, from a folder or hub name."""
        path = checked_name(name, trust_remote_code=trust_remote_code)
        with explained(name), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            has_head = _has_head(path, trust_remote_code=trust_remote_code)
            options = loading_options(path, device=device, trust_remote_code=trust_remote_code)
            model = sentence_transformers.CrossEncoder(path, num_labels=None if has_head else 1, **options)
        if max_tokens is not None:
            check_length(model, max_tokens, name=name)
            model.max_seq_length = max_tokens
        encoder = cls(model, name=str(name), fast=fast)
        encoder.head_is_new = not has_head
        return encoder

    def score(self, pairs: PairSet | Sequence[tuple[str, str]]) -> Scores:
        """Return the probability that the cross-encoder gives to each pair, in the given order (section 2.3)."""
        pairs, max_tokens = PairSet.of(pairs), self.max_tokens
        tokenised = self.tokeniser(pairs, max_tokens=max_tokens)
        scores = np.empty(len(pairs), dtype=np.float32)
        with (
            inference(self.model, self.device, precision=self.precision),
            progress(f"scoring with {self.name}", total=len(pairs)) as advance,
        ):
            batches = budget_batches(self.lengths(tokenised), max_batch_tokens=self.batch_tokens)
            for rows, logits in self.runner.predict(batches, lambda rows: self._inputs(tokenised, rows, max_tokens)):
                scores[rows] = logits.sigmoid().numpy()
                advance(len(rows))
        return scores

    def _cut(self, pairs: PairTokens, rows: Integers | slice, max_tokens: int) -> tuple[Integers, Integers]:
        first, second = pairs.tokens.lengths[pairs.index[rows]].T
        return longest_first(first, second, limit=max_tokens - self.layout.extra)

    def _inputs(self, pairs: PairTokens, rows: Integers, max_tokens: int) -> Inputs:
        cuts = zip(*self._cut(pairs, rows, max_tokens), strict=True)
        texts = [
            (pairs.tokens[first][:first_cut], pairs.tokens[second][:second_cut])
            for (first, second), (first_cut, second_cut) in zip(pairs.index[rows], cuts, strict=True)
        ]
        return assemble(texts, self.layout)

    # What training needs: how long an example is, how a batch is put together, what the student outputs.

    def whole_lengths(self, pairs: PairTokens) -> Integers:
        """Return how many tokens each pair has before any cut, special ones included."""
        lengths: Integers = pairs.tokens.whole[pairs.index].sum(axis=1) + self.layout.extra
        return lengths

    def lengths(self, pairs: PairTokens, *, max_tokens: int | None = None) -> Integers:
        """Return how many tokens each pair costs, cut to `max_tokens` or the model's own length."""
        first, second = self._cut(pairs, slice(None), max_tokens or self.max_tokens)
        return first + second + self.layout.extra

    def collate(self, pairs: PairTokens, rows: Integers, *, max_tokens: int | None = None) -> dict[str, Any]:
        """Build one batch: the pairs in groups of similar length, and where each pair went."""
        max_tokens = max_tokens or self.max_tokens
        groups = self.runner.split(np.add(*self._cut(pairs, rows, max_tokens)) + self.layout.extra)
        return {
            "inputs": [self._inputs(pairs, rows[group], max_tokens) for group in groups],
            "place": torch.from_numpy(places_in(groups)),
        }

    def outputs(self, batch: dict[str, Any]) -> Tensor:
        """Return the logit of each pair of a batch, with gradients."""
        return self.runner(batch["inputs"]).float()[batch["place"]]

    def score_batch(self, batch: dict[str, Any]) -> Tensor:
        """Return the probability of each pair of a batch, with gradients."""
        return self.outputs(batch).sigmoid()


def _logits(model: Any, inputs: Inputs) -> Tensor:
    features = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    return model(features)["scores"].squeeze(-1)  # type: ignore[no-any-return]


def _has_head(name: str, *, trust_remote_code: bool) -> bool:
    from transformers import AutoConfig

    # Said either way: left open, transformers would ask on the terminal whether to run a model's code.
    architectures = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code).architectures or [""]
    return str(architectures[0]).endswith("ForSequenceClassification")
