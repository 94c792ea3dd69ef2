"""A run folder: what a stage took over all attempts, and folders that other versions began."""

import json
import time

import pytest

from conftest import contents
from killing import killed
from trans_encoder.errors import RunError
from trans_encoder.files import atomic_file
from trans_encoder.runs.claims import check_begun
from trans_encoder.runs.layout import scratch
from trans_encoder.runs.run import Run
from trans_encoder.runs.stages import Stage

LONG = 0.3  # asleep; recorded times are rounded to milliseconds, so the checks below ask for a little less
MEASURED = 0.9 * LONG


def claim(path):
    return Run.claim(path, config={"seed": 1}, origin={"pairs": "ours"})


def write(path):
    with atomic_file(path) as temporary:
        temporary.write_text("whole")


def slow_then_checkpoint(path):
    """Work for a while, write a checkpoint, then the result."""
    time.sleep(LONG)
    (scratch(path) / "checkpoint-1").mkdir()
    write(path)


def fail_after_a_while(path):
    time.sleep(LONG)
    raise RunError("not now")


def seconds(folder):
    return Run.open(folder).stages["whole"].seconds


def test_the_time_of_a_failed_attempt_counts(tmp_path):
    with pytest.raises(RunError, match="not now"), claim(tmp_path / "run") as run:
        run.complete([Stage("whole", {}, fail_after_a_while)])
    with claim(tmp_path / "run") as run:
        run.complete([Stage("whole", {}, write)])
    assert seconds(tmp_path / "run") >= MEASURED
    assert not scratch(tmp_path / "run" / "whole").exists()


def test_the_time_of_a_killed_attempt_counts_up_to_its_last_checkpoint(tmp_path):
    def work(folder):
        with claim(folder) as run:
            run.complete([Stage("whole", {}, slow_then_checkpoint)])

    assert killed(work, tmp_path / "run", place="whole")
    with claim(tmp_path / "run") as run:
        run.complete([Stage("whole", {}, write)])
    assert seconds(tmp_path / "run") >= MEASURED


def test_the_time_of_parts_made_by_an_earlier_attempt_counts(tmp_path):
    def slow_part(path):
        time.sleep(LONG)
        write(path)

    part = Stage("whole.training/part", {}, slow_part)
    with pytest.raises(RunError, match="not now"), claim(tmp_path / "run") as run:
        run.complete([Stage("whole", {"from": "this"}, fail_after_a_while, parts=(part,))])
    with claim(tmp_path / "run") as run:
        run.complete([Stage("whole", {"from": "this"}, write, parts=(part,))])
    assert seconds(tmp_path / "run") >= 2 * MEASURED


@pytest.mark.parametrize("note", ["", "{}", '{"seconds": "long"}'])
def test_a_damaged_note_of_the_time_is_ignored(tmp_path, note):
    with claim(tmp_path / "run") as run:
        scratch(tmp_path / "run" / "whole").mkdir()
        (scratch(tmp_path / "run" / "whole") / "attempts.json").write_text(note)
        run.complete([Stage("whole", {}, write)])
    assert (tmp_path / "run" / "whole").read_text() == "whole"


def test_a_run_of_version_0_1_0_is_refused_in_one_sentence_and_left_alone(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text('{"seed": 1}')
    (folder / ".lock").touch()
    (folder / "manifest.json").write_text(json.dumps({"version": 1, "origin": {"pairs": "ours"}, "stages": {}}))
    before = contents(folder)
    for begin in (
        lambda: claim(folder).__enter__(),
        lambda: check_begun(folder, config={"seed": 1}, origin={"pairs": "ours"}),
    ):
        with pytest.raises(RunError) as caught:
            begin()
        assert str(caught.value).startswith(f"{folder} was begun with trans-encoder 0.1.0")
        assert "\n" not in str(caught.value)
        assert "--out" in str(caught.value)
    assert contents(folder) == before
    assert Run.open(folder).config == {"seed": 1}


def test_a_run_whose_version_had_other_settings_is_refused_in_one_sentence(tmp_path):
    with claim(tmp_path / "run"):
        pass
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "removed_since": 1}))
    with pytest.raises(RunError, match="begun with another command or version") as caught, claim(tmp_path / "run"):
        pass
    assert "\n" not in str(caught.value)


def test_a_run_of_a_later_version_is_refused_too(tmp_path):
    with claim(tmp_path / "run"):
        pass
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))
    with pytest.raises(RunError, match="begun with another version of trans-encoder"), claim(tmp_path / "run"):
        pass


def test_a_folder_without_a_run_is_named_with_what_to_give(tmp_path):
    with pytest.raises(RunError, match="give the --out folder of a run"):
        Run.open(tmp_path)
    assert list(tmp_path.iterdir()) == []
