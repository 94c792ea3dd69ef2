"""The part of the packaging that pyproject.toml cannot express: the package index's copy of README.md."""

import re
from pathlib import Path

from setuptools import setup


def long_description(readme: str) -> str:
    """Return a README without its links into the repository: a package index has no such files beside it."""
    inside = re.findall(r"^\[(.+?)\]: (?!https:)\S+\n", readme, flags=re.MULTILINE)
    text = re.sub(r"^\[.+?\]: (?!https:)\S+\n", "", readme, flags=re.MULTILINE)
    for name in inside:
        text = re.sub(rf"\[([^\[\]]+)\]\[{re.escape(name)}\]", r"\1", text)
    return text


if __name__ == "__main__":
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    setup(long_description=long_description(readme), long_description_content_type="text/markdown")
