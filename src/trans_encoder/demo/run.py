"""The whole way: text, answers at once, mined pairs, two encoders that taught each other, and what they gained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from trans_encoder.answers.index import build_index
from trans_encoder.config import MemberConfig
from trans_encoder.data import Corpus, PairSet, Text, text_files
from trans_encoder.demo.gold import Figures, Gold
from trans_encoder.demo.reference import write_reference
from trans_encoder.demo.start import claim_start
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.encoders import KNOWN, BiEncoder, CrossEncoder, is_sentence_encoder
from trans_encoder.files import write_json
from trans_encoder.pipelines.distil import distil
from trans_encoder.report import ModelKey, save_evaluation, write_report
from trans_encoder.runs import Layout

QUESTION = "What happens when I divide by zero?"
"""What the demo looks up first; not one of the graded questions."""
_SHOWN = 3


@dataclass(frozen=True)
class Recipe:
    """How much the demo does; the default takes some minutes on two cores."""

    pairs: int = 2000
    """Pairs mined from the text."""
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 4})
    """Settings of the contrastive tuning that differ from its preset; for a model that is not a bi-encoder yet."""
    distillation: Mapping[str, Any] = field(default_factory=lambda: {"cycles": 1, "selection": "last"})
    """Settings of the distillation that differ from its preset. One teacher cannot judge without labels, so what was
    trained is kept, and the gold shows what it is worth."""


@dataclass(frozen=True)
class Answers:
    """What the start can answer before any training."""

    question: str
    found: list[str]
    """The sentences nearest to the question, best first, each with its topic."""
    sentences: int


@dataclass(frozen=True)
class Demo:
    """What the demo made and measured."""

    sentences: int
    """Distinct sentences of the text."""
    pairs: int
    """Mined pairs that the encoders learnt from."""
    answers: Answers
    figures: Mapping[str, Figures]
    """By method, in the order of the work."""
    run: Path
    """The run folder; its `best` holds both encoders."""
    report: Path
    text: Path
    """The folder of the text."""
    start: str
    """What the run began with."""
    learners: tuple[str, ...]
    """The options of `trans-encoder train` for such a run on other text."""
    summary: str
    """The run's own verdict, made without labels."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return dict(to_jsonable_python(self))


def run_demo(
    out: Path,
    *,
    model: str | None = None,
    recipe: Recipe | None = None,
    answered: Callable[[Answers], None] = lambda _: None,
) -> Demo:
    """Go the whole way in the folder `out`, from a model (a PLM or a bi-encoder) or the encoders that are fetched.

    `answered` is called as soon as the start has answered, before any training. The gold only measures; it chooses
    nothing. The same call continues what was stopped.
    """
    recipe = recipe or Recipe()
    given = claim_start(out, model)
    folder = write_reference(out / "text")
    documents, text = read_documents(folder), Text.read(folder, duplicates="near")
    plm = str(given.bi) if given else str(model)
    is_bare = plm not in KNOWN and not is_sentence_encoder(plm)
    member = MemberConfig(bi=plm, plm=str(given.reranker) if given else None, name="python")
    if is_bare:
        tuned = bootstrap(text, plm, out=out / "tuned", pooling="mean", **recipe.tuning)
        member = MemberConfig(bi=str(Layout(out / "tuned").trained("bi")), plm=plm, name="python")
    answers = first_answers(documents, member.bi, out=out / "index", reranker=given.reranker if given else None)
    answered(answers)

    gold = Gold.load(documents)
    figures = {"TF-IDF": gold.tfidf()}
    start = BiEncoder.load(plm, pooling="mean" if is_bare else None)
    figures["all-MiniLM-L6-v2" if given else "start"] = gold.bi(start)
    if given:
        figures["e5-small-v2"] = gold.bi(BiEncoder.load(given.teacher))
        figures["ms-marco-MiniLM-L-12-v2"] = gold.cross(CrossEncoder.load(given.reranker), retriever=start)
    if is_bare:
        figures["after contrastive tuning"] = gold.bi(tuned)
    teachers = [str(given.teacher)] if given else []
    result = distil(text, member, teachers=teachers, out=out / "run", pairs=recipe.pairs, **recipe.distillation)
    figures["our bi-encoder"] = gold.bi(result.bi)
    figures["our cross-encoder"] = gold.cross(result.cross, retriever=result.bi)
    scores = {
        ModelKey("start", "python", "bi"): BiEncoder.load(member.bi).score(gold.pairs),
        ModelKey("best", "python", "bi"): result.bi.score(gold.pairs),
        ModelKey("best", "python", "cross"): result.cross.score(gold.pairs),
    }
    save_evaluation(result.folder, "graded pairs about Python", metric="spearman", gold=gold.grades, scores=scores)
    demo = Demo(
        sentences=len(text),
        pairs=len(PairSet.open(Layout(result.folder).pairs())),
        answers=answers,
        figures=figures,
        run=result.folder,
        report=write_report([result.folder]),
        text=folder,
        start=plm,
        learners=(
            *("--model", f"{plm}={member.plm}" if given else plm),
            *(f"--teacher={each}" for each in teachers),
            *(f"--set={name}={value}" for name, value in recipe.distillation.items() if isinstance(value, int | str)),
        ),
        summary=result.summary,
    )
    write_json(out / "demo.json", demo)
    return demo


def first_answers(documents: Mapping[str, list[str]], model: str, *, out: Path, reranker: Path | None) -> Answers:
    """Search the text with a bi-encoder, and a re-ranker if there is one, as they come."""
    owners = {sentence: topic for topic in sorted(documents) for sentence in documents[topic]}
    corpus = Corpus.from_texts(list(owners), columns={"topic": list(owners.values())})
    cross = None if reranker is None else CrossEncoder.load(reranker)
    hits = build_index(corpus, out, models=[model]).search(QUESTION, top=_SHOWN, cross=cross)
    return Answers(QUESTION, [f"{hit.text} ({hit.columns['topic']})" for hit in hits], sentences=len(owners))


def read_documents(folder: Path) -> dict[str, list[str]]:
    """Return the sentences of each text file of a folder, by the file's name."""
    text = Text.read(folder, duplicates="keep")
    names = [file.stem for file in text_files(folder)]
    documents: dict[str, list[str]] = {name: [] for name in names}
    for sentence, number in zip(text.sentences.to_pylist(), text.document, strict=True):
        documents[names[number]].append(sentence)
    return documents
