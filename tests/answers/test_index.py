"""An index: each text embedded once, rows added and changed, models never mixed, whole after a kill."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from killing import killed, killed_until_it_ends
from trans_encoder.answers import shards, store
from trans_encoder.answers.index import Index, build_index
from trans_encoder.answers.retrieval.dense import DenseIndex
from trans_encoder.answers.retrieval.embedder import Embedder, load_embedder
from trans_encoder.answers.retrieval.lexical import LexicalIndex
from trans_encoder.cli import app
from trans_encoder.config import EngineConfig
from trans_encoder.data.corpus import Corpus
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.runs import make_engine


class Counting:
    """An encoder that remembers what it was asked to embed."""

    def __init__(self, embedder):
        self._encoder = embedder.encoders[0]
        self.name, self.prompts, self.seen = self._encoder.name, self._encoder.prompts, []

    def encode(self, texts, *, side=1):
        self.seen += texts
        return self._encoder.encode(texts, side=side)

    def fingerprint(self):
        return self._encoder.fingerprint()


def content(index):
    """Return ids, texts and vectors of every row."""
    rows = index.embedded
    return [(rows.ids[row], rows.text(row), rows.vectors[rows.place[row]].tolist()) for row in range(len(rows))]


def test_each_text_is_embedded_once_and_later_only_new_ones(tmp_path, embedder, sentences):
    encoder = Counting(embedder)
    first, second = sentences[0], sentences[1]
    index = build_index(Corpus.from_texts([first, second, first]), tmp_path / "i", models=Embedder((encoder,)))
    assert encoder.seen == [first, second]
    assert (index.report.rows, index.report.texts) == (3, 2)
    index = build_index(
        Corpus.from_texts([second, "the new one"], ids=["b", "c"]), tmp_path / "i", models=Embedder((encoder,))
    )
    assert encoder.seen == [first, second, "the new one"]
    assert (index.report.rows, index.report.added, index.report.embedded) == (5, 2, 1)
    assert [row[0] for row in content(Index.open(tmp_path / "i"))] == ["1", "2", "3", "b", "c"]


def test_a_row_with_a_known_id_replaces_the_old_one(tmp_path, embedder):
    out = tmp_path / "i"
    build_index(Corpus.from_texts(["old", "other"], ids=["a", "b"], columns={"n": [1, 2]}), out, models=embedder)
    index = build_index(Corpus.from_texts(["new"], ids=["a"], columns={"n": [3]}), out, models=embedder)
    assert {row[0]: row[1] for row in content(index)} == {"a": "new", "b": "other"}
    assert (index.report.changed, index.report.added) == (1, 0)
    assert {hit.id for hit in index.search("old", top=5)} == {"a", "b"}
    assert (
        build_index(Corpus.from_texts(["new"], ids=["a"], columns={"n": [3]}), out, models=embedder).report.changed == 0
    )


def test_rows_that_a_file_no_longer_has_leave_only_if_asked(tmp_path, embedder):
    out = tmp_path / "i"
    build_index(Corpus.from_texts(["one", "two"], ids=["a", "b"]), out, models=embedder)
    index = build_index(Corpus.from_texts(["two"], ids=["b"]), out, models=embedder, replace=True)
    assert ([row[0] for row in content(index)], index.report.removed, index.report.embedded) == (["b"], 1, 0)


def test_line_numbers_do_not_replace_rows(tmp_path, embedder):
    build_index(Corpus.from_texts(["one", "two"]), tmp_path / "i", models=embedder)
    with pytest.raises(DataError, match=r"row '1' of the index has another text .*--id"):
        build_index(Corpus.from_texts(["three"]), tmp_path / "i", models=embedder)


def test_another_model_is_refused_unless_everything_is_embedded_again(tmp_path, static, other_static):
    out, corpus = tmp_path / "i", Corpus.from_texts(["one boat", "two lamps"])
    before = content(build_index(corpus, out, models=[str(static)]))
    with pytest.raises(ConfigurationError, match=r"cannot be mixed.*--reindex"):
        build_index(corpus, out, models=[str(other_static)])
    assert content(Index.open(out)) == before
    index = build_index(corpus, out, models=[str(other_static)], reindex=True)
    assert content(index) != before
    assert index.report.embedded == 2
    expected = build_index(corpus, tmp_path / "fresh", models=[str(other_static)])
    assert content(index) == content(expected)


def test_a_model_that_changed_since_is_refused(tmp_path, static, other_static):
    import shutil

    model = shutil.copytree(static, tmp_path / "model")
    build_index(Corpus.from_texts(["one boat"]), tmp_path / "i", models=[str(model)])
    shutil.copytree(other_static, model, dirs_exist_ok=True)
    with pytest.raises(ConfigurationError, match=r"has changed since"):
        Index.open(tmp_path / "i").search("boat")


def test_texts_that_the_model_cuts_are_counted_and_told(tmp_path, bert, sentences):
    rows = tmp_path / "rows.txt"
    rows.write_text(f"{sentences[0]}\n{' '.join(sentences[:30])}\n", encoding="utf-8")
    told = "1 of 2 texts (50.0%) is longer than 64 tokens and is cut"
    for command in (["index", "--text", rows, "--out", tmp_path / "i"], ["duplicates", rows, "--out", tmp_path / "d"]):
        result = CliRunner().invoke(app, [str(part) for part in (*command, "--model", bert)])
        assert result.exit_code == 0, result.output
        assert told in result.stderr
    index = build_index(rows, tmp_path / "again", models=[str(bert)])
    assert index.report.cuts[str(bert)].cut == 1
    assert not build_index(rows, tmp_path / "again").report.cuts, "nothing new was embedded"


@pytest.mark.parametrize("write", [1, 2])
def test_killed_at_any_moment_the_same_command_continues(tmp_path, monkeypatch, embedder, sentences, write):
    monkeypatch.setattr(store, "SHARD", 8)
    corpus, more = Corpus.from_texts(sentences[:40]), Corpus.from_texts(sentences[:60])

    def run(folder):
        build_index(corpus, folder, models=embedder)
        build_index(more, folder, models=embedder)

    run(tmp_path / "whole")
    assert killed_until_it_ends(run, tmp_path / "killed", write=write) > 1
    assert content(Index.open(tmp_path / "killed")) == content(Index.open(tmp_path / "whole"))
    names = {file.name for file in (tmp_path / "killed").iterdir()}
    assert not {name for name in names if "partial" in name or name == "pending.json"}


def test_shards_that_a_killed_command_finished_are_used(tmp_path, monkeypatch, embedder, sentences):
    monkeypatch.setattr(store, "SHARD", 8)
    texts = list(dict.fromkeys(sentences))[:40]
    assert killed(
        lambda folder: build_index(Corpus.from_texts(texts), folder, models=embedder), tmp_path / "i", write=4
    )
    encoder = Counting(embedder)
    build_index(Corpus.from_texts(texts), tmp_path / "i", models=Embedder((encoder,)))
    assert encoder.seen == texts[16:] or encoder.seen == texts[8:]


def with_workers(corpus, folder, embedder):
    with make_engine(EngineConfig(workers=2)) as engine:
        return build_index(corpus, folder, models=embedder, engine=engine)


def test_workers_that_were_killed_continue_and_make_the_same_index(tmp_path, monkeypatch, embedder, sentences):
    monkeypatch.setattr(store, "SHARD", 8)
    corpus, out = Corpus.from_texts(list(dict.fromkeys(sentences))[:40]), tmp_path / "together"
    assert killed(lambda folder: with_workers(corpus, folder, embedder), out, place="*/vectors-*.npy", write=2)
    kept = {file: file.stat().st_mtime_ns for file in out.glob("vectors-*.npy")}
    assert kept
    alone = build_index(corpus, tmp_path / "alone", models=embedder)
    monkeypatch.delattr(shards, "write_shard")  # this process embeds nothing
    together = with_workers(corpus, out, embedder)
    assert content(together) == content(alone)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    names = [{file.name for file in (tmp_path / name).iterdir()} for name in ("alone", "together")]
    assert names[0] == names[1]


def test_a_worker_with_another_version_of_the_model_refuses(tmp_path, static, sentences):
    work = shards.EmbedShard(tuple(sentences[:2]), (str(static),), (), ({"model.safetensors": "another"},), False)
    with pytest.raises(RunError, match=r"is not the model that this index is made with"):
        work(tmp_path / "shard.npy")


def test_a_folder_with_other_files_is_refused(tmp_path, embedder):
    (tmp_path / "precious.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"holds other files .precious.txt"):
        build_index(Corpus.from_texts(["one"]), tmp_path, models=embedder)


def test_a_damaged_index_says_so(tmp_path, embedder):
    build_index(Corpus.from_texts(["one"]), tmp_path / "i", models=embedder)
    (tmp_path / "i" / "index.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"make the index again"):
        Index.open(tmp_path / "i")
    with pytest.raises(DataError, match=r"is not an index; make one"):
        Index.open(tmp_path / "nowhere")


def test_a_file_in_the_place_of_an_index_says_how_to_make_one(tmp_path):
    (tmp_path / "rows.csv").write_text("text\none\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["search", str(tmp_path / "rows.csv"), "one"])
    assert done.exit_code == 2
    assert "is a file, not an index; make one of it: trans-encoder index --text" in " ".join(done.stderr.split())


def test_a_cross_encoder_cannot_embed(tmp_path, bert):
    from trans_encoder.encoders import CrossEncoder

    CrossEncoder.load(bert).save(tmp_path / "cross")
    with pytest.raises(ConfigurationError, match=r"is a cross-encoder"):
        load_embedder([str(tmp_path / "cross")])


def test_a_team_scores_the_mean_of_its_cosines(static, other_static, sentences):
    one, other, team = (
        load_embedder(names) for names in ([str(static)], [str(other_static)], [str(static), str(other_static)])
    )
    first, second = (model.encode(sentences[:5]) for model in (one, other))
    both = team.encode(sentences[:5])
    np.testing.assert_allclose(both @ both.T, (first @ first.T + second @ second.T) / 2, atol=1e-5)


def test_clusters_find_what_an_exact_search_finds():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 16))
    vectors = np.repeat(centres, 50, axis=0) + 0.3 * rng.normal(size=(3000, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def pairs(index):
        positions = index.neighbours(5).positions
        return set(zip(np.repeat(np.arange(len(positions)), 5).tolist(), positions.ravel().tolist(), strict=True))

    exact, found = pairs(DenseIndex(vectors)), pairs(DenseIndex(vectors, exact=100, probed=6))
    assert len(exact) == 15_000
    assert len(exact & found) / len(exact) > 0.95
    positions, _ = DenseIndex(vectors, exact=100, probed=6).search(vectors[:50], 1)
    assert (positions[:, 0] == np.arange(50)).mean() > 0.95


def test_texts_of_clusters_find_each_other():
    """What a search for one text misses, the search for its neighbour finds."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(4000, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = DenseIndex(vectors, exact=100, probed=3)
    alone, _ = index.search(vectors, 6)
    exact = DenseIndex(vectors).neighbours(5)
    near = index.neighbours(5)

    def recall(found):
        hits = (exact.positions[:, :, None] == found[:, None, :]).any(axis=2)
        return hits.mean()

    assert recall(near.positions) > recall(alone) + 0.05
    assert (np.diff(near.scores, axis=1) <= 0).all()
    for row in near.positions:
        assert len(set(row.tolist())) == len(row)
    rows = np.arange(len(vectors))
    assert (near.positions != rows[:, None]).all()
    true = np.einsum("ijk,ik->ij", vectors[near.positions], vectors)
    np.testing.assert_allclose(near.scores, true, atol=2e-3)


def test_damaged_clusters_are_made_again(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    cache = tmp_path / "c.npz"
    first = DenseIndex(vectors, exact=100, cache=cache).search(vectors[:3], 4)
    whole = cache.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:600] + bytes(100) + whole[700:], b""):
        cache.write_bytes(damaged)
        again = DenseIndex(vectors, exact=100, cache=cache).search(vectors[:3], 4)
        np.testing.assert_array_equal(first[0], again[0])
        assert cache.read_bytes()[:4] == b"PK\x03\x04"


def test_clusters_are_kept_with_the_index(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    first = DenseIndex(vectors, exact=100, cache=tmp_path / "c.npz").search(vectors[:3], 4)
    assert (tmp_path / "c.npz").exists()
    second = DenseIndex(vectors, exact=100, cache=tmp_path / "c.npz").search(vectors[:3], 4)
    np.testing.assert_array_equal(first[0], second[0])


def test_words_find_texts_that_share_them():
    index = LexicalIndex(["red boat at sea", "a boat, red", "green lamp", "lamp of green glass", "?"])
    pairs = {
        tuple(sorted(pair))
        for rows, columns in index.neighbours(1)
        for pair in zip(rows.tolist(), columns.tolist(), strict=True)
    }
    assert pairs == {(0, 1), (2, 3)}
    assert index.search("the green lamp", 2)[0].tolist() == [2, 3]
    assert LexicalIndex(["?", "!"]).search("a", 3)[0].tolist() == []


def test_the_manifest_names_the_models(tmp_path, static):
    build_index(Corpus.from_texts(["one"]), tmp_path / "i", models=[str(static)])
    manifest = json.loads((tmp_path / "i" / "index.json").read_text(encoding="utf-8"))
    assert manifest["models"] == [str(static)]
    assert "model.safetensors" in manifest["fingerprints"][0]


@pytest.mark.parametrize("key", ["rows", "texts", "shards", "checksums"])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path, embedder, key):
    out = tmp_path / "i"
    build_index(Corpus.from_texts(["one boat", "two lamps"]), out, models=embedder)
    manifest = json.loads((out / "index.json").read_text(encoding="utf-8"))
    away = "../i/rows-00001.arrow"
    manifest[key] = {"rows": away, "texts": away, "shards": [away], "checksums": {away: "0" * 64}}[key]
    (out / "index.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match=r"index.json cannot be read .*\.\./i/rows-00001.arrow is not in the folder"):
        Index.open(out)


@pytest.mark.parametrize("name", ["rows-00001.arrow", "texts-00001.arrow", "vectors-00001-00000.npy"])
def test_a_damaged_file_is_refused_by_name_with_a_remedy_that_works(tmp_path, embedder, name):
    import shutil

    corpus, out = Corpus.from_texts(["one boat", "two lamps"]), tmp_path / "i"
    before = content(build_index(corpus, out, models=embedder))
    damaged = bytearray((out / name).read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (out / name).write_bytes(damaged)
    with pytest.raises(DataError, match=rf"{name} is missing or damaged.*remove the folder"):
        Index.open(out)
    shutil.rmtree(out)
    assert content(build_index(corpus, out, models=embedder)) == before


def test_a_damaged_cache_is_made_again_and_never_outlives_a_change(tmp_path, embedder, sentences):
    out = tmp_path / "i"
    index = build_index(Corpus.from_texts(sentences[:30]), out, models=embedder)
    expected, cache = index.probability, out / "cache-00001-probability.json"
    cache.write_text('{"scale": 5}', encoding="utf-8")
    again = build_index(Corpus.from_texts(sentences[:30]), out, models=embedder)
    assert again.probability == expected
    assert "scores" in cache.read_text(encoding="utf-8")
    build_index(Corpus.from_texts(sentences[:40]), out, models=embedder)
    assert not list(out.glob("cache-*"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_vector_that_is_no_number_is_refused_by_name(tmp_path, embedder, value, with_checksum):
    out = tmp_path / "i"
    build_index(Corpus.from_texts(["one boat", "two lamps"]), out, models=embedder)
    name = "vectors-00001-00000.npy"
    vectors = np.load(out / name)
    vectors[1, 2] = value
    np.save(out / name, vectors)
    if not with_checksum:  # as in an index that was made before vectors had them
        manifest = json.loads((out / "index.json").read_text(encoding="utf-8"))
        del manifest["checksums"][name]
        (out / "index.json").write_text(json.dumps(manifest), encoding="utf-8")
    result = CliRunner().invoke(app, ["search", str(out), "boat"])
    assert result.exit_code == 2
    assert name in result.stderr
    assert "make the index again" in result.stderr


def test_a_model_that_gives_no_numbers_is_refused_before_anything_is_kept(tmp_path, embedder):
    class Broken(Counting):
        def encode(self, texts, *, side=1):
            return super().encode(texts, side=side) * np.float32("nan")

    with pytest.raises(DataError, match=r"gives embeddings that are no numbers.*'one boat'"):
        build_index(Corpus.from_texts(["one boat"]), tmp_path / "i", models=Embedder((Broken(embedder),)))
    assert not list((tmp_path / "i").glob("vectors-*"))
