"""Released models of the paper and its neighbours: the PLM each was tuned from, and its pooling."""

from pathlib import Path
from typing import NamedTuple

from trans_encoder.config import PoolingMode


class Known(NamedTuple):
    """What is known of a released checkpoint."""

    plm: str
    pooling: PoolingMode | None = None
    """Given only where the checkpoint itself does not say."""
    supervised: bool = False
    """Whether it was trained on labelled pairs."""


_BERT = {size: f"google-bert/bert-{size}-uncased" for size in ("base", "large")}
_ROBERTA = {size: f"FacebookAI/roberta-{size}" for size in ("base", "large")}

KNOWN: dict[str, Known] = {
    **{f"princeton-nlp/unsup-simcse-bert-{size}-uncased": Known(plm, "cls") for size, plm in _BERT.items()},
    **{f"princeton-nlp/unsup-simcse-roberta-{size}": Known(plm, "cls") for size, plm in _ROBERTA.items()},
    **{
        f"cambridgeltl/trans-encoder-{kind}-simcse-{family}-{size}": Known(plm, "cls")
        for kind in ("bi", "cross")
        for family, plms in (("bert", _BERT), ("roberta", _ROBERTA))
        for size, plm in plms.items()
    },
    "cambridgeltl/mirror-bert-base-uncased-sentence": Known(_BERT["base"], "mean"),
    "cambridgeltl/mirror-bert-base-uncased-sentence-drophead": Known(_BERT["base"], "mean"),
    "cambridgeltl/mirror-roberta-base-sentence": Known(_ROBERTA["base"], "cls"),
    "cambridgeltl/mirror-roberta-base-sentence-drophead": Known(_ROBERTA["base"], "cls"),
    "Contrastive-Tension/BERT-Distil-CT": Known("distilbert/distilbert-base-uncased", "mean"),
    "Contrastive-Tension/BERT-Base-CT": Known(_BERT["base"], "mean"),
    "Contrastive-Tension/BERT-Large-CT": Known(_BERT["large"], "mean"),
    "johngiorgi/declutr-small": Known("distilbert/distilroberta-base", "mean"),
    "johngiorgi/declutr-base": Known(_ROBERTA["base"], "mean"),
    "sentence-transformers/all-MiniLM-L6-v2": Known("nreimers/MiniLM-L6-H384-uncased", supervised=True),
    "sentence-transformers/all-MiniLM-L12-v2": Known("microsoft/MiniLM-L12-H384-uncased", supervised=True),
    "sentence-transformers/all-mpnet-base-v2": Known("microsoft/mpnet-base", supervised=True),
    "sentence-transformers/all-distilroberta-v1": Known("distilbert/distilroberta-base", supervised=True),
}
"""By hub name."""


def known_pooling(name: str) -> PoolingMode | None:
    """Return the pooling that a checkpoint was trained with, if it is known and the checkpoint itself does not say."""
    return KNOWN[name].pooling if name in KNOWN else None


def copy_of(folder: str) -> str | None:
    """Return the released checkpoint that a local folder is a copy of, going by the folder's own name alone."""
    own = Path(folder).name
    return next((name for name in KNOWN if name.rpartition("/")[2] == own), None) if Path(folder).is_dir() else None
