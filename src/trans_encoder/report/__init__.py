"""One self-contained page about a run: did it help, and how."""

from trans_encoder.report.measuring import evaluate_run
from trans_encoder.report.outcomes import ModelKey, save_evaluation
from trans_encoder.report.page import write_report

__all__ = ["ModelKey", "evaluate_run", "save_evaluation", "write_report"]
