"""Score pairs by matching their tokens: a second score from any bi-encoder, without training.

Each token is matched with the most similar token of the other text, rare tokens weigh more, and both directions are
averaged, as in BERTScore. A sentence embedding may lose a name or a number; its token still has no match here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from trans_encoder.data import PairSet
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.loading import inference
from trans_encoder.progress import progress

Floats = NDArray[np.float64]

_BLOCK_PAIRS = 512  # token embeddings are held for this many pairs at a time
_BATCH_TEXTS = 32


def match_tokens(encoder: BiEncoder, pairs: PairSet) -> NDArray[np.float32]:
    """Return the idf-weighted F1 of greedy token matching for each pair; idf comes from the pairs' own texts."""
    distinct = pairs.distinct()
    texts: list[str] = distinct.sentences.to_pylist()
    idf = _inverse_frequencies(encoder, texts)
    scores = np.empty(len(pairs), dtype=np.float32)
    with (
        inference(encoder.model, encoder.device, precision=encoder.precision),
        progress(f"matching tokens with {encoder.name}", total=len(pairs)) as advance,
    ):
        for start in range(0, len(pairs), _BLOCK_PAIRS):
            index = distinct.index[start : start + _BLOCK_PAIRS]
            places = np.unique(index)
            tokens = dict(zip(places.tolist(), _embedded(encoder, [texts[i] for i in places], idf), strict=True))
            for row, (first, second) in enumerate(index.tolist()):
                scores[start + row] = _matched(tokens[first], tokens[second])
            advance(len(index))
    return scores


_Tokens = tuple[Tensor, Tensor]  # unit embeddings [tokens, width] and their weights [tokens]


def _matched(first: _Tokens, second: _Tokens) -> float:
    """Return the harmonic mean of how well each text's tokens are found in the other."""
    similarity = first[0] @ second[0].T
    recall = float((similarity.amax(1) * first[1]).sum())
    precision = float((similarity.amax(0) * second[1]).sum())
    return 2 * precision * recall / max(precision + recall, 1e-6)


def _embedded(encoder: BiEncoder, texts: Sequence[str], idf: Tensor) -> list[_Tokens]:
    """Return each text's tokens, special ones left out where there are others."""
    special = torch.tensor(sorted(encoder.model.tokenizer.all_special_ids))
    order = np.argsort([len(text) for text in texts], kind="stable")  # similar lengths share a batch
    found: dict[int, _Tokens] = {}
    for start in range(0, len(order), _BATCH_TEXTS):
        rows = order[start : start + _BATCH_TEXTS].tolist()
        batch = _tokenised(encoder, [texts[row] for row in rows])
        body: Any = encoder.model[0]
        outputs = body({name: tensor.to(encoder.device) for name, tensor in batch.items()})
        embeddings = functional.normalize(outputs["token_embeddings"].float().cpu(), dim=-1)
        for row, ids, mask, states in zip(rows, batch["input_ids"], batch["attention_mask"], embeddings, strict=True):
            kept = mask.bool() & ~torch.isin(ids, special)
            kept = kept if bool(kept.any()) else mask.bool()
            weights = idf[ids[kept]]
            found[row] = states[kept], weights / weights.sum()
    return [found[row] for row in range(len(texts))]


def _tokenised(encoder: BiEncoder, texts: Sequence[str]) -> dict[str, Tensor]:
    """Tokenise without a prompt: its tokens would match in every pair."""
    return dict(
        encoder.model.tokenizer(
            list(texts), padding=True, truncation=True, max_length=encoder.max_tokens, return_tensors="pt"
        )
    )


def _inverse_frequencies(encoder: BiEncoder, texts: Sequence[str]) -> Tensor:
    """Return the smoothed idf of every token id: log of texts over texts that have the token."""
    counts = np.zeros(len(encoder.model.tokenizer), dtype=np.int64)
    for start in range(0, len(texts), 1024):
        batch = encoder.model.tokenizer(texts[start : start + 1024], truncation=True, max_length=encoder.max_tokens)
        for ids in batch["input_ids"]:
            counts[np.unique(ids)] += 1
    # One more than the plain ratio, so that a token of every text still weighs something.
    return torch.from_numpy(np.log((len(texts) + 1) / (counts + 1)).astype(np.float32) + 0.05)
