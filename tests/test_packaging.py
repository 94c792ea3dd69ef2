"""What is published: few dependencies, bounds where names are private, links that work outside the repository."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trans_encoder.errors import MissingExtraError, import_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BLOB = f"{PROJECT['urls']['Source']}/blob/main/"

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
{code}
"""
USES = {
    "bm25s": ("mining", "from trans_encoder.mining.search import LexicalSearcher; LexicalSearcher(['a boat'])"),
    "datasets": ("hub", "from trans_encoder.data.hub import load_hub_split; load_hub_split('stsb/dev')"),
    "fastapi": ("serve", "import trans_encoder.serve.app"),
    "jinja2": ("report", "import trans_encoder.report.page"),
    "onnxruntime": ("onnx", "from trans_encoder.errors import import_extra; import_extra('onnxruntime', extra='onnx')"),
    "ray": ("ray", "from trans_encoder.errors import import_extra; import_extra('ray', extra='ray')"),
}


def test_the_base_install_needs_few_packages():
    assert len(PROJECT["dependencies"]) <= 16


def test_there_is_an_upper_bound_where_private_names_are_used():
    bounds = {re.split("[<>=]", line)[0]: line for line in PROJECT["dependencies"]}
    assert "<6" in bounds["transformers"]
    assert "<7" in bounds["sentence-transformers"]


@pytest.mark.parametrize("missing", USES)
def test_a_missing_extra_names_its_install_line(missing):
    extra, code = USES[missing]
    assert any(missing in line for line in PROJECT["optional-dependencies"][extra])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing, code=code)], capture_output=True, text=True, check=False
    )
    assert f'{missing} is not installed; install it with: pip install "trans-encoder[{extra}]"' in done.stderr


def test_an_extra_that_is_there_but_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "halved.py").write_text("import no_such_module_at_all", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        import_extra("halved", extra="mining")
    with pytest.raises(MissingExtraError):
        import_extra("no_such_module_at_all", extra="mining")


def test_links_of_the_readme_work_outside_the_repository():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    defined = dict(re.findall(r"^\[(.+?)\]: (\S+)$", text, flags=re.MULTILINE))
    assert set(re.findall(r"\]\[(.+?)\]", text)) == set(defined)
    links = [*re.findall(r"\]\((.*?)\)", text), *defined.values()]
    assert any(link.startswith(BLOB) for link in links)
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith(BLOB):
            assert (ROOT / link.removeprefix(BLOB)).exists(), link


def test_torch_is_pinned_alike_wherever_it_is_installed_first():
    (pinned,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in ("Makefile", "Dockerfile", ".ci/wheel"):
        assert pinned in (ROOT / name).read_text(encoding="utf-8"), name
