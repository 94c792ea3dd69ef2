"""Contrastive tuning of an encoder on the sentences of a text (section 2.1)."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import cast

import numpy as np
import pyarrow as pa

from trans_encoder.data import Text
from trans_encoder.distill.bootstrap.contrast import Contrast, dropped_heads, has_dropout
from trans_encoder.distill.bootstrap.plan import ContrastPlan
from trans_encoder.distill.bootstrap.similarities import SimilarityBatches
from trans_encoder.encoders import BiEncoder, Training, TrainingOptions, fit
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.tokens import Integers, PairTokens, tokenise
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.teachers import ModelRef

logger = logging.getLogger(__name__)


def tune(
    encoder: BiEncoder,
    text: Text,
    *,
    plan: ContrastPlan,
    options: TrainingOptions,
    teachers: Sequence[ModelRef] = (),
) -> Training:
    """Tune the encoder by the plan's objective and return it with its best (or last) weights.

    The objective similarities needs bi-encoders as teachers; the others have none.
    """
    if plan.objective == "similarities":
        return _match_similarities(encoder, text, plan=plan, options=options, teachers=teachers)
    positives = tokenised(encoder, text, find_positives(text, plan=plan, seed=options.seed), plan=plan)
    if plan.objective == "simcse" and not has_dropout(encoder):
        raise ConfigurationError(
            f"{encoder.name} has no dropout, so both views of a sentence would be the same; choose mirror or neighbours"
        )
    mirror = plan.objective == "mirror"
    with dropped_heads(encoder, probability=plan.drophead) if mirror else nullcontext():
        objective = Contrast(encoder, positives, plan=plan, seed=options.seed)
        return fit(encoder, objective, plan=plan, options=options)


def _match_similarities(
    encoder: BiEncoder, text: Text, *, plan: ContrastPlan, options: TrainingOptions, teachers: Sequence[ModelRef]
) -> Training:
    """Let the encoder learn its teachers' similarities of the sentences of each batch."""
    used = find_positives(text, plan=plan, seed=options.seed)[:, 0]
    sentences = text.sentences.take(pa.array(used))
    # One teacher after the other, so that one model at a time is in memory.
    embeddings = [cast(BiEncoder, teacher.load()).encode(sentences) for teacher in teachers]
    most = plan.given_tokens or encoder.token_limit
    set_dropout(encoder.model, 0.0)  # the targets are exact
    tokens = tokenise(encoder.model.tokenizer, sentences, max_tokens=most)
    return fit(encoder, SimilarityBatches(encoder, tokens, embeddings, plan=plan), plan=plan, options=options)


def find_positives(text: Text, *, plan: ContrastPlan, seed: int) -> Integers:
    """Return the places of the two sentences of each positive pair: a sentence and itself, or and the next one."""
    if plan.objective == "neighbours":
        first = np.flatnonzero(np.diff(text.document) == 0)
        pairs = np.stack([first, first + 1], axis=1)
    else:
        pairs = np.repeat(np.arange(len(text))[:, None], 2, axis=1)
    if len(pairs) < 2:
        more = "whole documents or choose simcse" if plan.objective == "neighbours" else "more text"
        raise DataError(
            f"{len(text):,} sentences give {len(pairs)} examples for {plan.objective}, 2 are needed; give {more}"
        )
    if len(pairs) > plan.max_sentences:
        logger.info("%d of %d sentences are used, chosen at random (max_sentences)", plan.max_sentences, len(pairs))
        pairs = pairs[np.sort(np.random.default_rng(seed).choice(len(pairs), plan.max_sentences, replace=False))]
    return pairs


def tokenised(encoder: BiEncoder, text: Text, pairs: Integers, *, plan: ContrastPlan) -> PairTokens:
    """Tokenise the sentences that are in these pairs."""
    used, place = np.unique(pairs, return_inverse=True)
    most = plan.given_tokens or encoder.token_limit
    tokens = tokenise(encoder.model.tokenizer, text.sentences.take(pa.array(used)), max_tokens=most)
    return PairTokens(tokens, place.reshape(-1, 2).astype(np.int32), np.zeros(len(tokens), dtype=np.int8))
