"""What `check` says of teachers before a run begins."""

from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.data.writers import write_pairs


def test_check_says_that_teachers_are_asked_once(bert, roberta, pairs, tmp_path):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    given = ["--pairs", str(tmp_path / "pairs.jsonl"), "--model", str(bert), "--teacher", str(roberta)]
    shown = CliRunner().invoke(app, ["check", *given, "--set", "cycles=2", "--set", "device=cpu"])
    assert "label as a teacher, once" in " ".join(shown.output.split()), shown.output
