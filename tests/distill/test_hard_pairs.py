"""Hard pairs: flips with lower labels beside the pairs, for cross-encoders alone, noted in the run and its report."""

import numpy as np

from conftest import TINY_RUN
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import with_hard_pairs
from trans_encoder.evaluation.flips import make_flips
from trans_encoder.pipelines.distil import distil
from trans_encoder.report import write_report
from trans_encoder.runs.layout import Layout, training_record
from trans_encoder.runs.records import TrainingRecord, read_record

TEXTS = [f"Train {number} can stop in Berlin for {number} minutes" for number in range(2, 22)]


def test_flips_get_lower_labels_than_paraphrases_of_the_same_texts():
    labelled = PairSet.from_lists(TEXTS, TEXTS[::-1]).with_scores(np.linspace(0.2, 0.8, 20))
    mixed = with_hard_pairs(labelled, share=0.5, seed=3)
    rows = list(mixed.rows())
    assert rows[:20] == list(labelled.rows())
    made = {case.text: case for case in make_flips(TEXTS + TEXTS[::-1], limit=2, seed=3)}
    assert len(made) > 0
    added = {(first, second): score for first, second, score in rows[20:]}
    for case in made.values():
        assert added[case.text, case.flip] < added[case.text, case.paraphrase]
    assert {round(score, 3) for score in added.values()} == {0.44, 0.77}


def test_without_a_share_or_without_rules_that_fit_nothing_is_added():
    labelled = PairSet.from_lists(TEXTS, TEXTS[::-1]).with_scores(np.linspace(0.2, 0.8, 20))
    assert with_hard_pairs(labelled, share=0.0, seed=0) is labelled
    plain = PairSet.from_lists(["alpha beta", "gamma"], ["delta", "epsilon"]).with_scores([0.1, 0.9])
    assert with_hard_pairs(plain, share=1.0, seed=0) is plain


def test_a_run_says_what_its_cross_encoder_learnt_beside_the_pairs(tmp_path, bert, dev):
    pairs = PairSet.from_lists(TEXTS, TEXTS[::-1])
    settings = {**TINY_RUN, "cycles": 1, "hard_pairs": 0.5}
    result = distil(pairs, str(bert), dev=dev, out=tmp_path / "run", **settings)
    name, layout = next(iter(result.members)), Layout(tmp_path / "run")
    cross, bi = (
        read_record(TrainingRecord, training_record(layout.student(1, name, kind))) for kind in ("cross", "bi")
    )
    assert cross.hard >= 10
    assert (bi.hard, cross.labels) == (0, 20)
    assert any(f"{cross.hard} rule-made pairs in addition to 20" in note for note in result.notes)
    member = result.members[name]
    assert (member.cross.flips, member.bi.flips) == (cross.flips, bi.flips if member.bi.cycle else member.start_flips)
    page = write_report([tmp_path / "run"]).read_text(encoding="utf-8")
    assert f"{cross.flips:.1f}&nbsp;%" in page
    assert f"At the start: {name} {member.start_flips:.1f} %" in page
