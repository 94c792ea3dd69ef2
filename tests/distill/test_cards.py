"""The head of model cards: what the hub and later runs read of it."""

from types import SimpleNamespace

import pytest
from huggingface_hub import ModelCard, metadata_load

from trans_encoder.config import OptimisationPlan
from trans_encoder.distill.cards import _evaluation, _head, write_tuned_card
from trans_encoder.teachers import UNSUPERVISED
from trans_encoder.teachers.origins import base_model

PLAN = OptimisationPlan(batch_size=8, epochs=1, learning_rate=1e-4, max_tokens=32)


def facts(lines, tmp_path):
    (tmp_path / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return metadata_load(tmp_path / "README.md")


def test_a_card_names_its_base_model_and_how_it_was_made(tmp_path):
    card = write_tuned_card("organisation/model", sentences=10, plan=PLAN, supervised=False)
    data = ModelCard(card).data
    assert data.base_model == ["organisation/model"]
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    assert data.tags == ["sentence-transformers", "trans-encoder", UNSUPERVISED]
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert base_model(str(tmp_path)) == "organisation/model"


def test_a_folder_on_this_machine_is_not_named_in_public(bert, tmp_path):
    data = facts(_head(bi=True, supervised=True, base=str(bert)), tmp_path)
    assert "base_model" not in data
    assert str(bert.parent) not in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("licence", ["mit", None])
def test_licence_and_language_are_those_of_the_base(tmp_path, licence):
    head = f"license: {licence}\nlanguage: de\n" if licence else "language: de\n"
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "README.md").write_text(f"---\n{head}---\n", encoding="utf-8")
    data = facts(_head(bi=False, supervised=False, base=str(tmp_path / "base")), tmp_path)
    assert data.get("license") == licence
    assert data["language"] == "de"


def test_a_score_on_labels_is_in_the_model_index_and_no_other(tmp_path):
    chosen = SimpleNamespace(model=SimpleNamespace(kind="bi"), score=81.234)
    assert _evaluation(chosen, "label-free score") is None
    assert _evaluation(chosen, None) is None
    evaluation = _evaluation(chosen, "spearman x100 on dev")
    data = facts(_head(bi=True, supervised=False, base="organisation/model", evaluation=evaluation), tmp_path)
    (result,) = data["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "spearman", "value": 81.23}]
