"""The paper's two measures, x100: Spearman's rho for graded pairs, AUC for binary ones."""

import numpy as np
import numpy.typing as npt

from trans_encoder.errors import DataError


def spearman(scores: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation of `scores` with `gold`, x100."""
    from scipy.stats import spearmanr

    predicted, expected = _checked(scores, gold)
    for name, values, remedy in (
        (
            "scores",
            predicted,
            "the encoder has collapsed or every pair is the same text; check the model and the pairs",
        ),
        ("gold", expected, "give a labelled file whose scores differ"),
    ):
        if np.ptp(values) == 0:
            raise DataError(
                f"all {len(values)} {name} are {values[0]:g}, a rank correlation needs at least two values; {remedy}"
            )
    return float(spearmanr(predicted, expected).statistic) * 100


def auc(scores: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return the area under the ROC curve of `scores` for the two values of `gold`, the larger one positive, x100."""
    from sklearn.metrics import roc_auc_score

    predicted, expected = _checked(scores, gold)
    classes = np.unique(expected)
    if len(classes) != 2:
        remedy = "give labels of both classes" if len(classes) == 1 else "use the metric spearman for graded scores"
        raise DataError(f"AUC needs gold labels of exactly two values, got {_listed(classes)}; {remedy}")
    return float(roc_auc_score(expected == classes[1], predicted)) * 100


def _checked(scores: npt.ArrayLike, gold: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    predicted, expected = np.asarray(scores, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    if predicted.shape != expected.shape or predicted.ndim != 1:
        raise DataError(f"expected one score for each gold label, got shapes {predicted.shape} and {expected.shape}")
    if len(predicted) < 2:
        raise DataError(f"expected at least two labelled pairs, got {len(predicted)}; give a larger labelled file")
    for name, values in (("scores", predicted), ("gold labels", expected)):
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(
                f"{len(bad)} of {len(values)} {name} are not finite numbers, the first at pair {bad[0] + 1}; "
                "check the model and the labelled file"
            )
    return predicted, expected


def _listed(values: npt.NDArray[np.float64]) -> str:
    return ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
