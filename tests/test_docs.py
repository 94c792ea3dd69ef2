"""The documentation: its reference is complete and made from the code, its code blocks run, its site is whole."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import trans_encoder
from documented import blocks, check, check_block, commands, shortened
from trans_encoder.cli import COMMANDS, app
from trans_encoder.config import EngineConfig, Inputs, MemberConfig, RunConfig, TeacherConfig, TrainingPlan
from trans_encoder.data.writers import write_pairs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RUN = sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md"), DOCS / "method.md", DOCS / "models.md"])
"""Pages whose code is run; that of all others takes hours: it is parsed, and test_measured_pages.py runs it small."""
NEEDS = {"models": "mteb"}
"""What a page's code imports and the other tests do without; .github/workflows/versions.yml has it."""
READ = sorted({*DOCS.glob("*.md"), *ROOT.glob("*.md")} - {*RUN, ROOT / "README.md"})
ENDLESS = {"serve"}
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(DOCS / "reference"))
    import pages

    yield pages
    sys.path.remove(str(DOCS / "reference"))


def test_every_setting_is_in_the_reference_with_its_docstring(pages):
    page = pages.settings_page()
    tables = {
        "": RunConfig,
        "members.": MemberConfig,
        "teachers.": TeacherConfig,
        "cross.": TrainingPlan,
        "inputs.": Inputs,
        "engine.": EngineConfig,
    }
    for prefix, model in tables.items():
        for name, info in model.model_fields.items():
            (row,) = [line for line in page.splitlines() if line.startswith(f"| `{prefix}{name}` |")][:1]
            assert " ".join(info.description.split()).replace("|", "\\|") in row


def test_every_command_is_in_the_reference_with_its_options(pages):
    page = pages.commands_page()
    for command in COMMANDS:
        _, _, part = page.partition(f"\n## {command.__name__}\n")
        part = part.split("\n## ")[0]
        assert f"Usage: trans-encoder {command.__name__}" in part
        assert f"\n```bash\ntrans-encoder {command.__name__}" in part, "its example"
        for option in get_command(app).commands[command.__name__].params:
            assert " ".join(option.help.split()).replace("|", "\\|") in part, option.name


def test_every_command_shows_an_output_that_a_command_of_today_could_give(pages, tmp_path, monkeypatch):
    recorded = {path.stem: path.read_text(encoding="utf-8") for path in pages.OUTPUTS.glob("*.txt")}
    assert {command.__name__ for command in COMMANDS} - set(recorded) == {"demo", "serve"}, "minutes long, and endless"
    page = pages.commands_page()
    for name, output in recorded.items():
        line, _, printed = output.partition("\n")
        (words,) = commands(line.removeprefix("$ "), tmp_path)
        assert words[:2] == ["trans-encoder", name]
        check(words, monkeypatch)
        assert printed.strip()
        assert printed.strip() in page


def test_every_public_name_is_in_the_reference(pages):
    page = pages.python_page()
    for name in trans_encoder.__all__:
        assert re.search(rf"^::: trans_encoder[\w.]*\.{name}$", page, flags=re.MULTILINE), name


def test_every_page_is_in_the_navigation_and_the_other_way_round(pages):
    named = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(SITE["nav"])))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    made = {*pages.ROOT_FILES.values(), *(f"reference/{name}.md" for name in pages.PAGES)}
    assert named == there | made


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_code_blocks_of_a_page_run_in_their_order(
    page, bert, roberta, pairs, dev, sentences, tmp_path, monkeypatch
):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem], reason="an extra that is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANS_ENCODER_CACHE", str(tmp_path / "cache"))
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    write_pairs(dev, tmp_path / "dev.jsonl")
    (tmp_path / "questions.txt").write_text("\n".join(sentences), encoding="utf-8")
    tickets = "".join(f"T{number},{text}\n" for number, text in enumerate(sentences[:20]))
    (tmp_path / "tickets.csv").write_text("ticket,body\n" + tickets, encoding="utf-8")
    names: dict[str, object] = {}
    for block in blocks(page):
        code = block.code.replace("MODEL", str(bert)).replace("TEACHER", str(roberta))
        code = code.replace("s3://bucket", (tmp_path / "bucket").as_uri())
        if block.language == "python":
            exec(compile(code, str(page), "exec"), names)
        elif block.language == "bash":
            for words in commands(code, tmp_path):
                check(words, monkeypatch)
                if words[0] == "trans-encoder" and words[1] not in ENDLESS:
                    done = CliRunner().invoke(app, shortened(words[1:]))
                    assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}"
        else:
            check_block(block)
            started = "".join(line for line in code.splitlines(keepends=True) if line.startswith("trans-encoder "))
            for words in commands(started, tmp_path):
                check(words, monkeypatch)


@pytest.mark.parametrize("page", READ, ids=lambda page: page.stem)
def test_programs_take_the_commands_of_a_page(page, tmp_path, monkeypatch):
    found = blocks(page)
    for words in commands("".join(block.code for block in found if block.language == "bash"), tmp_path):
        check(words, monkeypatch)
    for block in found:
        if block.language != "bash":
            check_block(block)
