"""Commands that score, evaluate and show."""

from trans_encoder.cli.measuring.demo import demo
from trans_encoder.cli.measuring.evaluate import evaluate
from trans_encoder.cli.measuring.experiment import experiment
from trans_encoder.cli.measuring.report import report
from trans_encoder.cli.measuring.score import label, score

COMMANDS = (demo, score, label, evaluate, report, experiment)
