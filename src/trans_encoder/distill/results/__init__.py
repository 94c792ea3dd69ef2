"""The end of a run: what was chosen, whether it helped, the models' cards, and the team as one scorer."""

from trans_encoder.distill.results.cards import write_learnt_card, write_tuned_card
from trans_encoder.distill.results.conclusion import conclude, idle
from trans_encoder.distill.results.notes import harm_notes
from trans_encoder.distill.results.result import Result, ensemble_run

__all__ = [
    "Result",
    "conclude",
    "ensemble_run",
    "harm_notes",
    "idle",
    "write_learnt_card",
    "write_tuned_card",
]
