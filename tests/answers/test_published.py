"""An index at a URL: published as a whole, fetched by others, continued after a kill, never overwritten unseen."""

import json
import os
import shutil
import signal
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from killing import in_a_process
from trans_encoder.answers import store
from trans_encoder.answers.duplicates import find_duplicates
from trans_encoder.answers.found import title_of
from trans_encoder.answers.index import Index, build_index
from trans_encoder.answers.objects import Storage, is_url, without_credentials
from trans_encoder.answers.published import located, writing
from trans_encoder.answers.store import write_cache
from trans_encoder.cli import app
from trans_encoder.data.corpus import Corpus
from trans_encoder.errors import ConfigurationError, DataError, RunError


@pytest.fixture
def url(tmp_path):
    """Where an index is published: Arrow's file system of this machine, through the code that writes to S3."""
    return (tmp_path / "bucket" / "tickets.index").as_uri()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Change to a machine of another name: one that has a cache of its own."""

    def change(name):
        monkeypatch.setenv("TRANS_ENCODER_CACHE", str(tmp_path / "machines" / name))

    change("first")
    return change


def rows(index):
    table = index.embedded
    return [(table.ids[row], table.text(row), table.vectors[table.place[row]].tolist()) for row in range(len(table))]


def published(tmp_path):
    return json.loads((tmp_path / "bucket/tickets.index/published.json").read_text(encoding="utf-8"))["files"]


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_what_one_machine_publishes_another_searches(tmp_path, url, machine, static, sentences):
    text = tmp_path / "rows.txt"
    text.write_text("\n".join(sentences[:20]), encoding="utf-8")
    made = command("index", "--text", text, "--model", static, "--out", url, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["out"] == url
    machine("second")
    found = command("search", url, sentences[3], "--top", 1, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["hits"][0]["text"] == sentences[3]
    done = command("duplicates", url, "--out", tmp_path / "answers", "--json")
    assert json.loads(done.stdout)["rows"] == 20
    assert not (tmp_path / "answers/index").exists(), "an index is not embedded again"
    assert len(find_duplicates(url).candidates) == len(find_duplicates(Index.open(url)).candidates)
    local = build_index(Corpus.read(text), tmp_path / "local", models=[str(static)])
    assert rows(Index.open(url)) == rows(local)


def test_only_files_that_changed_are_fetched_and_sent_again(tmp_path, url, machine, embedder, monkeypatch):
    moved = []
    upload, download = Storage.upload, Storage.download

    def sent(self, file, name):
        moved.append(("upload", file.name))
        upload(self, file, name)

    def fetched(self, name, file):
        moved.append(("download", file.name.removesuffix(".partial")))
        return download(self, name, file)

    monkeypatch.setattr(Storage, "upload", sent)
    monkeypatch.setattr(Storage, "download", fetched)
    build_index(Corpus.from_texts(["one boat", "two lamps"]), url, models=embedder)
    assert {name for way, name in moved} == set(published(tmp_path))
    machine("second")
    located(url)
    moved.clear()
    located(url)
    assert not moved
    build_index(Corpus.from_texts(["three nets"], ids=["c"]), url, models=embedder)
    assert [name for way, name in moved if name.startswith("vectors-00001")] == ["vectors-00001-00000.npy"]
    moved.clear()
    machine("first")
    assert [row[1] for row in rows(Index.open(url))] == ["one boat", "two lamps", "three nets"]
    there = {file.name for file in (tmp_path / "bucket/tickets.index/files").iterdir()}
    assert there == set(published(tmp_path).values()), "files of earlier states are removed"
    moved.clear()
    build_index(Corpus.from_texts(["three nets"], ids=["c"]), url, models=embedder)
    assert not [name for way, name in moved if way == "upload"], "nothing has changed"


class Death:
    """Kills this process at its n-th change of the storage, before or after it."""

    def __init__(self, left, *, after):
        self.left, self.after = left, after

    def __call__(self, change):
        def dying(storage, *arguments):
            self.left -= 1
            if self.left == 0 and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            change(storage, *arguments)
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        return dying


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_moment_readers_see_a_whole_index_and_the_same_command_continues(
    url, machine, embedder, sentences, monkeypatch, after
):
    monkeypatch.setattr(store, "SHARD", 8)
    first, more = Corpus.from_texts(sentences[:20]), Corpus.from_texts(sentences[:30])
    before = rows(build_index(first, url, models=embedder))

    def dies(number):
        def work():
            death = Death(number, after=after)
            for name in ("upload", "write", "remove"):
                setattr(Storage, name, death(getattr(Storage, name)))
            build_index(more, url, models=embedder)

        return in_a_process(work) != 0

    seen, kills = [], 0
    while dies(number=1 + kills):
        kills += 1
        assert kills < 40, "the command does not get on"
        machine("reader")
        seen.append(len(Index.open(url)))
        assert seen[-1] in (20, 30)
        machine("first")
    assert kills > 3
    assert seen == sorted(seen)
    machine("reader")
    after_all = rows(Index.open(url))
    assert (after_all[:20], len(after_all)) == (before, 30)


def test_two_writers_never_overwrite_each_other(url, machine, embedder):
    build_index(Corpus.from_texts(["one"], ids=["a"]), url, models=embedder)
    with writing(url) as work:
        made = build_index(Corpus.from_texts(["two"], ids=["b"]), work.folder, models=embedder)
        machine("second")
        build_index(Corpus.from_texts(["three"], ids=["c"]), url, models=embedder)
        machine("first")
        with pytest.raises(RunError, match=r"changed by another writer.*the same command again"):
            work.publish(store.files_of(made.path, made.manifest))
    machine("reader")
    assert Index.open(url).embedded.ids == ["a", "c"]
    machine("first")
    build_index(Corpus.from_texts(["two"], ids=["b"]), url, models=embedder)
    machine("reader")
    assert Index.open(url).embedded.ids == ["a", "c", "b"]


def test_a_second_writer_is_told_who_is_publishing(url, machine, embedder, monkeypatch):
    def interrupted(self, file, name):
        machine("second")
        build_index(Corpus.from_texts(["two"]), url, models=embedder)

    monkeypatch.setattr(Storage, "upload", interrupted)
    with pytest.raises(RunError, match=rf"another machine or process \(.*process {os.getpid()}, since .*remove file:"):
        build_index(Corpus.from_texts(["one"]), url, models=embedder)
    monkeypatch.undo()
    with pytest.raises(DataError, match="holds no index"):
        Index.open(url)


def test_two_commands_of_one_machine_take_turns(url, machine, embedder):
    with writing(url), pytest.raises(RunError, match="another process of this machine"), writing(url):
        pass


def test_an_index_that_was_removed_begins_anew(tmp_path, url, machine, embedder):
    import shutil

    build_index(Corpus.from_texts(["one"], ids=["a"]), url, models=embedder)
    shutil.rmtree(tmp_path / "bucket/tickets.index")
    build_index(Corpus.from_texts(["two"], ids=["b"]), url, models=embedder)
    assert Index.open(url).embedded.ids == ["b"]


def test_a_reader_of_what_was_removed_leaves_nothing_in_the_copy_of_what_came_after(tmp_path, url, machine, embedder):
    build_index(Corpus.from_texts(["one", "two"]), url, models=embedder)
    machine("server")
    before = Index.open(url)
    machine("first")
    shutil.rmtree(tmp_path / "bucket/tickets.index")
    build_index(Corpus.from_texts(["three", "four"]), url, models=embedder)
    machine("server")
    after = Index.open(url)
    assert before.manifest.generation == after.manifest.generation
    write_cache(before.path, before.manifest, "clusters.npz", lambda file: file.write_bytes(b"of one and two"))
    assert not list(after.path.glob("cache-*clusters.npz"))
    write_cache(after.path, after.manifest, "clusters.npz", lambda file: file.write_bytes(b"of three and four"))
    assert list(after.path.glob("cache-*clusters.npz"))


def test_a_reader_that_is_late_reads_the_newer_state(url, machine, embedder, monkeypatch):
    build_index(Corpus.from_texts(["one"], ids=["a"]), url, models=embedder)
    real = Storage.download

    def late(self, name, file):
        monkeypatch.setattr(Storage, "download", real)
        machine("second")
        build_index(Corpus.from_texts(["two"], ids=["b"]), url, models=embedder)
        return real(self, name, file)

    machine("reader")
    monkeypatch.setattr(Storage, "download", late)
    assert Index.open(url).embedded.ids == ["a", "b"]


def test_damaged_files_and_foreign_names_are_refused(tmp_path, url, machine, embedder):
    before = rows(build_index(Corpus.from_texts(["one"]), url, models=embedder))
    place = tmp_path / "bucket/tickets.index"
    machine("reader")
    damaged = place / "files" / published(tmp_path)["index.json"]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-3] + b"...")
    for work in (Index.open, lambda place: build_index(Corpus.from_texts(["one"]), place, models=embedder)):
        with pytest.raises(DataError, match=r"files/.* is damaged .*; remove it, and remove .*/published.json, then"):
            work(url)
    damaged.unlink()
    (place / "published.json").unlink()
    assert rows(build_index(Corpus.from_texts(["one"]), url, models=embedder)) == before, "the remedy works"
    assert damaged.read_bytes() == content
    state = json.loads((place / "published.json").read_text(encoding="utf-8"))
    for files in ({"../../outside": "0" * 64}, {"index.json": "../index.json"}, ["index.json"]):
        (place / "published.json").write_text(json.dumps({**state, "files": files}), encoding="utf-8")
        with pytest.raises(DataError, match=r"published.json cannot be read .*; remove .*/published.json, then"):
            Index.open(url)
    (place / "published.json").unlink()
    assert rows(build_index(Corpus.from_texts(["one"]), url, models=embedder)) == before, "the remedy works"
    assert not (tmp_path / "outside").exists()


def test_a_search_of_several_indexes_is_merged_by_score(url, machine, embedder, sentences):
    texts = list(dict.fromkeys(sentences))[:40]
    whole = build_index(Corpus.from_texts(texts, ids=texts), f"{url}-whole", models=embedder)
    for part in range(4):
        build_index(Corpus.from_texts(texts[part::4], ids=texts[part::4]), f"{url}-{part}", models=embedder)
    parts = [Index.open(f"{url}-{part}") for part in range(4)]
    for text in texts[:3]:
        hits = [hit for part in parts for hit in part.search(text, top=5)]
        nearest = sorted(whole.search(text, top=len(texts)), key=lambda hit: -hit.score)[0]
        assert max(hits, key=lambda hit: hit.score).id == nearest.id == text


def test_places_that_cannot_be_used_are_named(machine, static):
    with pytest.raises(ConfigurationError, match="foo://bucket/i cannot be used"):
        Index.open("foo://bucket/i")
    with pytest.raises(ConfigurationError, match="names no folder"):
        Index.open("s3://")
    with pytest.raises(ConfigurationError, match="give a URL such as s3://"):
        Index.open(Path("s3://bucket/i"))  # a path keeps one slash
    with pytest.raises(ConfigurationError, match="is a URL; give a folder on a disk"):
        find_duplicates(["one", "two", "three"], models=str(static)).save("s3://bucket/answers")
    assert not is_url("C:/index")


@pytest.mark.parametrize("url", ["s3://key:se/cret@bucket/i", "s3://key:se@cret@bucket/i", "foo://key:cret@bucket/i"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(ConfigurationError, match=r"://bucket/i cannot be used") as refused:
        Index.open(url)
    assert "cret" not in "".join(traceback.format_exception(refused.value))


def test_urls_are_shown_without_credentials():
    assert Storage.at("s3://key:secret@bucket/i?region=eu-west-1").url == "s3://bucket/i"
    assert without_credentials("s3:/key:se?cret@bucket/i") == "s3:/bucket/i", "a path keeps one slash"
    assert title_of("s3://key:secret@bucket?region=eu-west-1") == "bucket"
    assert without_credentials("abfss://container@account.dfs.core.windows.net/i") == (
        "abfss://container@account.dfs.core.windows.net/i"
    )
    assert without_credentials("who?/notes: a@b.index") == "who?/notes: a@b.index", "a folder is no URL"
