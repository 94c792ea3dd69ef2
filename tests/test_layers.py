"""Imports go one way: down the table of docs/architecture.md."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import trans_encoder

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "trans_encoder"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def layers() -> dict[str, int]:
    """Return the place of each part of the package in the architecture's table, from the top."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| (.*?) \|", table, flags=re.MULTILINE)
    return {
        name.rstrip("/").removesuffix(".py"): place
        for place, row in enumerate(rows)
        for name in re.findall("`(.*?)`", row)
    }


def imported(path: Path, *, at_run_time: bool = False) -> set[str]:
    """Return what a file imports from this package, as dotted names without the package."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if at_run_time:
        tree.body = [node for node in tree.body if not ast.unparse(node).startswith("if TYPE_CHECKING")]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the full name"
            if [alias.name for alias in node.names] != ["__version__"]:
                names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.removeprefix("trans_encoder").lstrip(".") for name in names if name.split(".")[0] == "trans_encoder"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def test_every_module_has_a_layer():
    parts = {name_of(path).split(".")[0] for path in MODULES}
    assert parts <= set(layers()), "add these to the table in docs/architecture.md"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_above(path):
    order = layers()
    part = name_of(path).split(".")[0]
    for name in imported(path):
        assert name, f"{name_of(path)} imports the public names; import from the module that defines them"
        assert order[name.split(".")[0]] <= order[part], f"{name_of(path)} imports {name}, which is below it"


def test_no_module_imports_itself_in_a_circle():
    known = {name_of(path) for path in MODULES}
    graph = {name_of(path): (imported(path, at_run_time=True) & known) - {name_of(path)} for path in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def test_no_module_imports_more_than_twelve_others():
    own_imports = runpy.run_path(str(ROOT / "benchmarks" / "structure.py"))["own_imports"]
    counts = {name_of(path): len(own_imports(path)) for path in MODULES}
    assert {name: count for name, count in counts.items() if count > 12} == {}


def test_no_catch_all_modules():
    assert not {path.stem for path in MODULES} & {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_nothing_that_only_developers_install_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    developers = {re.split("[^A-Za-z0-9-]", line)[0] for line in project["optional-dependencies"]["dev"]}
    assert "matplotlib" in developers
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"^\s*(?:import|from) (\w+)", text, flags=re.MULTILINE)) - {"trans_encoder"}
        assert not {name.replace("_", "-") for name in found} & developers, path


def test_every_public_name_is_there_and_has_one_home():
    assert list(trans_encoder._HOMES) == trans_encoder.__all__ == sorted(trans_encoder.__all__)
    for name in trans_encoder.__all__:
        found = getattr(trans_encoder, name)
        assert callable(found)
        assert found.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trans_encoder.nothing


def test_the_package_imports_without_torch():
    code = "import sys, trans_encoder as t; t.TransEncoderError; dir(t); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
