"""More than one process: the same results as one. Short versions of `make scale`, and the parts by themselves."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import TINY_RUN, contents, graded
from scale.cluster import check_cluster
from scale.laboratory import Laboratory, different_files
from scale.ranks import check_ranks
from scale.works import LONG, die, sleep_or_fail
from trans_encoder.config import EngineConfig, load_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.text import Text
from trans_encoder.distill import labels as shards
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.encoders import tokens
from trans_encoder.encoders.trainer import Share
from trans_encoder.errors import ConfigurationError, MissingExtraError, RunError
from trans_encoder.files import atomic_file
from trans_encoder.pipelines.distil import distil
from trans_encoder.runs import claims
from trans_encoder.runs.run import Run
from trans_encoder.runs.stages import Stage
from trans_encoder.runs.workers import make_engine
from trans_encoder.runs.workers.processes import side_by_side
from trans_encoder.teachers import ModelRef


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Laboratory.build(tmp_path_factory.mktemp("lab"), pairs=403)


@pytest.fixture(scope="module")
def reference(lab):
    return lab.run("reference")


def test_two_ranks_under_torchrun_end_as_one_process_does(lab, reference):
    assert check_ranks(lab, reference)


def test_two_local_workers_make_the_same_bytes(lab, reference):
    assert not different_files(reference, lab.run("workers", "--workers", "2"))


def test_a_ray_cluster_that_loses_a_node_makes_the_same_bytes(lab, reference):
    assert check_cluster(lab, reference)


def test_shares_of_a_batch_weigh_as_much_as_their_rows():
    losses, batch = np.random.default_rng(0).random(7), np.arange(7)
    for world in (1, 2, 3, 7, 9):
        shares = [Share.of(batch, rank=rank, world=world) for rank in range(world)]
        assert np.mean([losses[share.rows].mean() * share.weight for share in shares]) == pytest.approx(losses.mean())
        assert sorted(row for share in shares if share.weight for row in share.rows) == batch.tolist()


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_PAIRS", 20)


def test_labels_are_made_in_shards_and_only_missing_ones_again(tmp_path, bert, pairs, dev, small_shards, monkeypatch):
    asked, killed, score = [], [], ModelRef.score

    def counted(self, given):
        asked.append(len(given))
        if len(asked) == 4 and not killed:
            killed.append(True)
            raise KeyboardInterrupt
        return score(self, given)

    settings = {**TINY_RUN, "cycles": 1, "formulation": "bi"}
    plain = contents(distil(pairs, str(bert), dev=dev, out=tmp_path / "plain", **settings).folder)
    monkeypatch.setattr(ModelRef, "score", counted)
    with pytest.raises(KeyboardInterrupt):
        distil(pairs, str(bert), dev=dev, out=tmp_path / "run", **settings)
    left = sorted((tmp_path / "run/cycle-1/labels-bi.parquet.training").glob("*.parquet"))
    assert [path.name for path in left] == ["bert-32-000000000000.parquet", "bert-32-000000000020.parquet"]
    left[0].write_bytes(left[0].read_bytes()[:-40])  # damaged: made again
    asked.clear()
    run = distil(pairs, str(bert), dev=dev, out=tmp_path / "run", **settings).folder
    assert asked == [20, 20, 16, 20]
    assert contents(run) == plain
    assert not list(run.rglob("*.training"))


def test_parts_that_were_made_from_something_else_are_made_again(folder):
    def write(text):
        return lambda path: atomic_text(path, text)

    def stage(text):
        parts = (Stage("whole.training/part", {}, write(text)),)
        return Stage("whole", {"text": text}, fail_or_copy, parts=parts)

    for text in ("old", "new"):
        with pytest.raises(RunError, match="not now"):
            folder.complete([stage(text)])
        assert (folder.path / "whole.training/part").read_text() == text
    (folder.path / "ready").touch()
    folder.complete([stage("new")])
    assert (folder.path / "whole").read_text() == "new"


def atomic_text(path, text):
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def fail_or_copy(path):
    if not path.with_name("ready").exists():
        raise RunError("not now")
    atomic_text(path, (path.parent / "whole.training/part").read_text())


def test_shards_give_the_labels_of_the_whole(tmp_path, bert, pairs, dev, small_shards, monkeypatch):
    settings = {**TINY_RUN, "cycles": 1, "formulation": "bi"}
    cut = distil(pairs, str(bert), dev=dev, out=tmp_path / "cut", **settings).folder
    monkeypatch.undo()
    whole = distil(pairs, str(bert), dev=dev, out=tmp_path / "whole", **settings).folder
    scores = [pq.read_table(run / "cycle-1/labels-bi.parquet")["score"].to_numpy() for run in (cut, whole)]
    np.testing.assert_allclose(*scores, atol=1e-6)


def test_blocks_of_tokens_are_the_tokens_of_the_whole(bert, pairs, monkeypatch):
    tokeniser = ModelRef("bert", "bi", str(bert), max_tokens=32).load().tokeniser
    tokens.PairTokeniser.forget()
    whole = tokeniser(pairs, max_tokens=32)
    tokens.PairTokeniser.forget()
    monkeypatch.setattr(tokens, "_BLOCK_PAIRS", 10)
    blocks = tokeniser(pairs, max_tokens=32)
    tokens.PairTokeniser.forget()
    for place in np.ndindex(whole.index.shape):
        assert np.array_equal(blocks.tokens[blocks.index[place]], whole.tokens[whole.index[place]])


@pytest.fixture
def folder(tmp_path):
    with Run.claim(tmp_path / "run", config={}, origin={}) as opened:
        yield opened


def test_a_stage_that_fails_ends_the_others_at_once(folder):
    begun = time.monotonic()
    with pytest.raises(RunError, match="this stage fails"), side_by_side(2) as folder.engine:
        folder.complete([Stage("sleeps", {}, sleep_or_fail), Stage("fails", {}, sleep_or_fail)])
    assert time.monotonic() - begun < LONG / 2


def test_a_worker_that_is_killed_is_named_with_what_to_do(folder):
    with pytest.raises(RunError, match="the same command continues"), side_by_side(2) as folder.engine:
        folder.complete([Stage("dies", {}, die)])


def test_workers_end_with_a_killed_owner(tmp_path):
    program = (
        "from pathlib import Path\nfrom scale.works import tell_and_sleep\n"
        "from trans_encoder.runs.stages import Stage\nfrom trans_encoder.runs.workers.processes import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    folder = Path.cwd()\n    (folder / 'manifest.json').write_text('{}')\n"
        "    with side_by_side(1) as engine:\n        list(engine(folder, [Stage('worker', {}, tell_and_sleep)]))\n"
    )
    (tmp_path / "program.py").write_text(program)
    paths = [str(Path(__file__).parents[1]), *sys.path]
    owner = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    while not (tmp_path / "worker").exists() or not (tmp_path / "worker").read_text():
        assert owner.poll() is None
        time.sleep(0.05)
    owner.kill()
    owner.wait()
    worker = Path("/proc") / (tmp_path / "worker").read_text()
    for _ in range(100):
        if not worker.exists() or "Z" in (worker / "stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived the owner of the run")


def test_a_worker_that_does_not_see_the_run_folder_says_so(tmp_path):
    from trans_encoder.runs.workers.here import do

    with pytest.raises(RunError, match="does not see the folder"):
        do(die, tmp_path / "stage", run=tmp_path, threads=None)


def test_ray_that_is_not_installed_is_named_with_its_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r'pip install "trans-encoder\[ray\]"'),
        make_engine(EngineConfig(name="ray")),
    ):
        pass


def test_ranks_and_other_engines_exclude_each_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="engine of their own"), make_engine(EngineConfig(workers=2)):
        pass


def test_several_processes_cannot_share_one_named_device():
    with (
        pytest.raises(ConfigurationError, match="cannot all work on cuda:1"),
        make_engine(EngineConfig(workers=2), device="cuda:1"),
    ):
        pass


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"ray_address": "auto"}, "add --engine ray"),
        ({"name": "ray", "workers": 2}, "workers are local processes"),
    ],
)
def test_settings_of_another_engine_are_refused(engine, said):
    with pytest.raises(ConfigurationError, match=said):
        load_config(None, {"members": ["a"], "engine": engine})


def test_a_first_bi_encoder_is_refused_to_several_ranks(tmp_path, bert, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="made in one process"):
        bootstrap(Text.from_sentences(["one", "two"]), bert, out=tmp_path / "start")


def test_a_rank_with_other_inputs_than_the_first_is_refused_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "from_first_rank", lambda decide: ({}, {"pairs": "theirs"}))
    with (
        pytest.raises(RunError, match=f"(?s)do not agree.*{platform.node()}, pairs: was 'theirs', now 'ours'"),
        Run.claim(tmp_path / "run", config={}, origin={"pairs": "ours"}),
    ):
        pass


def test_an_error_names_the_rank_it_is_of(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from trans_encoder.cli import main; main()", "check", str(tmp_path / "none.toml")],
        env={**os.environ, "WORLD_SIZE": "2", "RANK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"rank 1 on {platform.node()}: cannot read the configuration" in done.stderr


def test_the_engine_is_no_setting_of_the_run():
    job = load_config(None, {"members": ["a"], "engine.name": "ray", "engine.num_gpus": 0.5})
    assert job.engine == EngineConfig(name="ray", num_gpus=0.5)
    assert "engine" not in job.run.model_dump()


@pytest.mark.parametrize("out", ["s3://bucket/run", "gs://bucket/run", "memory://run"])
def test_a_url_as_run_folder_is_refused_with_what_to_do(bert, pairs, out):
    with pytest.raises(ConfigurationError, match="mounted storage that all machines share"):
        distil(pairs, str(bert), out=out)


def test_many_shards_are_one_pair_set(tmp_path):
    whole = graded(50, seed=3)
    for start in range(0, 50, 20):
        pq.write_table(whole.between(start, start + 20).table, tmp_path / f"part-{start:02}.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert PairSet.read(tmp_path).hash == PairSet.read(str(tmp_path / "part-*.parquet")).hash == whole.hash


def test_manifest_notes_the_memory_of_the_worker(lab, reference):
    stages = json.loads((reference / "manifest.json").read_text())["stages"]
    assert all(stage["peak_memory_bytes"] > 0 for stage in stages.values())
