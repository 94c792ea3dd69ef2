"""The list of features that the size of the source is compared without."""

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "structure.py"


def test_what_is_listed_as_new_exists():
    spec = importlib.util.spec_from_file_location("structure", FILE)
    structure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(structure)
    texts = {path.relative_to(structure.SOURCE).as_posix(): path.read_text("utf-8") for path in structure.modules()}
    for place in (place for places in structure.NEW_FEATURES.values() for place in places):
        module, _, names = place.partition("::")
        assert any(each.startswith(module) if module.endswith("/") else each == module for each in texts), module
        assert [name for name in names.split() if not structure.definition(texts[module], name)] == [], module
