"""Commands in the locale C, where Python takes every byte beyond ASCII for a surrogate."""

import json
import os
import subprocess
import sys

import pytest

GREEK = "\N{GREEK SMALL LETTER ALPHA} \N{GREEK SMALL LETTER BETA} \N{GREEK SMALL LETTER GAMMA}"


@pytest.mark.skipif(sys.platform == "win32", reason="has no such locale")
def test_the_locale_c_takes_texts_beyond_ascii(static, tmp_path):
    (tmp_path / "rows.csv").write_text(f"größe,text\n5,{GREEK}\n7,a boat\n9,two lamps\n", encoding="utf-8")
    elsewhere = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = "import sys; from trans_encoder.cli import main; main()"

    def started(*words):
        command = [sys.executable, "-c", script, *(str(word) for word in words)]
        found = subprocess.run(command, cwd=tmp_path, env=os.environ | elsewhere, capture_output=True, check=False)
        return found.returncode, found.stdout.decode(), found.stderr.decode()

    options = ("--model", static, "--id", "größe", "--prompt", "ä: ", "--out", "i", "--json")
    code, _, said = started("index", "--text", "rows.csv", *options)
    assert code == 0, said
    code, shown, said = started("search", "i", GREEK, "--where", f'id == "5" and id != "{GREEK}"', "--json")
    assert code == 0, said
    assert [hit["text"] for hit in json.loads(shown)["hits"]] == [GREEK]
    code, _, said = started("search", "i", os.fsdecode(b"caf\xe9"))
    assert code == 2, said
    assert len(said.splitlines()) == 1, said
    assert "is not UTF-8" in said
