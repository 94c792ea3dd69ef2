"""What the plain runner computes, sooner on a CPU. These are its doors, and the folder can be deleted."""

from trans_encoder.fast.last_layer import first_token_pass
from trans_encoder.fast.runner import FastRunner
