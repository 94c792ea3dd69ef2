"""Files are whole or absent, also where folders cannot be flushed and a rename is refused for a moment."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from trans_encoder import files
from trans_encoder.files import atomic_file, atomic_folder, cache_folder, checksums, read_json, write_json


@pytest.fixture
def no_folder_sync(monkeypatch, request):
    """Refuse to open folders, as Windows does, or to flush them, as some network disks do."""
    flushed = []
    real_open, real_sync = os.open, os.fsync

    def refuse_open(path, flags, *more, **named):
        if request.param == "open" and Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_open(path, flags, *more, **named)

    def refuse_sync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        flushed.append(descriptor)
        real_sync(descriptor)

    monkeypatch.setattr(os, "open", refuse_open)
    monkeypatch.setattr(os, "fsync", refuse_sync)
    return flushed


@pytest.fixture
def refused_renames(monkeypatch):
    """Refuse the first renames of each file, as Windows does while a virus scanner reads it."""
    left, real, waited = {}, Path.replace, []

    def replace(self, target):
        if left.setdefault(self, 3):
            left[self] -= 1
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(self))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(files.time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("no_folder_sync", ["open", "sync"], indirect=True)
def test_files_and_folders_are_written_where_folders_cannot_be_flushed(no_folder_sync, tmp_path):
    write_json(tmp_path / "file.json", {"a": 1})
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "inside").mkdir()
        (temporary / "inside" / "file").write_text("text", encoding="utf-8")
    assert read_json(tmp_path / "file.json") == {"a": 1}
    assert (tmp_path / "folder" / "inside" / "file").read_text(encoding="utf-8") == "text"
    assert len(no_folder_sync) == 2, "the files themselves were flushed"


def test_a_file_that_cannot_be_flushed_is_not_put_in_place(monkeypatch, tmp_path):
    def full(_):
        raise OSError(errno.EIO, "Input/output error")

    write_json(tmp_path / "file.json", {"a": 1})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="Input/output"):
        write_json(tmp_path / "file.json", {"a": 2})
    assert read_json(tmp_path / "file.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_rename_that_is_refused_for_a_moment_is_tried_again(refused_renames, tmp_path):
    for content in ("old", "new"):
        with atomic_file(tmp_path / "file") as temporary:
            temporary.write_text(content, encoding="utf-8")
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "file").write_text(content, encoding="utf-8")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"
    assert (tmp_path / "folder" / "file").read_text(encoding="utf-8") == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert refused_renames


def test_a_rename_that_is_refused_for_good_keeps_what_was_there(monkeypatch, tmp_path):
    write_json(tmp_path / "file.json", {"a": 1})
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("old", encoding="utf-8")
    monkeypatch.setattr(files.time, "sleep", lambda _: None)
    real = Path.replace

    def refuse(self, target):
        if self.name.endswith(files.PARTIAL):
            raise PermissionError(errno.EACCES, "Access is denied", str(self))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        write_json(tmp_path / "file.json", {"a": 2})
    with pytest.raises(PermissionError), atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("new", encoding="utf-8")
    assert read_json(tmp_path / "file.json") == {"a": 1}
    assert (tmp_path / "folder" / "file").read_text(encoding="utf-8") == "old"


def test_checksums_name_every_file(tmp_path):
    (tmp_path / "a").write_text("1", encoding="utf-8")
    shutil.copy(tmp_path / "a", tmp_path / "b")
    found = checksums(tmp_path)
    assert list(found) == ["a", "b"]
    assert found["a"] == found["b"]


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TRANS_ENCODER_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TRANS_ENCODER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "trans-encoder"
