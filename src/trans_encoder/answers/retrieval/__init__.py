"""Texts with their vectors, and their neighbours by vectors and by words."""

from trans_encoder.answers.retrieval.candidates import Candidates, crowd_of, find_candidates, pair_scores
from trans_encoder.answers.retrieval.dense import DenseIndex
from trans_encoder.answers.retrieval.embedded import Embedded, Positions, distinct, joined
from trans_encoder.answers.retrieval.embedder import QUERY, EachPrompts, Embedder, Sides, load_embedder, sides_of
from trans_encoder.answers.retrieval.lexical import LexicalIndex
