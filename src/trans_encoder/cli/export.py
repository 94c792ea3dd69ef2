"""`trans-encoder export`: a model as a safetensors folder or with an ONNX graph."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trans_encoder.cli.options import Json, KindOption, Model, TrustRemoteCode
from trans_encoder.cli.output import print_result


def export(
    model: Model,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write; a model there is replaced.")],
    to: Annotated[Literal["safetensors", "onnx"], typer.Option("--to", help="The format.")] = "safetensors",
    kind: KindOption = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Export a model to a sentence-transformers folder, for onnx with `onnx/model.onnx` in it.

    Example: `trans-encoder export runs/sts/best/bi --to onnx --out bi-onnx`
    """
    from trans_encoder.encoders import load_encoder
    from trans_encoder.exporting import export as run

    encoder = load_encoder(model, kind=kind, device="cpu", trust_remote_code=trust_remote_code)
    folder = run(encoder, out, to=to)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    result = {"model": model, "kind": encoder.kind, "format": to, "out": str(folder), "bytes": size}
    print_result(result, as_json=json, shown=f"{folder}: {encoder.kind}-encoder as {to}, {size / 1e6:.1f} MB")
