"""Mining: from raw text to pairs of sentences that are worth labelling."""

from trans_encoder.mining.bands import DEFAULT_MIX, Mix
from trans_encoder.mining.mine import Mining, mine
