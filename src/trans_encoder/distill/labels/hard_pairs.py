"""Hard pairs: training sentences and flips of them, which models tend to score as the same.

Teachers that are blind to a negation label such pairs high, so the labels here do not come from them. They are laid on
the teachers' scale: a flip gets a middling label, as people rate it (the subject is the same, the statement is not),
and a paraphrase made of the same sentence gets a high one, so that wording alone does not decide.
"""

import numpy as np

from trans_encoder.data import PairSet
from trans_encoder.evaluation.flips import KINDS, make_flips

_FLIP, _PARAPHRASE = 0.4, 0.95
"""Where on the teachers' labels the two kinds of pairs stand: quantiles."""


def with_hard_pairs(labelled: PairSet, *, share: float, seed: int) -> PairSet:
    """Return labelled pairs with flips and paraphrases of their sentences added: up to `share` of the pairs each."""
    count = round(share * len(labelled))
    if not count or labelled.scores is None:
        return labelled
    texts = [*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist()]
    flips = make_flips(texts, limit=-(-count // len(KINDS)), seed=seed)
    if not flips:
        return labelled
    low, high = np.quantile(labelled.scores, (_FLIP, _PARAPHRASE))
    first = [case.text for case in flips] * 2
    second = [case.flip for case in flips] + [case.paraphrase for case in flips]
    scores = np.concatenate([labelled.scores, np.repeat([low, high], len(flips))])
    return labelled.without_scores().concat(PairSet.from_lists(first, second)).with_scores(scores)
