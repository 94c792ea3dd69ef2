"""Other jobs that are killed: each goes on from where it was, and ends with the same bytes."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conftest import contents, graded
from faults.laboratory import PLAN, Laboratory, Problem, forked, stages
from trans_encoder.answers.audit import Audit
from trans_encoder.answers.duplicates import Duplicates, find_duplicates
from trans_encoder.answers.index import Index, build_index
from trans_encoder.data import Corpus, Text
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.errors import DataError
from trans_encoder.exporting import export
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.ensemble import ensemble_run
from trans_encoder.pipelines.learn import learn

_ANSWERS = 6
_NAME_THE_FOLDER = {"start.json", "result.json"}
"""Records of a run from text, whose first bi-encoder lies in the run folder."""


@dataclass(frozen=True)
class Job:
    """A job in a folder, and what the undisturbed one left there."""

    name: str
    run: Callable[[Path], object]
    expected: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0

    def done_once(self, folder: Path) -> "Job":
        """Do it undisturbed."""
        begun = time.monotonic()
        self.run(folder)
        return Job(self.name, self.run, _content(folder), time.monotonic() - begun)

    def continued(self, folder: Path) -> Problem:
        """Give the same command again, in a new process; it must end, and as the undisturbed job did."""
        ended = forked(lambda: self.run(folder))
        return self.difference(folder) if ended.code == 0 else f"does not continue: {ended}"

    def difference(self, folder: Path) -> Problem:
        """Say which files differ."""
        found = _content(folder)
        different = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
        return f"different: {', '.join(different[:5])}" if different else None


def other_jobs(lab: Laboratory, root: Path) -> list[Job]:
    """Return the jobs that are not runs on pairs; export and ensemble replace what an earlier call made."""
    model = str(lab.reference / "best" / "bert" / "bi")
    labelled = graded(24, seed=1)
    texts = sorted({*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist()})
    found = find_duplicates(texts, models=model)

    def index(folder: Path) -> None:
        build_index(Corpus.from_texts(texts[:20], ids=list(map(str, range(20)))), folder, models=[model])
        build_index(Corpus.from_texts(texts, ids=list(map(str, range(len(texts))))), folder)
        _ = Index.open(folder).probability

    def duplicates(folder: Path) -> None:
        find_duplicates(texts, models=model).save(folder)

    def audit(folder: Path) -> None:
        try:
            Duplicates.open(folder)
        except DataError:  # not there, or not whole
            found.save(folder)
        begun, confirmed = Audit.open(folder, pairs=_ANSWERS), folder.with_suffix(".confirmed")
        known = confirmed.read_text().splitlines() if confirmed.exists() else []
        assert {*known} <= {str(number) for number in begun.answers}, "an answer that was confirmed is lost"
        for pair in begun.pairs[len(begun.answers) :]:
            begun.answer(pair.number, "same" if pair.probability > 0.5 else "not the same")
            with confirmed.open("a") as file:  # beside the folder: what people saw on their screens
                file.write(f"{pair.number}\n")
        begun.save_promised(begun.promise(0.5))

    def learning(folder: Path) -> None:
        learn(labelled, model, kind="bi", out=folder, device="cpu", **{**PLAN, "checkpoint_steps": 1})

    text, tuning = Text.from_sentences(texts), {"batch_size": 8, "max_sentences": 24, "checkpoint_steps": 1}

    def bootstrapping(folder: Path) -> None:
        bootstrap(text, lab.models[0], out=folder, device="cpu", **tuning)

    def from_text(folder: Path) -> None:
        settings = {"device": "cpu", "cycles": 2, "patience": 0, "formulation": "bi", "bi": PLAN, "cross": PLAN}
        distil(text, lab.models[0], out=folder, pairs=40, remine=True, **settings)

    def exporting(folder: Path) -> None:
        for encoder in ("cross", "bi"):
            export(lab.reference / "best" / "bert" / encoder, folder)

    def ensembling(folder: Path) -> None:
        for _ in range(2):
            ensemble_run(lab.reference, out=folder)

    jobs = {
        "index": index,
        "duplicates": duplicates,
        "audit": audit,
        "learn": learning,
        "bootstrap": bootstrapping,
        "text": from_text,
        "export": exporting,
        "ensemble": ensembling,
    }
    return [Job(name, work).done_once(root / f"undisturbed-{name}") for name, work in jobs.items()]


def _content(folder: Path) -> dict[str, bytes]:
    """Return what must be equal: all but locks, times, and the manifest's seconds."""
    found = contents(folder)
    if answers := found.get("audit.jsonl"):
        lines = [json.loads(line) for line in answers.splitlines()]
        found["audit.jsonl"] = json.dumps([(line["number"], line["answer"]) for line in lines]).encode()
    if (folder / "manifest.json").exists():
        finished = stages(folder)
        for name in _NAME_THE_FOLDER & finished.keys():
            del finished[name]["files"]  # checksums of what is compared without the folder's name
        found["manifest.json"] = json.dumps(finished, sort_keys=True).encode()
    return {
        name: content.replace(str(folder).encode(), b"RUN") if name in _NAME_THE_FOLDER else content
        for name, content in found.items()
    }
