"""Any number of made-up pairs: sentences of common words and usual length, most of them different."""

from random import Random

from trans_encoder.data.pairs import PairSet

WORDS = """
the a one some this that every no old new small large red green quiet broken early late child teacher doctor river house
market train window letter garden story winter city engine dog friend music paper answer number reads finds loses sells
opens carries writes breaks keeps brings near under behind before after without with from into again
"""


def made_pairs(count: int, *, seed: int = 0) -> PairSet:
    """Make pairs of 5 to 20 words; the second sentence of a pair shares some of the first one's."""
    random, known = Random(seed), WORDS.split()
    left, right = [], []
    for _ in range(count):
        words = random.choices(known, k=random.randint(5, 20))
        others = random.choices(known, k=len(words))
        share = random.random()
        chosen = [one if random.random() < share else other for one, other in zip(words, others, strict=True)]
        left.append(" ".join(words))
        right.append(" ".join(chosen))
    return PairSet.from_lists(left, right)
