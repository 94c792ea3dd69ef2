"""From what a cell asks for to its number: train the models, unless they exist, and measure them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from trans_encoder.config import MemberConfig
from trans_encoder.data import Scores
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.encoders.losses import logit_gradients
from trans_encoder.evaluation.ensembles import mean_scores
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.paper.models import StudyModels
from trans_encoder.paper.predictions import Predictions
from trans_encoder.paper.study import Question
from trans_encoder.runs import Run
from trans_encoder.teachers import ModelRef


@dataclass(frozen=True)
class Measurer:
    """Measures what the cells of a table ask for, of the members of a team."""

    models: StudyModels
    predictions: Predictions
    team: tuple[MemberConfig, ...]

    def answer(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> float | None:
        """Return the number that a cell asks for about these members; None if there is none."""
        if question.measure is None:
            return None
        if question.measure == "test":
            return self._test(question, members, seed=seed)
        folder = self.models.run(question, members, seed=seed).folder
        match question.measure:
            case "dev":
                return self._dev(folder, question, name=str(members[0].name))
            case "fit":
                labels, scores = _first_cross_encoders(folder)
                return spearman(scores, labels)
            case "gradient":
                return self._gradient(folder, fifth=question.fifth)
            case "hours":
                return sum(stage.seconds for stage in folder.stages.values()) / 3600

    def _test(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> float | None:
        """Return the score on one test set, or the mean over all of the task's; several members are an ensemble."""
        found = [self._model(question, member, seed=seed) for member in members]
        present = [model for model in found if model is not None]
        if len(present) < len(members):
            return None
        scores = self.predictions.evaluate(present, self.models.task(question.tested or question.task).tests)
        return scores[question.test_set] if question.test_set else fmean(scores.values())

    def _model(self, question: Question, member: MemberConfig, *, seed: int) -> ModelRef | None:
        match question.way:
            case "start":
                return self.models.start(question, member) if question.kind == "bi" else None
            case "contrastive":
                return self.models.contrast(question, member, seed=seed) if question.kind == "bi" else None
            case "self" | "mutual":
                learners = self.team if question.way == "mutual" else [member]
                return self.models.run(question, learners, seed=seed).best(str(member.name), question.kind)

    def _dev(self, folder: Run, question: Question, *, name: str) -> float | None:
        """Return a member's best dev score of a cycle, or its start's."""
        if question.cycle == 0:
            return folder.start_scores.get(name) if question.kind == "bi" else None
        wanted = (question.cycle, name, question.kind)
        judged = [each.score for each in folder.history if (each.cycle, each.member, each.kind) == wanted]
        return max(judged, default=None)

    def _gradient(self, folder: Run, *, fifth: int | None) -> float:
        """Return the mean absolute gradient, x100, that the loss leaves on the logits of the first cross-encoders."""
        labels, scores = _first_cross_encoders(folder)
        left = np.abs(logit_gradients(folder.config["cross"]["loss"], scores, labels))
        by_label = np.array_split(left[np.argsort(labels, kind="stable")], 5)
        return 100 * float((left if fifth is None else by_label[fifth]).mean())


def _first_cross_encoders(folder: Run) -> tuple[Scores, Scores]:
    """Return the labels that the first cross-encoders learnt from, and how they then scored the same pairs."""
    labels, learnt = (PseudoLabels.open(each.path) for each in folder.layout.label_files()[:2])
    # Not `learnt.scores`: anchored, they would be the labels themselves in part.
    return labels.scores, mean_scores(list(learnt.by_teacher.values()))
