"""One function for every source: pairs, raw text or a task."""

import json

import pytest

from conftest import TINY_RUN
from trans_encoder.data.tasks import Task, TestSet
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.distil import distil

QUICK = {**TINY_RUN, "cycles": 1, "formulation": "bi"}


def settings(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(("given", "both"), [({}, False), ({"both_orders": True}, True)])
def test_a_task_whose_pairs_have_an_order_is_learnt_in_one_order_unless_told_otherwise(
    bert, pairs, dev, tmp_path, given, both
):
    task = Task("qnli", pairs, dev=TestSet("qnli dev", dev), symmetric=False)
    result = distil(task, str(bert), out=tmp_path / "run", **QUICK, **given)
    assert settings(result.folder)["both_orders"] is both


def test_the_dev_set_of_a_task_chooses_unless_another_or_none_is_given(bert, pairs, dev, tmp_path):
    task = Task("sts", pairs, dev=TestSet("sts dev", dev))
    by_task = distil(task, str(bert), out=tmp_path / "task", **QUICK)
    by_pairs = distil(pairs, str(bert), dev=dev, out=tmp_path / "pairs", **QUICK)
    assert settings(by_task.folder)["both_orders"] is True
    assert (by_task.metric, by_task.members) == ("spearman", by_pairs.members)
    assert distil(task, str(bert), dev="none", out=tmp_path / "none", **QUICK).metric == "label-free score"


@pytest.mark.parametrize("option", [{"pairs": 40}, {"remine": True}, {"objective": "mirror"}])
def test_what_only_raw_text_needs_is_refused_for_pairs(bert, pairs, tmp_path, option):
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))}: only for raw text"):
        distil(pairs, str(bert), out=tmp_path / "run", **QUICK, **option)
    assert not (tmp_path / "run").exists()
