"""Data in: pairs of sentences, tasks with gold scores, and raw text."""

from trans_encoder.data.corpus import ID, TEXT, Corpus
from trans_encoder.data.documents import text_files
from trans_encoder.data.pairs import Distinct, PairSet, Scores, check_varied
from trans_encoder.data.tasks import TASKS, Task, TestSet, load_task
from trans_encoder.data.text import Text
from trans_encoder.data.wording import matched_words, shared_wording
from trans_encoder.data.words import joined, words_of
from trans_encoder.data.writers import write_pairs, writer_of
