"""Other views judge without labels whether the student of a strong start is better."""

import numpy as np
import pytest

from conftest import TINY_RUN
from trans_encoder.pipelines.distil import distil

RUN = {**TINY_RUN, "cycles": 1, "scale": None, "selection": "label-free", "formulation": "bi"}
RUN["cross"] = {**TINY_RUN["cross"], "learning_rate": 1e-4}


def _alike(noise):
    """Return a teacher that knows how many words two texts share, more or less."""

    def alike(pairs):
        random = np.random.default_rng(len(pairs) + noise)
        shared = [len(set(left.split()) & set(right.split())) for left, right in pairs]
        return np.array(shared) + noise * random.normal(size=len(pairs))

    alike.__name__ = f"alike-{noise}"
    return alike


@pytest.mark.parametrize(
    ("margin", "cycle", "helped", "summary"),
    [
        (-1000.0, 1, True, "Better bi-encoder: estimated gain "),
        (1000.0, 0, None, "it is not known whether the new one is better (estimated gain "),
    ],
)
def test_two_other_views_decide_whether_a_strong_start_is_replaced(
    margin, cycle, helped, summary, start, pairs, tmp_path, monkeypatch
):
    monkeypatch.setattr("trans_encoder.distill.selection.MARGIN", margin)
    result = distil(pairs, str(start), teachers=[_alike(0), _alike(1)], out=tmp_path / "taught", **RUN)
    chosen = result.members["start"].bi
    assert (chosen.cycle, chosen.helped, result.helped["bi"]) == (cycle, helped, helped)
    assert chosen.evidence.views == ("alike-0", "alike-1")
    assert chosen.evidence.low <= chosen.evidence.gain <= chosen.evidence.high
    assert summary in result.summary
    assert "by alike-0, alike-1 on 24 held-out pairs" in result.summary
    assert ("cycle-1/start/bi" in result.summary) == (cycle == 0)
    assert any("if alike-0 and alike-1 show on held-out pairs that it is better" in note for note in result.notes)
    assert not any(note.startswith("lexical floor") for note in result.notes)
    card = (result.folder / "best" / "bi" / "README.md").read_text()
    assert ("estimated gain" in card) == (cycle == 1)


def test_without_two_other_views_a_strong_start_is_kept(start, bert, roberta, pairs, tmp_path):
    """Neither wording nor encoders that were made without labels judge it."""
    teachers = ["lexical", str(bert), str(roberta)]
    result = distil(pairs, str(start), teachers=teachers, out=tmp_path / "alone", **RUN)
    chosen = result.members["start"].bi
    assert (chosen.cycle, chosen.helped, chosen.evidence) == (0, None, None)
