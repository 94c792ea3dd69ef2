"""The configuration: presets, files, overrides, and one error that names every problem."""

import pytest

from trans_encoder.config import PRESETS, MemberConfig, RunConfig, load_config, make_config, parse_overrides
from trans_encoder.errors import ConfigurationError
from trans_encoder.runs.differences import differences


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid(preset):
    config = make_config(["a/b"], preset=preset)
    assert config.preset == preset
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("preset", "cycles", "epochs", "bi_batch_size"),
    [
        ("paper-sts", 3, (1, 10), 128),
        ("paper-sts-large", 3, (1, 10), 64),
        ("paper-binary", 5, (3, 15), 128),
        ("paper-binary-large", 5, (3, 15), 64),
    ],
)
def test_the_papers_presets_are_the_papers(preset, cycles, epochs, bi_batch_size):
    config = make_config(["a/b"], preset=preset)
    cross, bi = config.cross, config.bi
    assert (config.cycles, config.strategy, config.formulation, config.anchor) == (cycles, "refresh", "alternate", 0)
    assert config.both_orders
    assert (cross.loss, cross.batch_size, cross.learning_rate, cross.max_tokens) == ("bce", 32, 2e-5, 64)
    assert (bi.loss, bi.batch_size, bi.learning_rate, bi.max_tokens) == ("mse", bi_batch_size, 5e-5, 32)
    assert (cross.epochs, bi.epochs) == epochs
    assert (cross.warmup_ratio, bi.warmup_ratio) == (0.1, 0.0)
    for plan in (cross, bi):
        assert (plan.weight_decay, plan.max_grad_norm, plan.dev_steps) == (0.01, 1.0, 200)
        assert not plan.group_by_length


def test_overrides_may_be_nested_or_dotted():
    nested = make_config(["a/b"], overrides={"cross": {"learning_rate": 1e-3}, "cycles": 7})
    dotted = make_config(["a/b"], overrides={"cross.learning_rate": 1e-3, "cycles": 7})
    assert nested == dotted
    assert (nested.cross.learning_rate, nested.cross.epochs, nested.cycles) == (1e-3, 1, 7)


def test_trackers_are_given_as_a_list_or_by_their_names():
    for given in (["tensorboard", "wandb"], "tensorboard,wandb"):
        assert make_config(["a/b"], overrides={"trackers": given}).trackers == ("tensorboard", "wandb")


def test_assignments_are_read_as_toml_or_text():
    read = parse_overrides(
        ["cross.learning_rate=1e-4", "both_orders=false", "strategy=sequential", 'trackers=["wandb"]']
    )
    assert read == {
        "cross.learning_rate": 1e-4,
        "both_orders": False,
        "strategy": "sequential",
        "trackers": ["wandb"],
    }
    assert parse_overrides(["a=1\nb=2"]) == {"a": "1\nb=2"}
    assert parse_overrides(["a=b=c"]) == {"a": "b=c"}


def test_assignments_without_a_key_or_a_value_are_named():
    with pytest.raises(ConfigurationError, match=r'(?s)2 problems.*"cycles".*"=3"'):
        parse_overrides(["cycles", "=3", "seed=1"])


def test_every_problem_is_reported_at_once():
    overrides = {
        "cross.learning_rat": 1,
        "bi.learning_rate": -1,
        "strategy": "refesh",
        "cycles": "many",
        "device": "gpu",
        "seed": float("nan"),
        "inputs.par": "x",
    }
    with pytest.raises(ConfigurationError) as caught:
        make_config(["a/b"], preset="paper", overrides=overrides)
    message = str(caught.value)
    assert message.startswith("8 problems in the configuration:")
    for line in (
        'cross.learning_rat: unknown key; did you mean "cross.learning_rate"?',
        "bi.learning_rate: given -1, must be greater than 0",
        "strategy: given 'refesh', must be 'refresh', 'sequential' or 'sequential-ensemble'",
        "cycles: given 'many', must be a valid integer",
        "device: given 'gpu', must be auto, cpu, mps, cuda or cuda:N",
        "seed: given nan, must be a finite number",
        'inputs.par: unknown key; did you mean "inputs.pairs"?',
        "preset: given 'paper', must be 'paper-sts'",
    ):
        assert line in message


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([], "members: given [], must not be empty"),
        (["a="], 'members: given "a=", must be BI or BI=PLM'),
        ([{"b": "x"}], "members.0.bi: must be given"),
        ([{"bi": "a", "name": "../up"}], "members.0.name: given '../up', must be up to 64 letters"),
        ([{"bi": "a", "name": "x"}, {"bi": "b", "name": "X"}], "names must differ"),
        ([{"bi": "a", "name": "score"}], "may not be called score"),
        ([{"bi": "a", "name": "Con.v2"}], "may not be called con.v2"),
        ([{"bi": "a", "name": "ends."}], "members.0.name: given 'ends.', must be up to 64 letters"),
        (3, "members: given 3"),
    ],
)
def test_bad_members_are_named(members, problem):
    with pytest.raises(ConfigurationError) as caught:
        make_config([], overrides={"members": members})
    assert problem in str(caught.value)


def test_members_get_safe_and_unique_names():
    config = make_config(
        ["org/model=org/plm", "other/model/", "odd name?/Ünï/", "my/pairs", {"bi": "x", "name": "model-2"}]
    )
    names = [member.name for member in config.members]
    assert names == ["model", "model-3", "n", "pairs-2", "model-2"]
    assert config.members[0].plm == "org/plm"


def test_a_model_called_like_a_device_of_windows_has_a_name_that_can_be_a_folder_there():
    config = make_config(["models/AUX", "org/nul.v1", "x" * 47 + ".5"])
    assert [member.name for member in config.members] == ["model-AUX", "model-nul.v1", "x" * 47]


def test_a_folder_with_an_equals_sign_is_no_plm(tmp_path):
    folder = tmp_path / "lr=1"
    folder.mkdir()
    assert MemberConfig.parse(str(folder)) == MemberConfig(bi=str(folder))
    assert MemberConfig.parse("a/b=c/d") == MemberConfig(bi="a/b", plm="c/d")


def test_a_file_its_preset_and_overrides(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        """
        preset = "paper-binary"
        seed = 7
        both_orders = false
        [inputs]
        pairs = "pairs.jsonl"
        out = "runs/a"
        [[members]]
        bi = "org/model"
        pooling = "mean"
        [cross]
        epochs = 2
        """
    )
    job = load_config(path, {"seed": 8, "inputs.out": "runs/b"})
    assert (job.inputs.pairs, job.inputs.out) == ("pairs.jsonl", "runs/b")
    assert (job.run.seed, job.run.cycles, job.run.cross.epochs, job.run.bi.epochs) == (8, 5, 2, 15)
    assert job.run.members == (MemberConfig(bi="org/model", pooling="mean", name="model"),)


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe", b"a" + b"[" * 5000])
def test_what_is_no_toml_is_refused(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a TOML file"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot read the configuration .*run\.toml"):
        load_config(tmp_path / "run.toml")


def test_a_value_where_a_table_belongs_is_named():
    with pytest.raises(ConfigurationError, match="bi: given 4, must be a table"):
        make_config(["a/b"], overrides={"bi": 4})
    with pytest.raises(ConfigurationError, match=r"cycles\.x: cycles is not a table"):
        make_config(["a/b"], overrides={"cycles": 4, "cycles.x": 3})


def test_differences_name_keys_and_both_values():
    old, new = make_config(["a/b"]), make_config(["a/c"], overrides={"bi.epochs": 9})
    found = differences(old.model_dump(mode="json"), new.model_dump())
    assert found == [
        "members.1.bi: was 'a/b', now 'a/c'",
        "members.1.name: was 'b', now 'c'",
        "bi.epochs: was 3, now 9",
    ]


def test_a_member_is_called_after_its_run_rather_than_the_folder_of_models():
    config = make_config(["runs/tickets/best/bi", "runs/mails/bi", "organisation/model-a"])
    assert [member.name for member in config.members] == ["tickets", "mails", "model-a"]


def test_a_member_is_never_called_as_the_folder_of_mined_pairs():
    with pytest.raises(ConfigurationError, match="may not be called pairs"):
        make_config([MemberConfig(bi="m", name="pairs")])


def test_negative_labels_are_raw_in_the_papers_presets_and_clamped_elsewhere():
    for preset in PRESETS:
        config = make_config(["a"], preset=preset)
        expected = "raw" if preset.startswith("paper") else "clamp"
        assert (config.cross.negatives, config.bi.negatives) == (expected, expected)
