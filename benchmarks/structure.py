"""Measure the structure of the source: its size, how many modules a module imports, how deep a training step lies.

    python benchmarks/structure.py
    PYTHONPATH=OLDER/src python benchmarks/structure.py --no-stack    # the sizes of another checkout

The source is counted as a whole and without `NEW_FEATURES`, so that it can be compared with a commit that lacked them.
What serves older and newer features inside one definition counts in full, so the comparison favours the older commit.
Code is what remains without blank lines, comments, docstrings and imports.

The stack is taken from a real run of one short cycle on a tiny model, when the optimiser steps: the distinct files of
this package from the command line to `optimizer.step`, those of the command line itself counted apart.
"""

import ast
import io
import json
import sys
import textwrap
import tokenize
import traceback
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import trans_encoder

SOURCE = Path(trans_encoder.__file__).parent
NEW_FEATURES = {
    "answers": (
        "answers/",
        "cli/answers/",
        "cli/measuring/demo.py::_answers gains",
        "cli/reading.py::read_corpus",
        "data/corpus.py",
        "demo/run.py::Answers first_answers",
        "report/answers.py",
    ),
    "server": ("serve/",),
    "frozen teachers, merging, calibration": (
        "cli/groups.py::JobOptions.teacher JobOptions.ask",
        "config/participants.py::FUNCTION SCORE_FILES TeacherConfig",
        "config/run_config.py::_teachers_named RunConfig.teachers RunConfig.lexical RunConfig.ask RunConfig.scale",
        "config/run_config.py::RunConfig.merge RunConfig.calibrate RunConfig.keep_agreed",
        "data/pairs.py::swapped",
        "data/wording.py::matched_words _share",
        "distill/labels.py::_scored on_scale_of agreed Consensus Known Cached",
        "distill/preparing.py::ScoreHeldOut",
        "distill/team.py::_with_wording merge_of",
        "distill/team.py::knows_labels _brings_labels",
        "distill/work.py::load_start _calibrated _targets _consensus",
        "distill/team.py::assemble_teachers check_coverage check_models",
        "encoders/calibrating.py",
        "encoders/matching.py",
        "encoders/merging.py",
        "pipelines/planning.py::_teaching",
        "report/labels.py::members _on_known_scales",
        "teachers/checks.py::_check_plain",
        "teachers/asking.py",
        "teachers/frozen.py",
        "teachers/scales.py",
    ),
    "judging by other encoders": (
        "distill/conclusion.py::_told",
        "distill/judges.py::can_judge harm_notes _harm_note Judge.weigh DevJudge.weigh LabelFreeJudge.weigh",
        "distill/selection.py::verdict_of choose_by_views",
        "distill/team.py::views_of _may_be_strong",
        "distill/work.py::_views",
        "runs/records.py::Evidence",
        "teachers/views.py",
    ),
    "without labels, only starts below shared wording are judged": (
        "distill/conclusion.py::_floor",
        "distill/judges.py::Judge.floor DevJudge.floor LabelFreeJudge.floor",
    ),
    "learning from saved labels": (
        "cli/training/learn.py",
        "distill/cards.py::write_learnt_card",
        "pipelines/learn.py",
    ),
    "lengths and prompts": (
        "cli/groups.py::JobOptions.prompts",
        "cli/jobs.py::_with_members",
        "cli/options.py::MaxTokens Prompt1 Prompt2 PromptOption PromptOptions choose_prompts",
        "cli/output.py::say_all_cuts say_cuts",
        "config/participants.py::_Prompted",
        "config/plans.py::_length given_tokens",
        "encoders/bi.py::use_prompts _apart whole_lengths",
        "encoders/cross.py::whole_lengths",
        "encoders/tokens.py::_by_side",
        "pipelines/planning.py::PlannedLength SHORT _length",
        "report/measuring.py::count_test_cuts",
        "distill/conclusion.py::_cuts learnt_lengths",
        "encoders/lengths.py",
        "encoders/loading.py::token_limit",
        "encoders/prompts.py",
        "runs/records.py::Cuts",
    ),
    "ONNX models, 8 bits": (
        "encoders/encoder.py::_load_graph",
        "encoders/onnx.py",
        "exporting/__init__.py::read_loss",
        "exporting/graph.py::describe",
        "exporting/int8.py",
    ),
    "pickled weights, portable folders": (
        "encoders/converting.py",
        "encoders/loading.py::_hub_pickles _hub_file",
        "encoders/portable.py",
    ),
    "probes and hard pairs": (
        "config/run_config.py::RunConfig.hard_pairs",
        "distill/labels.py::with_hard_pairs",
        "evaluation/flipped.py",
        "evaluation/flips.py",
        "evaluation/probe.py",
        "report/view.py::flips",
    ),
    "saved ensembles, which models to ship": (
        "cli/training/ensemble.py",
        "cli/training/train.py::_to_ship",
        "distill/run.py::to_ship",
        "pipelines/ensemble.py",
        "evaluation/ensembles.py",
    ),
    "mteb": ("evaluation/mteb.py",),
    "every cosine of a batch": (
        "config/run_config.py::RunConfig.in_batch",
        "distill/cycle.py::_embed",
        "distill/labels.py::Cosines",
        "distill/preparing.py::Embed",
        "distill/team.py::_in_batch",
        "distill/team.py::embedders_of",
        "distill/work.py::Cycle.embeddings Cycle.embedders Cycle.embedders_of",
        "distill/work.py::Label.embedded Train.embedded Train._in_batch",
        "encoders/bi.py::unit_vectors",
        "encoders/in_batch.py",
        "encoders/training.py::InBatchDistillation",
        "runs/layout.py::embeddings",
    ),
    "weak starts, tuning by teachers": (
        "cli/groups.py::JobOptions.objective",
        "config/run_config.py::Inputs.objective RunConfig.directions",
        "distill/bootstrap/similarities.py",
        "distill/bootstrap/stage.py::check_teachers _teachers",
        "distill/bootstrap/tuning.py::_match_similarities",
        "distill/cycle.py::_without_directions",
        "distill/preparing.py::RemoveDirections",
        "distill/team.py::with_start",
        "encoders/bi.py::followed_by",
        "encoders/directions.py",
        "pipelines/from_text.py::_bi_encoders",
        "runs/layout.py::cleared_start",
    ),
    "encoders of the demo out of wheels": (
        "demo/start.py::DemoModels demo_models unpack convert_teacher convert_reranker _convert claim_start",
    ),
    "sequential ensembles, gradients of the appendix": (
        "distill/cycle.py::run_in_turn",
        "encoders/losses.py::logit_gradients",
        "paper/measuring.py::_gradient",
        "report/view.py::gradients",
    ),
    "other columns of pairs are kept": (
        "data/columns.py::free_names",
        "data/pairs.py::_core",
        "data/readers.py::_alike with_other_columns _free _as_column _beside",
    ),
    "pairs that are all alike are refused": ("data/pairs.py::all_alike check_varied",),
    "labels by several passes with dropout": ("config/run_config.py::RunConfig.passes", "encoders/passes.py"),
    "a first cycle on a share of the pairs": (
        "config/run_config.py::RunConfig.first_share",
        "distill/run.py::first_pairs",
    ),
    "the STS pool out of its parts, with its unscored inputs": ("data/tasks.py::_STS_UNSCORED _pool_notes",),
    "Windows and macOS, locales without UTF-8": (
        "cli/options.py::as_text",
        "config/participants.py::_DEVICE names_device",
        "cli/output.py::accept_all_characters is_unicode",
        "files.py::_RENAME_WAITS _SYNC_MODE _NO_FOLDER_SYNC _rename",
    ),
    "trainings end when nothing is gained": (
        "config/plans.py::OptimisationPlan.patience",
        "encoders/trainer.py::gains_nothing",
    ),
    "times over all attempts at a stage": (
        "runs/layout.py::is_scratch scratch_time",
        "runs/stages.py::_Attempts attempted _earlier_seconds _note",
    ),
    "runs of other versions and models that cannot be run are refused": (
        "encoders/loading.py::_refuse_folder_of_models check_layout",
        "runs/claims.py::_other_format",
    ),
    "a guessed pooling is told": ("encoders/bi.py::_warn_of_guess", "encoders/known.py::copy_of"),
    "results on the dev set in model cards": ("distill/cards.py::_evaluation",),
    "a note on models too large for the preset small": ("encoders/loading.py::parameter_count",),
    "the speed-ups can be switched off, and are compared with the plain passes": (
        "config/run_config.py::RunConfig.fast fast_option",
        "encoders/runners.py",
        "fast/packing.py::has_hooks",
        "fast/runner.py::agrees first_inputs _warn",
    ),
    "progress as plain lines": ("progress.py::_Display _Lines _display",),
    "dropout that does not depend on threads": (
        "fast/randomness.py",
        "fast/runner.py::ThreadedTraining.begin_step PackedTraining.prepare ThreadedTraining.prepare",
        "runner.py::TrainingSession.begin_step",
    ),
}
"""What commit 203c5e1 could not do: modules, folders, and definitions (after `::`) that are about nothing else."""


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-stack", action="store_true", help="do not train to see the stack")
    arguments = parser.parse_args()
    fan_out = {name_of(path): len(own_imports(path)) for path in modules()}
    widest = sorted(fan_out, key=lambda name: -fan_out[name])[:5]
    stack = [] if arguments.no_stack else step_stack()
    whole = size(path.read_text(encoding="utf-8") for path in modules())
    features = {name: size(parts_of(places)) for name, places in NEW_FEATURES.items()}
    found = {
        "all": whole,
        "without_new_features": {
            unit: whole[unit] - sum(each[unit] for each in features.values()) for unit in ("lines", "code")
        },
        "new_features": features,
        "widest": {name: fan_out[name] for name in widest},
        "stack": stack,
        "files_on_the_stack": len(stack),
        "of_these_in_cli": sum(file.startswith("cli/") for file in stack),
    }
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{len(modules())} files")
    for name, each in {"all": found["all"], **found["new_features"], "the rest": found["without_new_features"]}.items():
        print(f"{name}: {each['lines']:,} lines, {each['code']:,} of code")
    print("own modules imported: " + ", ".join(f"{name} {count}" for name, count in found["widest"].items()))
    if stack:
        in_cli = found["of_these_in_cli"]
        print(f"{len(stack)} files from the command line to optimizer.step ({in_cli} of cli/): {', '.join(stack)}")


def parts_of(places: Iterable[str]) -> Iterator[str]:
    """Yield the text of each module and definition that belongs to a feature."""
    for place in places:
        name, _, definitions = place.partition("::")
        for path in modules():
            module = path.relative_to(SOURCE).as_posix()
            if not (module == name or (name.endswith("/") and module.startswith(name))):
                continue
            text = path.read_text(encoding="utf-8")
            yield from [definition(text, each) for each in definitions.split()] or [text]


def definition(text: str, name: str) -> str:
    """Return the text of a function, method, class, constant or CLASS.FIELD; empty if another checkout lacks it."""
    tree = ast.parse(text)
    owner, _, last = name.rpartition(".")
    within = [node for node in tree.body if _name_of(node) == owner] if owner else [tree]
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] if not owner else []
    for node in [*(each for part in within for each in part.body), *methods]:
        if _name_of(node) == last:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            return textwrap.dedent("".join(text.splitlines(keepends=True)[first - 1 : node.end_lineno]))
    return ""


def _name_of(node: ast.AST) -> str | None:
    """Return what a function, class or assignment defines."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return getattr(node, "name", None) or getattr(targets[0], "id", None)


def size(texts: Iterable[str]) -> dict[str, int]:
    found = list(texts)
    return {
        "lines": sum(len(text.splitlines()) for text in found),
        "code": sum(code_lines(text) for text in found),
    }


def code_lines(text: str) -> int:
    """Count lines without blank ones, comments, docstrings (those of fields, too) and imports."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if string or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, node.end_lineno + 1))
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in empty]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - left_out)


def modules() -> list[Path]:
    """Return every module but the one that only lists the public names."""
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def own_imports(path: Path) -> set[str]:
    """Return the modules of this package that a module imports at run time, at any place in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith("if TYPE_CHECKING")]
    known = {name_of(each) for each in modules()}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "trans_encoder":
            parent = node.module.partition(".")[2]
            for alias in node.names:  # `from package import module` is an import of the module
                child = f"{parent}.{alias.name}".lstrip(".")
                found.add(child if child in known and alias.name not in door(parent) else parent)
    return found - {""}


def door(package: str) -> set[str]:
    """Return the names that a package itself offers, some of which are names of its modules as well."""
    path = SOURCE.joinpath(*package.split("."), "__init__.py")
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def step_stack() -> list[str]:
    """Return the package's files on the stack at the first optimiser step of a run, from the command inwards."""
    import torch

    stacks: list[list[str]] = []

    def note(*_: object) -> None:
        if not stacks:
            stacks.append([frame.filename for frame in traceback.extract_stack()])

    from torch.optim.optimizer import register_optimizer_step_pre_hook

    hook = register_optimizer_step_pre_hook(note)
    torch.manual_seed(0)
    try:
        with TemporaryDirectory() as folder:
            _train(Path(folder))
    finally:
        hook.remove()
    own = [Path(file).relative_to(SOURCE).as_posix() for file in stacks[0] if Path(file).is_relative_to(SOURCE)]
    return list(dict.fromkeys(own))


def _train(folder: Path) -> None:
    """Run `trans-encoder train` for one cycle of one step on a tiny model."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from trans_encoder.cli import app

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran", "here", "there", "now"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **special,
    ).save_pretrained(folder / "model")
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder / "model")
    rows = [
        (f"a {one} {verb} here", f"a {two} {verb} there")
        for one in words[6:8]
        for two in words[6:8]
        for verb in words[8:10]
    ]
    lines = (json.dumps({"sentence1": first, "sentence2": second}) + "\n" for first, second in rows)
    (folder / "pairs.jsonl").write_text("".join(lines), encoding="utf-8")
    settings = ["cycles=1", "selection=last", "cross.epochs=1", "bi.epochs=1", "device=cpu"]
    arguments = ["train", "--pairs", str(folder / "pairs.jsonl"), "--model", str(folder / "model")]
    arguments += ["--out", str(folder / "run"), *(part for each in settings for part in ("--set", each))]
    printed, sys.stdout = sys.stdout, sys.stderr
    try:
        app(arguments, standalone_mode=False)
    finally:
        sys.stdout = printed


if __name__ == "__main__":
    main()
