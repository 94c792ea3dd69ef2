"""Bi-encoders and cross-encoders: load, score, train, save."""

from trans_encoder.config import Kind
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.calibrating import calibrate_to
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.encoders.encoder import Encoder, RankSharded, Scorer, load_encoder
from trans_encoder.encoders.in_batch import InBatch, unit_vectors
from trans_encoder.encoders.known import KNOWN, known_pooling
from trans_encoder.encoders.lengths import Cuts, count_cuts, count_text_cuts, covering, fitting_length
from trans_encoder.encoders.loading import (
    Precision,
    best_device,
    check_length,
    check_precision,
    checked_name,
    find_kind,
    fingerprint,
    is_sentence_encoder,
)
from trans_encoder.encoders.merging import merge_into
from trans_encoder.encoders.prompts import Prompts
from trans_encoder.encoders.training import StudentLoss, Training, TrainingOptions, fit, train
