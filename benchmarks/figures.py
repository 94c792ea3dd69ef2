"""Check that the figures quoted in the documentation are those of the stored results, and list what made them.

    python benchmarks/figures.py           # or: make figures

`docs/figures/figures.toml` names every stored result, the commands that made it, and the lines that quote it.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")


def looked_up(stored, path: str) -> float:
    """Follow a path such as `taught/scores/sts12`, or the mean of several: `seeds/*/average`."""
    found = [stored]
    for name in path.split("/"):
        if name == "*":
            found = [value for one in found for value in (one.values() if isinstance(one, dict) else one)]
        else:
            found = [one[int(name)] if isinstance(one, list) else one[name] for one in found]
    return sum(map(float, found)) / len(found)


def problems_of(figure) -> list[str]:
    """Return what is wrong with one stored result and its quotes."""
    stored = json.loads((FIGURES / figure["data"]).read_text(encoding="utf-8"))
    problems = []
    for quote in figure["quotes"]:
        text = (ROOT / quote["file"]).read_text(encoding="utf-8")
        if "section" in quote:
            text = re.split(r"\n##+ ", re.split(rf"\n##+ {re.escape(quote['section'])}\n", text)[-1])[0]
        lines = [line for line in text.splitlines() if line.startswith(quote["line"])]
        if len(lines) != 1:
            problems.append(f"{quote['file']}: {len(lines)} lines begin with {quote['line']!r}, expected one")
            continue
        shown = _NUMBER.findall(lines[0].removeprefix(quote["line"]).replace("**", ""))
        if len(shown) != len(quote["values"]):
            problems.append(f"{quote['file']}: {lines[0]!r} has {len(shown)} figures, expected {len(quote['values'])}")
            continue
        for number, path in zip(shown, quote["values"], strict=True):
            decimals = len(number.partition(".")[2])
            value = looked_up(stored, path)
            if f"{value:.{decimals}f}" != number.replace(",", ""):
                problems.append(
                    f"{quote['file']}: {quote['line']!r} shows {number}, {figure['data']} has {value:.2f} ({path})"
                )
    return problems


def main() -> None:
    figures = tomllib.loads((FIGURES / "figures.toml").read_text(encoding="utf-8"))["figure"]
    problems = [problem for figure in figures for problem in problems_of(figure)]
    for figure in figures:
        print(f"# {figure['data']}", figure["commands"].strip(), "", sep="\n")
    print(*problems, sep="\n", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
