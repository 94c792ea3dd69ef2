"""Commands that answer which texts mean the same."""

from trans_encoder.cli.answers.audit import audit
from trans_encoder.cli.answers.duplicates import duplicates
from trans_encoder.cli.answers.index import index, search
from trans_encoder.cli.answers.probe import probe
from trans_encoder.cli.answers.serve import serve

COMMANDS = (duplicates, index, search, audit, serve, probe)
