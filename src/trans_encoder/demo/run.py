"""The whole road: text, first bi-encoder, mined pairs, two encoders that taught each other, and what they gained."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trans_encoder.data.documents import text_files
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.text import Text
from trans_encoder.demo.gold import Figures, Gold
from trans_encoder.demo.reference import write_reference
from trans_encoder.demo.start import embedded_start
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.distill.distil import distil
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.known import KNOWN
from trans_encoder.encoders.loading import is_sentence_encoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import read_json, write_json
from trans_encoder.participants import MemberConfig, PoolingMode
from trans_encoder.report import ModelKey, save_evaluation, write_report
from trans_encoder.runs.layout import Layout


@dataclass(frozen=True)
class Recipe:
    """How much the demo does; the default takes a few minutes on two cores."""

    pairs: int = 6000
    """Pairs mined from the text."""
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 4})
    """Settings of the contrastive tuning that differ from its preset."""
    distillation: Mapping[str, Any] = field(default_factory=lambda: {"cycles": 1})
    """Settings of the distillation that differ from its preset."""


@dataclass(frozen=True)
class Demo:
    """What the demo made and measured."""

    sentences: int
    """Distinct sentences of the text."""
    pairs: int
    """Mined pairs that the encoders learnt from."""
    figures: Mapping[str, Figures]
    """By method, in the order of the road."""
    run: Path
    """The run folder; its `best` holds both encoders."""
    report: Path
    text: Path
    """The folder of the text."""
    start: str
    """What the road began with."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "sentences": self.sentences,
            "pairs": self.pairs,
            "figures": {name: figures.to_dict() for name, figures in self.figures.items()},
            "run": str(self.run),
            "report": str(self.report),
            "text": str(self.text),
            "start": self.start,
        }


def run_demo(out: Path, *, model: str | None = None, recipe: Recipe | None = None) -> Demo:
    """Go the whole road in the folder `out`, from a model (a PLM or a bi-encoder) or the embedded start.

    The gold only measures; it chooses nothing. The same call continues what was stopped.
    """
    recipe = recipe or Recipe()
    plm = model or str(embedded_start())
    _claim(out, plm)
    folder = write_reference(out / "text")
    gold = Gold.load(read_documents(folder))
    figures = {"TF-IDF": gold.tfidf()}

    is_bare = plm not in KNOWN and not is_sentence_encoder(plm)
    pooling: PoolingMode | None = "mean" if is_bare else None
    start = BiEncoder.load(plm, pooling=pooling)
    figures["start"] = gold.bi(start)

    text = Text.read(folder, duplicates="near")
    member = MemberConfig(bi=plm, name="python")
    if is_bare:
        start = bootstrap(text, plm, out=out / "tuned", pooling=pooling, **recipe.tuning)
        member = MemberConfig(bi=str(Layout(out / "tuned").trained("bi")), plm=plm, name="python")
        figures["after contrastive tuning"] = gold.bi(start)

    result = distil(text, member, out=out / "run", pairs=recipe.pairs, **recipe.distillation)
    figures["bi-encoder"] = gold.bi(result.bi)
    figures["cross-encoder"] = gold.cross(result.cross, retriever=result.bi)

    scores = {
        ModelKey("start", "python", "bi"): start.score(gold.pairs),
        ModelKey("best", "python", "bi"): result.bi.score(gold.pairs),
        ModelKey("best", "python", "cross"): result.cross.score(gold.pairs),
    }
    save_evaluation(result.folder, "graded pairs about Python", metric="spearman", gold=gold.grades, scores=scores)
    demo = Demo(
        sentences=len(text),
        pairs=len(PairSet.open(Layout(result.folder).pairs())),
        figures=figures,
        run=result.folder,
        report=write_report([result.folder]),
        text=folder,
        start=plm,
    )
    write_json(out / "demo.json", demo.to_dict())
    return demo


def _claim(out: Path, start: str) -> None:
    """Note in the folder what the demo starts from; refuse a folder whose demo started from another model."""
    note = out / "begun-with.json"
    if note.exists() and (before := read_json(note)["start"]) != start:
        raise ConfigurationError(
            f"{out} holds a demo of {before}, not of {start}: remove {out} or give another folder (OUT=..., --out)"
        )
    write_json(note, {"start": start})


def read_documents(folder: Path) -> dict[str, list[str]]:
    """Return the sentences of each text file of a folder, by the file's name."""
    text = Text.read(folder, duplicates="keep")
    names = [file.stem for file in text_files(folder)]
    documents: dict[str, list[str]] = {name: [] for name in names}
    for sentence, number in zip(text.sentences.to_pylist(), text.document, strict=True):
        documents[names[number]].append(sentence)
    return documents
