"""Check that the figures quoted in the documentation are those of the stored results, and list what made them.

    python benchmarks/figures.py           # or: make figures

`docs/figures/figures.toml` names every stored result, the commands that made it, and the lines that quote it. Every
figure of the README must be quoted from there; a table of `docs/` that is not must have its command in its section, or
in the one around it. Figures are numbers with decimals outside code; the tests check that programs take the commands.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
NO_FIGURES = ("log.md", "method.md", "reference")
"""The log, whose entries are as they were written, the paper's settings, and pages that are made from the code."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_FIGURE = re.compile(r"(?<![\w./-])-?\d+\.\d+(?!\w|\.\d)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:make|python|trans-encoder|torchrun|\.ci/\w+) \S.*")


class Section(NamedTuple):
    """A section of a page, without those inside it."""

    page: str
    titles: tuple[str, ...]
    """Its own title last, after those of the sections around it."""
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines that show figures."""
        lines = _FENCE.sub("", self.text).splitlines()
        return [line for line in lines if _FIGURE.search(re.sub(r"`[^`]*`|\]\(.*?\)", "", line))]

    @property
    def commands(self) -> list[str]:
        """The commands in its blocks, and those within its sentences."""
        fenced = [code.replace("\\\n", " ") for language, code in _FENCE.findall(self.text) if language == "bash"]
        spans = re.findall(r"`([^`]+)`", _FENCE.sub("", self.text))
        lines = [line.strip() for line in "\n".join([*fenced, *spans]).splitlines()]
        return list(dict.fromkeys(" ".join(line.split()) for line in lines if _COMMAND.match(line)))


def looked_up(stored: Any, path: str) -> float:
    """Follow a path such as `taught/scores/sts12`, or the mean of several: `seeds/*/average`."""
    found = [stored]
    for name in path.split("/"):
        if name == "*":
            found = [value for one in found for value in (one.values() if isinstance(one, dict) else one)]
        else:
            found = [one[int(name)] if isinstance(one, list) else one[name] for one in found]
    return sum(map(float, found)) / len(found)


def quoted_lines(quote: Mapping[str, Any]) -> list[str]:
    """Return the lines of a page that a quote is about; one if all is well."""
    text = (ROOT / quote["file"]).read_text(encoding="utf-8")
    if "section" in quote:
        text = re.split(r"\n##+ ", re.split(rf"\n##+ {re.escape(quote['section'])}\n", text)[-1])[0]
    return [line for line in text.splitlines() if line.startswith(quote["line"])]


def problems_of(figure: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with one stored result and its quotes."""
    stored = json.loads((FIGURES / figure["data"]).read_text(encoding="utf-8"))
    problems = []
    for quote in figure["quotes"]:
        lines = quoted_lines(quote)
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


def pages() -> list[Path]:
    """Return the pages of the documentation that show figures."""
    return [path for path in sorted(ROOT.glob("docs/**/*.md")) if not {*path.parts} & {*NO_FIGURES}]


def sections(page: Path) -> Iterator[Section]:
    """Split a page at its headings."""
    titles: list[str] = []
    name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    code = [range(*found.span()) for found in _FENCE.finditer(text)]  # a comment of bash looks like a heading
    heads = [
        head for head in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE) if not any(head.start() in c for c in code)
    ]
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=True):
        titles[len(head[1]) - 1 :] = [head[2]]
        yield Section(name, tuple(titles), text[head.end() : end])


def uncovered(figures: list[Mapping[str, Any]], plain: list[str]) -> list[str]:
    """Return the lines of the README whose figures no stored result has; `plain` lines show none."""
    quoted = {line for figure in figures for quote in figure["quotes"] for line in quoted_lines(quote)}
    lines = [line for section in sections(ROOT / "README.md") for line in section.lines]
    return [
        f"README.md: no stored result is quoted by {line!r}; see CONTRIBUTING.md, Results"
        for line in lines
        if line not in quoted and not any(each in line for each in plain)
    ]


def sources(places: list[Path]) -> tuple[list[tuple[Section, list[str]]], list[str]]:
    """Return the sections that show figures, each with its commands or those around it, and tables without any."""
    found, problems = [], []
    for page in places:
        known: dict[tuple[str, ...], list[str]] = {}
        for section in sections(page):
            commands = known[section.titles] = section.commands or known.get(section.titles[:-1], [])
            if section.lines:
                found.append((section, commands))
                if not commands and any(line.startswith("|") for line in section.lines):
                    problems.append(f"{section.page}: the table of {section.titles[-1]!r} has no command")
    return found, problems


def main() -> None:
    """Print the commands of every figure; exit with 1 and a list if anything is wrong."""
    listed = tomllib.loads((FIGURES / "figures.toml").read_text(encoding="utf-8"))
    figures = listed["figure"]
    found, problems = sources(pages())
    problems += [problem for figure in figures for problem in problems_of(figure)]
    problems += uncovered(figures, listed["plain"])
    for figure in figures:
        print(f"# {figure['data']}", figure["commands"].strip(), "", sep="\n")
    for section, commands in found:
        print(f"# {section.page}, {section.titles[-1]}", *commands, "", sep="\n")
    print(*problems, sep="\n", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
