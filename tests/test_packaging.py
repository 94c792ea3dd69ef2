"""What is published: few dependencies, all that is imported, bounds for private names, links that work anywhere."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trans_encoder.errors import MissingExtraError, import_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted((ROOT / "src" / "trans_encoder").rglob("*.py"))
DISTRIBUTIONS = {
    "faiss": "faiss-cpu",
    "markdown_it": "markdown-it-py",
    "pydantic_core": "pydantic",  # which requires one exact version of it
    "sklearn": "scikit-learn",
}
"""The names of packages whose modules are called differently."""

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


def distribution(line):
    """Return the name in a line of pyproject.toml's dependencies."""
    return re.split(r"[\[<>=]", line)[0].replace("_", "-").lower()


def imported(path):
    """Yield the top-level modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def test_the_base_install_needs_few_packages():
    assert len(PROJECT["dependencies"]) <= 16


def test_everything_that_is_imported_is_declared():
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    declared = {distribution(line) for line in PROJECT["dependencies"] + extras}
    modules = {module for path in SOURCES for module in imported(path)} - set(sys.stdlib_module_names)
    assert {DISTRIBUTIONS.get(name, name).replace("_", "-") for name in modules - {"trans_encoder"}} <= declared


def test_there_is_an_upper_bound_where_private_names_are_used():
    bounds = {distribution(line): line for line in PROJECT["dependencies"]}
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


def links(text):
    """Return what the links of a Markdown text point to."""
    defined = dict(re.findall(r"^\[(.+?)\]: (\S+)$", text, flags=re.MULTILINE))
    assert set(re.findall(r"\]\[(.+?)\]", text)) == set(defined)
    return {*re.findall(r"\]\((.*?)\)", text), *defined.values()}


def test_links_of_the_readme_work_in_the_repository_and_on_a_package_index():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    inside = {link for link in links(readme) if not link.startswith("https://")}
    assert "docs/results.md" in inside
    assert [link for link in inside if not (ROOT / link.partition("#")[0]).is_file()] == []
    published = runpy.run_path(str(ROOT / "setup.py"))["long_description"](readme)
    assert links(published) == links(readme) - inside
    assert "what did not work are in docs/results.md.\n" in published


def test_torch_is_pinned_alike_wherever_it_is_installed_first():
    (pinned,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in ("Makefile", "Dockerfile", ".ci/wheel"):
        assert pinned in (ROOT / name).read_text(encoding="utf-8"), name
