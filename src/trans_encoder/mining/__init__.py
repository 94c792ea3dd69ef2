"""Mining: from raw text to pairs of sentences that are worth labelling."""

from trans_encoder.mining.bands import Mix
from trans_encoder.mining.mine import Mining, mine

__all__ = ["Mining", "Mix", "mine"]
