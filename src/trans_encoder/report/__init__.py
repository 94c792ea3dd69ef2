"""One self-contained page about a run: did it help, and how."""

from trans_encoder.report.outcomes import ModelKey, save_evaluation
from trans_encoder.report.page import write_report

__all__ = ["ModelKey", "save_evaluation", "write_report"]
