"""How long texts are: the length that covers nearly all of them, and how many are cut at a given one."""

import numpy as np
import pyarrow as pa

from trans_encoder.config import Kind
from trans_encoder.data import PairSet
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.encoder import Encoder
from trans_encoder.encoders.tokens import Integers
from trans_encoder.runs import Cuts as Cuts

COVERED = 0.99
"""Share of the texts (for a cross-encoder: of the pairs) that a length found from the data leaves whole."""
_MULTIPLE = 8  # lengths are rounded up to it, so that one longer text does not change them


def count_cuts(encoder: Encoder, pairs: PairSet, *, max_tokens: int | None = None) -> Cuts:
    """Count the inputs that are cut to `max_tokens`, or to the encoder's own length."""
    return _cuts(encoder.kind, max_tokens or encoder.max_tokens, _whole_lengths(encoder, pairs))


def count_text_cuts(encoder: BiEncoder, texts: pa.Array | pa.ChunkedArray) -> Cuts:
    """Count the texts that a bi-encoder cuts to its own length."""
    tokens = encoder.tokeniser.sentences(texts, max_tokens=encoder.max_tokens)
    return _cuts(encoder.kind, encoder.max_tokens, tokens.whole + encoder.layout.extra)


def _cuts(kind: Kind, limit: int, lengths: Integers) -> Cuts:
    return Cuts(kind, limit, len(lengths), int((lengths > limit).sum()), int(lengths.max(initial=0)))


def fitting_length(encoder: Encoder, pairs: PairSet) -> int:
    """Return the shortest length that leaves at least 99 % of the inputs whole, bounded by what the model takes."""
    return covering(_whole_lengths(encoder, pairs), limit=encoder.token_limit)


def covering(lengths: Integers, *, limit: int) -> int:
    """Return the shortest length that covers at least 99 % of these, rounded up, but at most `limit`."""
    needed = int(np.quantile(lengths, COVERED, method="inverted_cdf")) if len(lengths) else _MULTIPLE
    return min(-(-needed // _MULTIPLE) * _MULTIPLE, limit)


def _whole_lengths(encoder: Encoder, pairs: PairSet) -> Integers:
    # Tokenised as for scoring, so that neither is done twice.
    return encoder.whole_lengths(encoder.tokeniser(pairs, max_tokens=encoder.max_tokens))
