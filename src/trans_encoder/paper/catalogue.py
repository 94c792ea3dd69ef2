"""The studies: each table and figure of the paper as a declaration of rows and columns."""

from typing import Any

from trans_encoder.paper.study import Heading, Study, heading


def _both_kinds(label: str, **asks: Any) -> tuple[Heading, ...]:
    return tuple(heading(f"{label} ({kind})", kind=kind, **asks) for kind in ("bi", "cross"))


_SELF, _MUTUAL = _both_kinds("self"), _both_kinds("mutual", way="mutual")
_START = heading("start", way="start")
_KINDS = (heading("bi", kind="bi"), heading("cross", kind="cross"))
_ALONE = (_START, *_SELF)
_ALL = (*_ALONE, *_MUTUAL)

_STS_SETS = {
    "STS12": "sts12",
    "STS13": "sts13",
    "STS14": "sts14",
    "STS15": "sts15",
    "STS16": "sts16",
    "STS-B": "stsb",
    "SICK-R": "sickr",
}
_STS = tuple(heading(label, task="sts", test_set=name) for label, name in _STS_SETS.items())
_STS_AVERAGE = heading("STS", task="sts")
_BINARY_TASKS = {"QQP": "qqp", "QNLI": "qnli", "MRPC": "mrpc"}
_BINARY = tuple(heading(label, task=name) for label, name in _BINARY_TASKS.items())
_TRANSFER = tuple(heading(label, task="sts", tested=name) for label, name in _BINARY_TASKS.items())
_OTHER_STARTS = (
    "Mirror-RoBERTa-base",
    "Mirror-RoBERTa-base-drophead",
    "Contrastive-Tension-BERT-base",
    "DeCLUTR-RoBERTa-base",
)


def _losses(cross: str, bi: str) -> Heading:
    label = f"{cross}, {bi}".upper()
    return heading(label, overrides={"cross.loss": cross, "bi.loss": bi})


def _pairs(share: float, extra: float = 0.0) -> Heading:
    label = f"{share:.1%} of the pairs" if share < 1 else "all pairs"
    return heading(f"{label} + {extra:.0%} from SNLI" if extra else label, share=share, extra=extra)


_CYCLES = 5
_FIFTHS = ("lowest fifth", "second", "third", "fourth", "highest fifth")

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "sts",
            "self- and mutual distillation and ensembles on the seven STS sets; large models with --preset paper-large",
            ("Table 1",),
            rows=_ALL,
            team_rows=_ALL,
            columns=_STS,
            average=True,
            figures="sts",
        ),
        Study(
            "binary",
            "the same on the three binary tasks, each trained on its own pairs",
            ("Table 2", "Table 11"),
            rows=_ALL,
            team_rows=_ALL,
            columns=_BINARY,
            average=True,
            figures="binary_full",
        ),
        Study(
            "transfer",
            "domain transfer: trained on STS pairs, tested on QQP, QNLI and MRPC unchanged",
            ("Table 3", "Table 12"),
            rows=_ALL,
            columns=_TRANSFER,
            average=True,
            figures="binary_transfer_full",
        ),
        Study(
            "starts",
            "other starting points on STS: Mirror-BERT, Contrastive-Tension, DeCLUTR, or any given with --models",
            ("Table 4",),
            rows=_ALONE,
            columns=_STS,
            average=True,
            models=_OTHER_STARTS,
            figures="sts_mirrorbert",
        ),
        Study(
            "starts-binary",
            "other starting points on the binary tasks",
            ("Table 5",),
            rows=_ALONE,
            columns=_BINARY,
            average=True,
            models=_OTHER_STARTS,
            figures="binary_classification_mirrorbert",
        ),
        Study(
            "strategies",
            "refresh (students start from the original weights) against sequential (from their teacher's) and, with "
            "several models, the sequential ensemble (a cycle of each in turn) against mutual distillation",
            ("Figure 3a", "Table 13"),
            rows=(
                _START,
                *_both_kinds("sequential", overrides={"strategy": "sequential"}),
                *_both_kinds("refresh", overrides={"strategy": "refresh"}),
                *_both_kinds("sequential ensemble", way="mutual", overrides={"strategy": "sequential-ensemble"}),
                *_MUTUAL,
            ),
            columns=(_STS_AVERAGE,),
            figures="sequential",
        ),
        Study(
            "standard",
            "standard self-distillation (bi-encoders all along) against alternating bi and cross",
            ("Figure 3b", "Table 14"),
            rows=(_START, heading("standard (bi)", overrides={"formulation": "bi"}), *_SELF),
            columns=(_STS_AVERAGE, heading("QNLI", task="qnli")),
            figures="standard_self_distil",
        ),
        Study(
            "cycles",
            f"dev score of self-distillation after each of {_CYCLES} cycles on STS, QQP and QNLI",
            ("Figure 4",),
            rows=tuple(
                row
                for label, task in (("STS", "sts"), ("QQP", "qqp"), ("QNLI", "qnli"))
                for row in _both_kinds(label, task=task, measure="dev", overrides={"cycles": _CYCLES})
            ),
            columns=tuple(heading(f"cycle {cycle}" if cycle else "start", cycle=cycle) for cycle in range(_CYCLES + 1)),
            note="Best dev score of each cycle.",
        ),
        Study(
            "pairs",
            "number of training pairs, then extra pairs from SNLI, tested on STS; three seeds",
            ("Figure 5",),
            rows=(
                _START,
                *(_pairs(share) for share in (0.125, 0.25, 0.5, 1.0)),
                *(_pairs(1.0, extra) for extra in (0.4, 0.8, 1.2)),
            ),
            columns=_KINDS,
            models=("SimCSE-BERT-base",),
            seeds=3,
            note="Averages of the seven STS sets. The paper's best was about 80% extra (30,000 pairs).",
        ),
        Study(
            "seeds",
            "mean and standard deviation over five seeds on STS",
            ("Table 6",),
            rows=_SELF,
            columns=(heading("mean", statistic="mean"), heading("S.D.", statistic="sd")),
            seeds=5,
            figures="standard_sd",
        ),
        Study(
            "sick-r",
            "SICK-R as a task of its own, with its own pairs and dev set, against all STS pairs",
            ("Table 7", "Figure 6"),
            rows=(heading("SICK-R", tested="sick-r"),),
            columns=(
                heading("off-the-shelf", way="start", task="sick-r"),
                *_both_kinds("STS", task="sts"),
                *_both_kinds("SICK-R", task="sick-r"),
            ),
            figures="sickr_standalone",
        ),
        Study(
            "losses",
            "which loss teaches which kind: BCE or MSE for cross- and bi-encoders, and log-cosh for bi-encoders",
            ("Table 8",),
            rows=tuple(
                _losses(cross, bi)
                for cross, bi in (("bce", "mse"), ("bce", "bce"), ("mse", "mse"), ("mse", "bce"), ("bce", "log-cosh"))
            ),
            columns=(
                *_KINDS,
                heading("fit", measure="fit"),
                heading("outcome", measure=None),
            ),
            models=("SimCSE-BERT-base",),
            figures="loss_choice",
            may_fail=True,
            note="Rows name the losses of cross- and bi-encoders. Averages of the STS sets; fit is Spearman's rho "
            "of the first cross-encoder's scores with the labels that it learnt from: near 100 it has overfitted.",
        ),
        Study(
            "gradients",
            "the gradient that BCE and MSE leave a trained cross-encoder, by the labels of the pairs",
            ("Appendix, Eq. 4",),
            rows=tuple(_losses(cross, "mse") for cross in ("bce", "mse")),
            columns=(
                heading("all pairs", measure="gradient"),
                *(heading(label, measure="gradient", fifth=fifth) for fifth, label in enumerate(_FIFTHS)),
                heading("fit", measure="fit"),
            ),
            models=("SimCSE-BERT-base",),
            may_fail=True,
            note="Mean absolute gradient of a pair's loss with respect to the logit, x100, over the pairs that the "
            "first cross-encoder learnt from, by fifths of their labels; fit is Spearman's rho with the labels.",
        ),
        Study(
            "contrastive",
            "contrastive tuning with the task's pairs as positives, against distillation on the same pairs",
            ("Table 9",),
            rows=(*_ALONE, heading("contrastive tuning", way="contrastive")),
            columns=(_STS_AVERAGE, *_BINARY),
            average=True,
            models=("SimCSE-RoBERTa-base", "Mirror-RoBERTa-base-drophead"),
            figures="label_leak",
        ),
        Study(
            "times",
            "hours that self- and mutual distillation take on each task",
            ("Table 10",),
            rows=(heading("self", measure="hours"),),
            team_rows=(heading("mutual", way="mutual", measure="hours"),),
            team="team",
            columns=(_STS_AVERAGE, *_BINARY),
            figures="runtime",
            digits=3,
            note="Hours on this machine. The paper trained each member of a team on a GPU of its own.",
        ),
    )
}
