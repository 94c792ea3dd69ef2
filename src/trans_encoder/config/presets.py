"""The presets: the paper's four settings and one for small encoders on a CPU, as plain tables."""

from typing import Any, Literal

Preset = Literal["paper-sts", "paper-sts-large", "paper-binary", "paper-binary-large", "small"]


PAPER_METHOD: dict[str, Any] = {
    "anchor": 0.0,
    "patience": 0,
    "scale": "none",
    "lexical": False,
    "directions": 0,
    "merge": 1.0,
    "in_batch": 0.0,
    "both_orders_labels": False,
    "passes": 0,
    "calibrate": False,
    "first_share": 1.0,
}
"""What the paper does where this package does more by default."""


def _paper(*, cycles: int, cross_epochs: int, bi_epochs: int, bi_batch_size: int) -> dict[str, Any]:
    """Section 3 and its appendix: what the presets of the paper share, and where they differ."""
    return {
        "cycles": cycles,
        **PAPER_METHOD,
        "cross": {
            "loss": "bce",
            "negatives": "raw",
            "batch_size": 32,
            "epochs": cross_epochs,
            "learning_rate": 2e-5,
            "warmup_ratio": 0.1,
            "max_tokens": 64,
        },
        "bi": {
            "loss": "mse",
            "negatives": "raw",
            "batch_size": bi_batch_size,
            "epochs": bi_epochs,
            "learning_rate": 5e-5,
            "max_tokens": 32,
        },
    }


PRESETS: dict[str, dict[str, Any]] = {
    "paper-sts": _paper(cycles=3, cross_epochs=1, bi_epochs=10, bi_batch_size=128),
    "paper-sts-large": _paper(cycles=3, cross_epochs=1, bi_epochs=10, bi_batch_size=64),
    "paper-binary": _paper(cycles=5, cross_epochs=3, bi_epochs=15, bi_batch_size=128),
    "paper-binary-large": _paper(cycles=5, cross_epochs=3, bi_epochs=15, bi_batch_size=64),
    # Small encoders want higher learning rates than the paper's base models and, with little to overfit with, no
    # dropout: see docs/log.md.
    "small": {
        "cycles": 2,
        "cross": {
            "loss": "bce",
            "batch_size": 32,
            "epochs": 1,
            "learning_rate": 5e-5,
            "warmup_ratio": 0.1,
            "dropout": 0.0,
        },
        "bi": {
            "loss": "mse",
            "batch_size": 128,
            "epochs": 3,
            "learning_rate": 1e-4,
            "dropout": 0.0,
        },
    },
}
"""Settings by the preset's name; anything not in a preset has the default of its field."""
