"""Remove the mean and the common directions of a bi-encoder's embeddings (all-but-the-top, Mu and Viswanath 2018).

Embeddings of a language model lie in a narrow cone: a few directions are shared by all texts and reflect
length and common words more than meaning. Cosines are clearer without them. What removes them is a
linear map, so the result is an ordinary sentence-transformers model with one more module, `Dense`.
"""

import numpy as np
import pyarrow as pa
import torch
from sentence_transformers.sentence_transformer.modules import Dense

from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.errors import DataError

_MOST_TEXTS = 10_000  # directions hardly change with more


def without_common_directions(encoder: BiEncoder, texts: pa.Array | list[str], *, count: int) -> BiEncoder:
    """Return the encoder with a last module that removes the mean of the texts' embeddings and `count` directions."""
    texts = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    if len(texts) > _MOST_TEXTS:
        texts = texts.take(pa.array(np.sort(np.random.default_rng(0).choice(len(texts), _MOST_TEXTS, replace=False))))
    embeddings = encoder.encode(texts).astype(np.float64)
    width = embeddings.shape[1] if embeddings.ndim == 2 else 0
    if min(len(embeddings), width) <= count:
        raise DataError(
            f"{count} directions cannot be removed from embeddings of {len(embeddings)} texts and {width} dimensions; "
            f"give more text, or set directions=0"
        )
    mean = embeddings.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(embeddings, rowvar=False))
    common = vectors[:, -count:] if count else vectors[:, :0]
    kept = np.eye(width) - common @ common.T
    module = Dense(
        width,
        width,
        activation_function=None,
        init_weight=torch.tensor(kept, dtype=torch.float32),
        init_bias=torch.tensor(-kept @ mean, dtype=torch.float32),
    )
    return encoder.followed_by(module)
