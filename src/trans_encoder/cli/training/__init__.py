"""Commands that make models."""

from trans_encoder.cli.training.bootstrap import bootstrap
from trans_encoder.cli.training.check import check
from trans_encoder.cli.training.ensemble import ensemble
from trans_encoder.cli.training.export import export
from trans_encoder.cli.training.learn import learn
from trans_encoder.cli.training.mine import mine
from trans_encoder.cli.training.train import train

COMMANDS = (train, check, bootstrap, mine, learn, ensemble, export)
