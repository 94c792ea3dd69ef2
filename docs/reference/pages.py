"""Hooks of mkdocs: the reference is made from the code itself, and the repository's own files are pages, too.

`python docs/reference/pages.py FOLDER` writes the pages of the reference to a folder.
"""

import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

_TABLES = (
    ("The run", "RunConfig", ""),
    ("Members", "MemberConfig", "members."),
    ("Teachers", "TeacherConfig", "teachers."),
    ("Training", "TrainingPlan", "cross."),
    ("Inputs", "Inputs", "inputs."),
    ("Engine", "EngineConfig", "engine."),
)

_PARTS = {
    "Answers": ("find_duplicates", "Duplicates", "build_index", "Index", "Audit", "serve_index", "Corpus"),
    "Training": ("distil", "Result", "plan_run", "learn", "bootstrap", "ensemble_run", "write_report"),
    "Encoders": ("load_encoder", "BiEncoder", "CrossEncoder", "export"),
    "Measuring": ("evaluate", "Evaluation", "probe", "ProbeResult", "experiment", "run_demo"),
    "Data": ("PairSet", "TestSet", "Text", "Task", "load_task", "mine", "label", "PseudoLabels"),
    "Settings": ("RunConfig", "MemberConfig", "TeacherConfig", "load_config"),
    "Errors": ("TransEncoderError", "ConfigurationError", "DataError", "MissingExtraError", "RunError"),
}
"""The public names in the order of the reference; those that are not here come last."""

OUTPUTS = Path(__file__).parent / "outputs"
"""What commands printed when record.py ran them."""


def settings_page() -> str:
    """Return every setting with its type, default, presets and description."""
    from trans_encoder import config
    from trans_encoder.config import PRESETS

    parts = [
        "# Settings",
        "",
        "Each can be given in a TOML file, on the command line with `--set KEY=VALUE` and in Python by name. What is",
        "not given comes from the preset, then from the default.",
    ]
    preset = {
        name for settings in PRESETS.values() for key, _ in _flat(settings) for name in (key, key.partition(".")[0])
    }
    for title, name, prefix in _TABLES:
        model = getattr(config, name)
        parts += ["", f"## {title}", "", " ".join((model.__doc__ or "").split())]
        if prefix == "cross.":
            parts += ["", "The same settings exist as `bi.`, for bi-encoders; presets may differ."]
        parts += ["", "| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
        for field, info in model.model_fields.items():
            cells = (
                f"`{prefix}{field}`",
                _type(info.annotation),
                _default(info, is_preset=prefix + field in preset),
                _text(info.description or ""),
            )
            parts.append("| " + " | ".join(cells) + " |")
    parts += ["", "## Presets", "", "| setting | " + " | ".join(f"`{name}`" for name in PRESETS) + " |"]
    parts.append("| --- " * (len(PRESETS) + 1) + "|")
    flat = {name: dict(_flat(preset)) for name, preset in PRESETS.items()}
    for key in dict.fromkeys(key for preset in flat.values() for key in preset):
        parts.append(f"| `{key}` | " + " | ".join(str(preset.get(key, "")) for preset in flat.values()) + " |")
    return "\n".join(parts) + "\n"


def _type(annotation: Any) -> str:
    options = [option for option in _literals(annotation) if isinstance(option, str)]
    if options:
        others = [name for kind, name in ((int, "a number"), (type(None), "not given")) if kind in get_args(annotation)]
        return " or ".join([*(f"`{option}`" for option in options), *others])
    name = getattr(annotation, "__name__", None) if not get_args(annotation) else None
    shown = name or re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation))
    parts = [f"`{part}`" for part in shown.split(" | ") if part != "None"]
    parts = [re.sub(r"^`tuple\[(\w+), \.\.\.\]`$", r"list of `\1`", part) for part in parts]
    return " or ".join([*parts, "not given"] if len(parts) < len(shown.split(" | ")) else parts)


def _literals(annotation: Any) -> list[Any]:
    """Return the values that a type names, also one of several."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def _default(info: Any, *, is_preset: bool) -> str:
    if info.is_required():
        return "from the preset" if is_preset else "required"
    return f"`{info.default!r}`"


def _text(text: str) -> str:
    """Escape the bars that would end a table's cell; within code they do not, and a backslash would be shown."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts))


def _flat(settings: dict[str, Any], prefix: str = "") -> Any:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def commands_page() -> str:
    """Return every command with its example and its options, from the command line itself."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from trans_encoder.cli import COMMANDS, app

    environment = {"COLUMNS": "300", "TERMINAL_WIDTH": "300", "NO_COLOR": "1", "TERM": "dumb"}
    commands = get_command(app).commands  # type: ignore[attr-defined]
    parts = ["# Commands", "", "Every command has `--help`, and `--json`, which prints exactly one JSON object.", ""]
    parts += ["Shown outputs are real: `docs/reference/record.py` ran each command on small public models and kept its"]
    parts += ["standard output."]
    for command in COMMANDS:
        name = command.__name__.replace("_", "-")
        shown = CliRunner().invoke(app, [name, "--help"], env=environment).stdout
        usage = next(line.strip() for line in shown.splitlines() if "Usage:" in line)
        about, _, example = (commands[name].help or "").partition("Example: ")
        parts += ["", f"## {name}", "", about.strip(), "", "```bash", example.strip().strip("`"), "```", ""]
        if (output := OUTPUTS / f"{name}.txt").exists():
            parts += ["```text", output.read_text(encoding="utf-8").rstrip(), "```", ""]
        parts += ["```text", usage, "```", "", "| option | default | meaning |", "| --- | --- | --- |"]
        parts += [_option_row(option) for option in commands[name].params]
    return "\n".join(parts) + "\n"


def _option_row(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    value = option.metavar or "|".join(choice for choice in get_args(annotation) if isinstance(choice, str))
    shown = value or option.name.upper()
    if option.opts[0].startswith("-"):
        shown = ", ".join([*option.opts, *option.secondary_opts])
        if not option.is_flag:
            shown += f" {value or getattr(annotation, '__name__', '')}"
    given = option.default not in (None, False, (), [])
    default = "required" if option.required else f"`{option.default}`" if given else ""
    meaning = (option.help or "") + (" (may be repeated)" if option.multiple and "repeat" not in option.help else "")
    return f"| `{shown}` | {default} | {_text(meaning)} |"


def python_page() -> str:
    """Return the public names by what they are for, each documented where it is defined."""
    import trans_encoder

    # Not imported: mkdocstrings reads the source.
    left = dict(trans_encoder._HOMES)
    parts = ["# Python", "", "Everything here is imported from `trans_encoder` itself."]
    for title, names in (*_PARTS.items(), ("Others", tuple(left))):
        shown = [f"::: trans_encoder.{left.pop(name)}.{name}" for name in names if name in left]
        parts += ["", f"## {title}", *(line for each in shown for line in ("", each))] if shown else []
    return "\n".join(parts) + "\n"


PAGES = {"commands": commands_page, "settings": settings_page, "python": python_page}
ROOT_FILES = {"README.md": "index.md", **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}}
"""Files beside docs/ that are pages of the site, and what they are called there."""


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages of the reference, and the repository's own files."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    root = Path(config["config_file_path"]).parent
    for name, page in ROOT_FILES.items():
        files.append(File.generated(config, page, content=(root / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, "LICENSE", content=(root / "LICENSE").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links between docs/ and the files beside it at the places that these have on the site."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it has no pages beside it, and its commands are long
    if page.file.src_uri in ROOT_FILES.values():
        return re.sub(r"(\]\(|^\[.+?\]: )docs/", r"\1", markdown, flags=re.MULTILINE)
    return re.sub(rf"\]\(\.\./({'|'.join(map(re.escape, ROOT_FILES))})", r"](\1", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Refuse a site that would load anything from elsewhere."""
    from mkdocs.exceptions import PluginError

    for page in sorted(Path(config["site_dir"]).rglob("*.html")):
        loads = r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
        if found := re.findall(loads, page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.name} loads {', '.join(found)}; the site must be whole without a network")


if __name__ == "__main__":
    for page, write in PAGES.items():
        (Path(sys.argv[1]) / f"{page}.md").write_text(write(), encoding="utf-8")
