"""What the plain runner computes, sooner on a CPU. `FastRunner` is the only door, and the folder can be deleted."""

from trans_encoder.fast.runner import FastRunner

__all__ = ["FastRunner"]
