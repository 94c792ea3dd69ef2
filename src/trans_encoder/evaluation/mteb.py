"""Bi-encoders and labelled pairs as the package `mteb` takes them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from trans_encoder.data import Scores, TestSet
from trans_encoder.encoders import BiEncoder, CrossEncoder, Scorer, load_encoder
from trans_encoder.errors import ConfigurationError, import_extra


class MtebModel:
    """A bi-encoder with the verbs that mteb calls; queries get the first prompt, documents the second."""

    def __init__(self, encoder: BiEncoder) -> None:
        """Wrap a loaded bi-encoder."""
        import_extra("mteb", extra="mteb")
        from mteb.models.model_meta import ModelMeta

        self.encoder = encoder
        facts = {
            "name": f"local/{Path(encoder.name).name}",
            "max_tokens": encoder.max_tokens,
            "embed_dim": encoder.model.get_embedding_dimension(),
        }
        self.mteb_model_meta = ModelMeta.create_empty(facts)

    def encode(self, inputs: Iterable[dict[str, Any]], *, prompt_type: Any = None, **_: Any) -> Scores:
        """Return one embedding for each text of mteb's batches."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self.encoder.encode(texts, side=1 if getattr(prompt_type, "value", None) == "document" else 0)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosines of all embeddings with all others."""
        return _normalised(embeddings1) @ _normalised(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosine of each embedding with its partner."""
        return (_normalised(embeddings1) * _normalised(embeddings2)).sum(-1)


def mteb_model(model: Scorer | str | Path) -> MtebModel:
    """Return a bi-encoder, or the folder or hub name of one, as a model for `mteb.evaluate`."""
    encoder = load_encoder(model) if isinstance(model, str | Path) else model
    if isinstance(encoder, CrossEncoder):
        raise ConfigurationError(
            f"mteb has no similarity task for cross-encoders such as {encoder.name}; "
            f"`evaluate` measures both kinds on the same pairs"
        )
    if not isinstance(encoder, BiEncoder):
        raise ConfigurationError(f"mteb takes one bi-encoder, and {encoder.name} is a {encoder.kind}")
    return MtebModel(encoder)


def mteb_task(test: TestSet, *, language: str = "eng-Latn") -> Any:
    """Return labelled pairs as a similarity task for `mteb.evaluate`, which then needs no network."""
    if test.metric != "spearman":
        raise ConfigurationError(f"{test.name} has two labels only, and mteb's similarity tasks want grades")
    import_extra("mteb", extra="mteb")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import PromptType

    pairs = test.pairs
    table = pa.table({"sentence1": pairs.sentence1, "sentence2": pairs.sentence2, "score": np.asarray(test.gold)})

    class LocalSts(AbsTaskSTS):  # type: ignore[misc]
        """A test set of this package."""

        metadata = TaskMetadata(
            name=test.name,
            dataset={"path": "local", "revision": test.pairs.hash},
            description="Labelled pairs of a local file.",
            type="STS",
            category="t2t",
            eval_langs=[language],
            main_score="cosine_spearman",
        )
        min_score, max_score = float(test.gold.min()), float(test.gold.max())
        input1_prompt_type, input2_prompt_type = PromptType.query, PromptType.document

        def load_data(self, **_: Any) -> None:
            """Take the pairs that are in memory."""
            self.dataset = DatasetDict({"test": Dataset(table)})
            self.data_loaded = True

    return LocalSts()


def _normalised(embeddings: Any) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.as_tensor(embeddings), dim=-1)
