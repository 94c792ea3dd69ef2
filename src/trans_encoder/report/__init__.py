"""Self-contained pages: about runs (did it help, and how), and about duplicates."""

from trans_encoder.report.answers import write_duplicates
from trans_encoder.report.outcomes import ModelKey, save_evaluation
from trans_encoder.report.page import write_report
