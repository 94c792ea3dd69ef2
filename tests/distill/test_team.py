"""The team: what members start from, and where their PLMs are found."""

import pytest

from trans_encoder.config import PRESETS, MemberConfig, make_config
from trans_encoder.distill.team import assemble, resolve_members
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import RunError
from trans_encoder.teachers import ModelRef, find_plm
from trans_encoder.teachers.origins import base_model


def card(folder, base):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"---\nbase_model: {base}\n---\n# A model\n", encoding="utf-8")
    return folder


def test_a_given_plm_is_taken():
    assert find_plm(MemberConfig(bi="a/b", plm="c/d")) == ("c/d", None)


@pytest.mark.parametrize(
    ("bi", "plm", "pooling"),
    [
        ("princeton-nlp/unsup-simcse-bert-base-uncased", "google-bert/bert-base-uncased", "cls"),
        ("princeton-nlp/unsup-simcse-roberta-large", "FacebookAI/roberta-large", "cls"),
        ("cambridgeltl/mirror-roberta-base-sentence-drophead", "FacebookAI/roberta-base", "cls"),
        ("Contrastive-Tension/BERT-Base-CT", "google-bert/bert-base-uncased", "mean"),
        ("johngiorgi/declutr-base", "FacebookAI/roberta-base", "mean"),
        ("sentence-transformers/all-MiniLM-L6-v2", "nreimers/MiniLM-L6-H384-uncased", None),
    ],
)
def test_the_papers_checkpoints_are_known(bi, plm, pooling):
    config, notes = resolve_members(make_config([bi], overrides={"anchor": 0}))
    assert (config.members[0].plm, config.members[0].pooling, notes) == (plm, pooling, [])
    assert config.members[0].supervised == ("all-MiniLM" in bi)
    assert resolve_members(make_config([{"bi": bi, "pooling": "mean"}]))[0].members[0].pooling == "mean"


def test_an_unknown_start_is_its_own_plm_and_the_run_says_so(bert):
    config, notes = resolve_members(make_config([str(bert)]))
    assert config.members[0].plm == str(bert)
    assert notes[0].startswith("bert-32: the PLM of")
    assert f"give {bert}=PLM" in notes[0]


def test_the_card_of_a_local_folder_is_quoted_but_fetches_nothing(tmp_path):
    folder = str(card(tmp_path / "model", "google-bert/bert-base-uncased"))
    origin = find_plm(MemberConfig(bi=folder))
    assert origin.plm == folder
    assert f"Give {folder}=google-bert/bert-base-uncased" in (origin.note or "")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("org/plm", "org/plm"),
        ("[org/plm]", "org/plm"),
        ("[org/plm, org/other]", None),
        ("/etc/passwd", None),
        ("../../secret", None),
        ("3", None),
        ("{a: b}", None),
        ("'unfinished", None),
    ],
)
def test_only_a_plain_hub_name_counts_as_base_model(tmp_path, named, found):
    assert base_model(str(card(tmp_path / "model", named))) == found


def test_a_hub_model_without_a_card_has_no_base_model():
    assert base_model("nobody/has-this-model") is None


def test_members_are_immutable_and_load_what_they_name(bert, roberta):
    config, _ = resolve_members(
        make_config([f"{bert}={roberta}"], overrides={"device": "cpu", "bi.max_tokens": 32, "cross.max_tokens": 48})
    )
    (member,) = assemble(config)
    assert isinstance(member.bi.load(), BiEncoder)
    cross = member.plm.load(seed=1)
    assert isinstance(cross, CrossEncoder)
    assert (member.bi.load().max_tokens, cross.max_tokens) == (config.bi.max_tokens, config.cross.max_tokens)
    with pytest.raises(RunError, match="no cross-encoder yet"):
        member.teacher("cross")
    taught = member.with_student("cross", bert)
    assert (taught.teacher("cross").source, member.cross) == (str(bert), None)
    assert taught.with_student("bi", bert).start == member.start


def test_a_fingerprint_changes_with_the_weights(tmp_path, tiny_model):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_model("bert"), folder)
    (member,) = assemble(make_config([str(folder)]))
    before = member.start.fingerprint()
    assert "model.safetensors" in before
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert member.start.fingerprint() != before


def test_the_fingerprint_of_a_hub_model_names_the_commit_that_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--somebody--model"

    def fingerprint(commit):
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        (repository / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
        return ModelRef("member", "bi", "somebody/model", max_tokens=None).fingerprint()

    for commit in ("a" * 40, "b" * 40):
        assert fingerprint(commit) == {"hub": "somebody/model", "revision": commit}
    assert ModelRef("member", "bi", "somebody/unseen", max_tokens=None).fingerprint() == {"hub": "somebody/unseen"}


def test_wording_teaches_beside_starts_that_were_made_without_labels_and_nobody_else(bert, start):
    weak, strong = str(bert), str(start)

    def wording(models, **overrides):
        config, notes = resolve_members(make_config(models, overrides=overrides))
        assert config == resolve_members(config)[0]
        told = any("shared wording teaches" in note for note in notes)
        return [teacher.spec for teacher in config.teachers], config.scale, told

    assert wording([weak]) == (["lexical"], "rank", True)
    assert wording([weak, strong]) == ([], "rank", False)
    assert wording([strong]) == ([], "none", False)
    assert wording([weak], teachers=[strong]) == ([strong], "rank", False)
    assert wording([weak], lexical=False) == ([], "none", False)
    assert wording([strong], lexical=True) == (["lexical"], "rank", False)
    assert wording([weak], strategy="sequential-ensemble") == ([], "none", False)
    assert wording(["princeton-nlp/unsup-simcse-bert-base-uncased"]) == ([], "none", False)
    for preset in PRESETS:
        if preset != "small":
            assert wording([weak], preset=preset) == ([], "none", False)
