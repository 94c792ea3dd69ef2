"""Measure the structure of the source: its size, how many modules a module imports, how deep a training step lies.

    python benchmarks/structure.py

The stack is that of a real run of one short cycle on a tiny model, when the optimiser steps: the distinct files of this
package from the command line to `optimizer.step`, those of the command line itself counted apart.
"""

import ast
import json
import sys
import traceback
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

import trans_encoder

SOURCE = Path(trans_encoder.__file__).parent


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    fan_out = {name_of(path): len(own_imports(path)) for path in modules()}
    widest = sorted(fan_out, key=lambda name: -fan_out[name])[:5]
    stack = step_stack()
    found = {
        "files": len(modules()),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules()),
        "widest": {name: fan_out[name] for name in widest},
        "stack": stack,
        "files_on_the_stack": len(stack),
        "of_these_in_cli": sum(file.startswith("cli/") for file in stack),
    }
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{found['files']} files, {found['lines']:,} lines")
    print("own modules imported: " + ", ".join(f"{name} {count}" for name, count in found["widest"].items()))
    in_cli = found["of_these_in_cli"]
    print(f"{len(stack)} files from the command line to optimizer.step ({in_cli} of cli/): {', '.join(stack)}")


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
