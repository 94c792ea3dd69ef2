"""Common directions are removed from embeddings by a module that any sentence-transformers can load."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.directions import without_common_directions
from trans_encoder.errors import DataError


def test_embeddings_lose_their_mean_and_their_widest_directions(bert, sentences):
    encoder = BiEncoder.load(bert, pooling="mean")
    before = encoder.encode(sentences).astype(np.float64)
    after = without_common_directions(encoder, sentences, count=2).encode(sentences).astype(np.float64)
    widest = np.linalg.svd(before - before.mean(axis=0), full_matrices=False)[2]
    assert np.abs(after.mean(axis=0)).max() < 1e-5
    assert np.abs(after @ widest[:2].T).max() < 1e-5
    np.testing.assert_allclose(after @ widest[2:].T, (before - before.mean(axis=0)) @ widest[2:].T, atol=1e-5)


def test_the_saved_model_gives_the_same_in_sentence_transformers(bert, sentences, tmp_path):
    cleared = without_common_directions(BiEncoder.load(bert, pooling="mean"), sentences, count=2)
    cleared.save(tmp_path / "model")
    loaded = SentenceTransformer(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.encode(sentences[:20]), cleared.encode(sentences[:20]), atol=1e-5)
    assert loaded.max_seq_length == cleared.max_tokens


def test_too_few_texts_are_refused(bert, sentences):
    encoder = BiEncoder.load(bert, pooling="mean")
    with pytest.raises(DataError, match=r"3 directions cannot be removed from embeddings of 3 texts.*set directions=0"):
        without_common_directions(encoder, sentences[:3], count=3)
