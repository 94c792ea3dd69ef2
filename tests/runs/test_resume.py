"""A run that is killed, damaged or changed: the same command ends the same, or says why it cannot."""

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from conftest import TINY_RUN, contents
from killing import in_a_process, killed, killed_until_it_ends
from trans_encoder.data.text import Text
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.encoders.trainer import StageTrainer
from trans_encoder.errors import RunError
from trans_encoder.pipelines.distil import distil
from trans_encoder.runs.run import Run


@pytest.fixture
def again(mutual, bert, roberta, pairs, dev):
    """Return a function that does the mutual run in a folder, with changes if given."""

    def run(out, **changes):
        given = {"pairs": pairs, "models": [str(bert), str(roberta)], "dev": dev, **TINY_RUN, **changes}
        return distil(given.pop("pairs"), given.pop("models"), out=out, **given)

    return run


@pytest.fixture
def copy(mutual, tmp_path):
    """A copy of the finished mutual run."""
    return Path(shutil.copytree(mutual, tmp_path / "run"))


def test_a_run_killed_again_and_again_ends_the_same(again, mutual, tmp_path):
    # Three writes begin every process, so this number moves the run on by 4 to 9 of its writes each time.
    assert killed_until_it_ends(again, tmp_path / "run", write=7) >= 8
    assert contents(tmp_path / "run") == contents(mutual)


@pytest.mark.parametrize("write", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_killed_at_its_first_writes_continues(again, tmp_path, write, after):
    assert killed(again, tmp_path / "run", write=write, after=after)
    assert killed(again, tmp_path / "run", place="start.json", after=True)
    assert (tmp_path / "run" / "pairs.arrow").exists()


def test_in_the_middle_of_a_stage_the_last_checkpoint_continues(again, mutual, copy, monkeypatch):
    steps = []
    compute = StageTrainer.compute_loss
    monkeypatch.setattr(StageTrainer, "compute_loss", lambda self, *a, **k: steps.append(1) or compute(self, *a, **k))
    shutil.rmtree(copy / "cycle-2" / "roberta-48" / "bi")
    assert killed(again, copy, place="cycle-2/roberta-48/bi")
    scratch = copy / "cycle-2" / "roberta-48" / "bi.training"
    assert {path.name for path in scratch.iterdir()} == {"attempts.json", "checkpoint-5", "checkpoint-10"}
    again(copy)
    assert len(steps) == 2
    assert not scratch.exists()
    assert contents(copy) == contents(mutual)


def test_a_finished_run_does_nothing_again(again, copy, monkeypatch):
    monkeypatch.setattr(StageTrainer, "run", lambda self: pytest.fail("trained again"))
    before = json.loads((copy / "manifest.json").read_text())
    again(copy)
    assert json.loads((copy / "manifest.json").read_text()) == before


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("pairs.arrow", "pairs.arrow"),
        ("start.json", "start.json"),
        ("cycle-1/labels-cross.parquet", "cycle-1/labels-cross.parquet"),
        ("cycle-2/bert-32/bi/model.safetensors", "cycle-2/bert-32/bi"),
        ("best/bert-32/cross/README.md", "best/bert-32/cross"),
        ("result.json", "result.json"),
    ],
)
@pytest.mark.parametrize("damage", ["altered", "truncated", "removed"])
def test_a_damaged_file_has_its_stage_done_again(again, mutual, copy, caplog, file, stage, damage):
    content = bytearray((copy / file).read_bytes())
    if damage == "altered":
        content[len(content) // 2] ^= 1
        (copy / file).write_bytes(content)
    elif damage == "truncated":
        (copy / file).write_bytes(content[:-1])
    else:
        (copy / file).unlink()
    again(copy)
    assert contents(copy) == contents(mutual)
    assert [record.getMessage() for record in caplog.records if "done again" in record.getMessage()] == [
        f"{file} is missing or was altered; the stage {stage} is done again"
    ]


@pytest.mark.parametrize("damaged", [b"", b'{"cycle": 7}\n', b"\xff", None])
def test_a_damaged_history_is_mended(again, mutual, copy, damaged):
    whole = (copy / "history.jsonl").read_bytes()
    (copy / "history.jsonl").write_bytes(whole + b"more" if damaged is None else damaged)
    again(copy)
    assert contents(copy) == contents(mutual)


def test_a_lost_manifest_has_everything_done_again(again, mutual, copy):
    (copy / "manifest.json").unlink()
    again(copy)
    assert contents(copy) == contents(mutual)


@pytest.mark.parametrize("file", ["manifest.json", "config.json"])
def test_an_unreadable_record_is_named_with_the_remedy(again, copy, file):
    (copy / file).write_text('{"stages": ')
    with pytest.raises(RunError, match=f"{file} is damaged.*remove it"):
        again(copy)


def test_changed_settings_and_inputs_are_all_listed_and_nothing_is_touched(again, copy, pairs, dev):
    before = contents(copy)
    with pytest.raises(RunError) as caught:
        again(copy, cycles=3, strategy="sequential", pairs=pairs.take(range(90)), dev=dev.take(range(40)))
    message = str(caught.value)
    for part in ("cycles: was 2, now 3", "strategy: was 'refresh', now 'sequential'", "pairs.count: was 96, now 90"):
        assert part in message
    assert "judge: was 'spearman" in message
    assert "another folder (--out)" in message
    assert contents(copy) == before


def test_a_changed_start_model_is_noticed(bert, pairs, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(bert, model)
    settings = {**TINY_RUN, "cycles": 1, "formulation": "bi"}
    distil(pairs, str(model), out=tmp_path / "run", **settings)
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    with pytest.raises(RunError, match=r"models\.model\.bi\.model\.safetensors: was"):
        distil(pairs, str(model), out=tmp_path / "run", **settings)


def test_a_run_may_be_moved(again, mutual, copy, tmp_path):
    moved = copy.rename(tmp_path / "moved")
    shutil.rmtree(moved / "cycle-2" / "bert-32" / "cross")
    again(moved)
    assert contents(moved) == contents(mutual)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK])
def test_storage_without_locks_is_refused(again, copy, monkeypatch, code):
    fcntl = pytest.importorskip("fcntl")

    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(RunError, match="has no file locks"):
        again(copy)


def test_two_processes_cannot_work_in_one_folder(again, copy):
    with FileLock(copy / ".lock"), pytest.raises(RunError, match="another process is working in"):
        again(copy)
    again(copy)


def test_what_is_no_run_folder_is_left_alone(again, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not empty and is not a run folder"):
        again(tmp_path)
    with pytest.raises(RunError, match="is a file"):
        again(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "foreign",
    [
        {"manifest.json": '{"name": "an extension"}'},
        {".lock": "", "thesis.tex": "years of work"},
        {".lock": "", "config.json": '{"theme": "dark"}'},
        {"config.json": '{"theme": "dark"}'},
    ],
)
def test_a_folder_that_only_looks_like_a_run_is_left_alone(again, bert, corpus, tmp_path, foreign):
    for name, content in foreign.items():
        (tmp_path / name).write_text(content)
    for begin in (
        lambda: again(tmp_path),
        lambda: distil(Text.read(corpus), str(bert), out=tmp_path, **TINY_RUN),
        lambda: bootstrap(Text.read(corpus), str(bert), out=tmp_path),
    ):
        with pytest.raises(RunError, match="not empty and is not a run folder"):
            begin()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == foreign


def test_storage_that_gives_out_is_a_clear_error_and_finished_work_stays(again, mutual, tmp_path):
    folder, said = tmp_path / "run", tmp_path / "said"

    def work():
        # As on a full disk, writes fail in the middle of a file: here beyond 64 KiB, which only models need.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        try:
            again(folder)
        except RunError as error:
            said.write_text(str(error))

    assert in_a_process(work) == 0
    assert said.read_text().startswith(f"cannot write to {folder}: ")
    assert "the same command continues" in said.read_text()
    finished = (folder / "cycle-1" / "labels-bi.parquet").stat().st_mtime_ns
    again(folder)
    assert (folder / "cycle-1" / "labels-bi.parquet").stat().st_mtime_ns == finished
    assert contents(folder) == contents(mutual)


def test_a_place_that_cannot_be_written_is_a_clear_error(again):
    with pytest.raises(RunError, match="cannot write to /proc/run"):
        again("/proc/run")


def test_only_errors_of_the_runs_own_storage_are_called_so(tmp_path):
    def fail_with(error):
        with Run.claim(tmp_path / "run", config={}, origin={}):
            raise error

    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EINVAL, "Invalid argument", str(tmp_path / "run" / "pairs.arrow")),
    ):
        with pytest.raises(RunError, match="cannot write to"):
            fail_with(error)
    for error in (
        OSError(errno.ECONNREFUSED, "Connection refused"),
        PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "models" / "config.json")),
    ):
        with pytest.raises(OSError, match=error.strerror):
            fail_with(error)
