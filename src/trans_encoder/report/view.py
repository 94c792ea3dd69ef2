"""Everything that the page shows about one run."""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

import trans_encoder.report.labels as labels
from trans_encoder.encoders.losses import logit_gradients
from trans_encoder.progress import duration
from trans_encoder.report.charts import RidgeChart, Scatter, ScoreChart, kept_place, ridge_chart, scatter, score_chart
from trans_encoder.report.outcomes import Outcome, read_evaluation
from trans_encoder.report.verdict import Comparison, Headline, compare, overall
from trans_encoder.report.wording import number
from trans_encoder.runs import Chosen, Run, ValidatedLine

_ANSWERS = {True: "yes", False: "no", None: "not known"}
_SCATTER_POINTS = 900
_FLAT = 0.01  # labels with a smaller standard deviation are worth a warning


@dataclass(frozen=True)
class Stage:
    """A finished stage: how long it took, and its share of the longest."""

    name: str
    seconds: float
    share: float

    @property
    def kind(self) -> str:
        """The kind of encoder at work, if it is known."""
        return next((kind for kind in ("cross", "bi") if kind in re.split(r"[/.-]", self.name)), "start")


@dataclass(frozen=True)
class RunView:
    """One run as the page shows it; what a run lacks is empty."""

    folder: Run

    @property
    def name(self) -> str:
        """The run folder's name."""
        return self.folder.name

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Before and after on every test set."""
        return compare(self.outcomes)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The scores on each test set."""
        return [read_evaluation(path) for path in self.folder.layout.evaluations()]

    @cached_property
    def label_files(self) -> list[labels.LabelFile]:
        """The label files, in the order in which they were made."""
        return [labels.LabelFile(path, cycle, kind) for cycle, kind, path in self.folder.layout.label_files()]

    @property
    def is_label_free(self) -> bool:
        """Whether checkpoints were validated without labels."""
        judge = self.folder.origin.get("judge")
        return isinstance(judge, str) and judge.startswith("label-free ")

    @cached_property
    def headline(self) -> Headline:
        """Whether it helped: by the test sets, else by what chose the models."""
        if self.comparisons:
            return self.comparisons[0].headline
        result = self.folder.result
        if result is None:
            return Headline(0, "Not finished.", "This run has not chosen its models yet.")
        helped = result.helped
        if set(helped.values()) == {None}:
            return Headline(0, "Not known.", result.summary)
        answer = overall({kind: _ANSWERS[better] for kind, better in helped.items()})
        where = "judged without labels" if self.is_label_free else "on the dev set"
        return Headline(
            {True: 1, None: 0, False: -1}[helped["bi"]], f"{answer}, {where}.", f"{result.summary} {self._caution}"
        )

    @property
    def _caution(self) -> str:
        if self.is_label_free:
            return "That is an estimate, and it also chose the models; only labelled pairs (--test) can tell for sure."
        return "The dev set also chose the models; only a test set can say how large the gain is."

    @property
    def score_name(self) -> str:
        """What the score of a checkpoint is called."""
        return "label-free score" if self.is_label_free else "dev score"

    @cached_property
    def notes(self) -> list[str]:
        """What the run wants its reader to know, and labels that hardly differ."""
        flat_labels = [
            f"{one.labels.name}: the labels by {one.teacher} hardly differ (standard deviation {one.deviation:.4f}), "
            "so there is little to learn from them; that teacher may have learnt nothing"
            for one in self._distributions
            if one.deviation < _FLAT
        ]
        result = self.folder.result
        return [*(result.notes if result else ()), *flat_labels]

    @property
    def chosen(self) -> list[Chosen]:
        """The chosen models: folder, cycle, step and score of each."""
        members = self.folder.result.members.values() if self.folder.result else ()
        return [each for member in members for each in (member.bi, member.cross) if each]

    @property
    def flips(self) -> str:
        """What the flip test is, and how the starts did."""
        members = self.folder.result.members if self.folder.result else {}
        starts = {name: one.start_flips for name, one in members.items() if one.start_flips is not None}
        if not starts:
            return ""
        listed = ", ".join(f"{name} {number(value)} %" for name, value in starts.items())
        return (
            "Flips told: how often a model scores a paraphrase of a text above one that a negation, a name, a number, "
            f"a unit or swapped roles made different, in hand-written cases; chance is 50 %. At the start: {listed}."
        )

    @cached_property
    def facts(self) -> list[str]:
        """What kind of run it was, in a few words."""
        config = self.folder.config
        members = [member.get("name") or member.get("bi") for member in config.get("members", [])]
        facts = ["self-distillation" if len(members) == 1 else f"mutual distillation, {len(members)} members"]
        facts += [str(member) for member in members]
        if self.label_files:
            facts.append(f"{self.label_files[0].rows:,} pairs")
        if "cycles" in config:
            asked = config["cycles"]
            run = self.folder.result.cycles if self.folder.result else asked
            facts.append((f"{run} of " if run != asked else "") + ("1 cycle" if asked == 1 else f"{asked} cycles"))
        facts += [f"{word}{config[key]}" for key, word in (("strategy", ""), ("preset", "preset ")) if key in config]
        return facts + ([duration(self.seconds)] if self.stages else [])

    @cached_property
    def score_charts(self) -> list[tuple[str, ScoreChart]]:
        """The judged checkpoints of each member."""
        by_member: dict[str, list[list[ValidatedLine]]] = {}
        for training in self._trainings:
            by_member.setdefault(training[0].member, []).append(training)
        starts, keep_last = self.folder.start_scores, self.is_label_free
        return [
            (member, score_chart(trainings, start=starts.get(member), keep_last=keep_last))
            for member, trainings in by_member.items()
        ]

    @cached_property
    def kept_checkpoints(self) -> list[ValidatedLine]:
        """The checkpoint of each training that was kept: the next teacher."""
        return [each[kept_place(each, keep_last=self.is_label_free)] for each in self._trainings]

    @cached_property
    def _trainings(self) -> list[list[ValidatedLine]]:
        """The judged checkpoints of each training, in the order of time."""
        trainings: dict[tuple[str, int, str], list[ValidatedLine]] = {}
        for one in self.folder.history:
            trainings.setdefault((one.member, one.cycle, one.kind), []).append(one)
        return list(trainings.values())

    @cached_property
    def ridges(self) -> list[tuple[str, RidgeChart]]:
        """How each teacher's labels are spread."""
        low, high = self._score_range
        by_teacher = groupby(sorted(self._distributions, key=lambda one: one.teacher), key=lambda one: one.teacher)
        return [(teacher, ridge_chart(list(group), low=low, high=high)) for teacher, group in by_teacher]

    @cached_property
    def scatters(self) -> list[Scatter]:
        """Each student's scores against the labels that it learnt from."""
        charts = []
        for lesson in labels.lessons(self.label_files):
            label, score = lesson.teacher.column("score"), lesson.student.opinion()
            rows = labels.sample_rows(len(label), size=_SCATTER_POINTS)
            points = list(zip(label[rows].tolist(), score[rows].tolist(), strict=True))
            axes = (f"label by {lesson.teacher.kind}", f"score of the {lesson.student.kind} it taught")
            charts.append(scatter(points, title=str(lesson), axes=axes, rho=labels.correlation(label, score)))
        return charts

    @cached_property
    def gradients(self) -> list[Scatter]:
        """What each cross-encoder's loss still asks of its logits after training, by label (the paper's appendix)."""
        loss, charts = self.folder.config.get("cross", {}).get("loss", "bce"), []
        for teacher, student in ((each.teacher, each.student) for each in labels.lessons(self.label_files)):
            if student.kind == "cross":
                rows = labels.sample_rows(teacher.rows, size=_SCATTER_POINTS)
                label, score = teacher.column("score")[rows], student.opinion()[rows]
                left = np.abs(logit_gradients(loss, score, label))
                charts.append(
                    scatter(
                        list(zip(label.tolist(), left.tolist(), strict=True)),
                        title=f"cycle {teacher.cycle}: gradient that {loss.upper()} leaves",
                        axes=(f"label by {teacher.kind}", "absolute gradient of the logit"),
                        rho=labels.correlation(label, left),
                        comparable=False,
                    )
                )
        return charts

    @cached_property
    def agreements(self) -> list[tuple[str, list[labels.Agreement]]]:
        """How far bi and cross agree, and the members."""
        found = {
            "between bi and cross": labels.kind_agreements(self.label_files),
            "between members": labels.member_agreements(self.label_files),
        }
        return [(title, rows) for title, rows in found.items() if rows]

    @cached_property
    def stage_correlations(self) -> list[list[float | None]]:
        """How far the labels of every two points agree."""
        return labels.stage_correlations(self.label_files)

    @cached_property
    def stages(self) -> list[Stage]:
        """What took how long."""
        seconds = {name: stage.seconds for name, stage in self.folder.stages.items()}
        longest = max(seconds.values(), default=0.0) or 1.0
        return [Stage(name, time, time / longest) for name, time in seconds.items()]

    @property
    def peak_memory(self) -> int:
        """The most memory that the run's process had, in bytes; 0 if not recorded."""
        return max((stage.peak_memory_bytes or 0 for stage in self.folder.stages.values()), default=0)

    @property
    def seconds(self) -> float:
        """The time that all stages took."""
        return sum(stage.seconds for stage in self.stages)

    @cached_property
    def _distributions(self) -> list[labels.Distribution]:
        low, high = self._score_range
        return labels.distributions(self.label_files, low=low, high=high)

    @cached_property
    def _score_range(self) -> tuple[float, float]:
        return labels.score_range(self.label_files)
