"""Saved folders that others can read: sentence-transformers from 3.0 on, text-embeddings-inference, vLLM, llama.cpp.

sentence-transformers 6 reads the file layout of version 3, but no earlier version reads its own: module paths, the keys
of the pooling and the tokenizer class have all been renamed. So a model is saved as version 6 does, then its JSON files
are rewritten in the old layout. The outputs are the same; the tests compare them.
"""

import json
from pathlib import Path
from typing import Any

from trans_encoder.files import read_json, write_json

_OLD_MODULES = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Normalize": "sentence_transformers.models.Normalize",
    "Dense": "sentence_transformers.models.Dense",
    "LayerNorm": "sentence_transformers.models.LayerNorm",
    "Dropout": "sentence_transformers.models.Dropout",
}
_OLD_POOLING = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""In the order in which several poolings are concatenated; the old keys can express no other."""
_WRITTEN_BY_LOADING = ("backend", "is_local", "local_files_only")
"""Tokenizer settings that say how this copy was loaded, not what it is."""
_OLD_ACTIVATION = "sbert_ce_default_activation_function"


def make_portable(folder: Path, model: Any) -> None:
    """Rewrite the configuration files of a saved bi- or cross-encoder in the layout that all versions read."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    if any(_class_name(module) not in _OLD_MODULES for module in modules) or _class_name(modules[0]) != "Transformer":
        return  # a layout that earlier versions do not have: version 6 alone can read it
    body = folder / str(modules[0]["path"])
    _rewrite_tokenizer(body / "tokenizer_config.json", model.tokenizer)
    if model.model_type == "CrossEncoder":
        _rewrite_activation(body / "config.json", model.activation_fn)
    if model.model_type == "CrossEncoder" and model.default_prompt_name is None:
        # Before version 6 a cross-encoder was a plain transformers folder; version 6 still reads those.
        (folder / "modules.json").unlink()
        (body / "sentence_bert_config.json").unlink()
        return
    if model.model_type == "CrossEncoder":
        return  # earlier versions have no prompts for cross-encoders
    write_json(folder / "modules.json", [{**module, "type": _OLD_MODULES[_class_name(module)]} for module in modules])
    write_json(
        body / "sentence_bert_config.json",
        {"max_seq_length": model.max_seq_length, "do_lower_case": bool(model[0].do_lower_case)},
    )
    rewrite = {"Pooling": _old_pooling, "Dense": _old_dense}
    for module in modules:
        if _class_name(module) in rewrite:
            path = folder / module["path"] / "config.json"
            write_json(path, rewrite[_class_name(module)](read_json(path)))


def _class_name(module: dict[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _old_pooling(config: dict[str, Any]) -> dict[str, Any]:
    """Say the pooling with one boolean for each mode; vLLM takes the first that is true, so they come first."""
    modes = config["pooling_mode"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if modes != [mode for mode in _OLD_POOLING if mode in modes]:
        return config
    return {
        "word_embedding_dimension": config["embedding_dimension"],
        **{key: mode in modes for mode, key in _OLD_POOLING.items()},
        "include_prompt": config["include_prompt"],
    }


def _old_dense(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out settings that earlier versions do not know, where they have the default value."""
    said = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    return {name: value for name, value in config.items() if said.get(name) != value}


def _rewrite_activation(path: Path, activation: Any) -> None:
    """Name the activation where all versions look for it; the model's start may have left another there."""
    config = read_json(path)
    name = f"{type(activation).__module__}.{type(activation).__qualname__}"
    if config.get(_OLD_ACTIVATION) != name:
        config.pop(_OLD_ACTIVATION, None)  # version 3 then takes a sigmoid
    config["sentence_transformers"] = {**(config.get("sentence_transformers") or {}), "activation_fn": name}
    write_json(path, config)


def _rewrite_tokenizer(path: Path, tokenizer: Any) -> None:
    """Name the one tokenizer class that reads tokenizer.json as it is in every version of transformers, or nearly so.

    The classes of a family, such as BertTokenizer, would put their own defaults (lower case, for one) over the file's.
    """
    config = {name: value for name, value in read_json(path).items() if name not in _WRITTEN_BY_LOADING}
    if isinstance(config.get("extra_special_tokens"), list):  # transformers 4 calls a list by another name
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["model_input_names"] = list(tokenizer.model_input_names)
    content = read_json(path.with_name("tokenizer.json"))
    prefixed = (content.get("pre_tokenizer") or {}).get("add_prefix_space")
    if prefixed is not None:  # transformers 4 puts its own default, False, over the file's
        config["add_prefix_space"] = prefixed
    write_json(path, dict(sorted(config.items())))
    merges = content["model"].get("merges")
    if merges and not any(isinstance(merge, str) or " " in "".join(merge) for merge in merges):
        # tokenizers before 0.20 reads "a b" and not ["a", "b"]; later versions read both.
        content["model"]["merges"] = [" ".join(merge) for merge in merges]
        write_json(path.with_name("tokenizer.json"), content)
