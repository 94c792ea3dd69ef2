"""`trans-encoder export`: a model as a safetensors folder or with an ONNX graph."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trans_encoder.cli.options import Columns, Json, KindOption, Model, TrustRemoteCode
from trans_encoder.cli.output import print_result
from trans_encoder.cli.reading import Reading
from trans_encoder.progress import show_progress


def export(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write; a model there is replaced.")],
    to: Annotated[Literal["safetensors", "onnx"], typer.Option(help="The format.")] = "safetensors",
    int8: Annotated[
        bool, typer.Option("--int8", help="With --to onnx: 8-bit weights, for speed on a CPU; the loss is measured.")
    ] = False,
    dev: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labelled pairs that the loss of --int8 is measured on.")
    ] = None,
    columns: Columns = None,
    kind: KindOption = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Export a model to a sentence-transformers folder, for onnx with a graph in its folder `onnx`.

    `score`, `evaluate` and the other commands take ONNX exports as models. Without `--dev`, the loss of `--int8` is how
    far its scores agree with the model's own.

    Example: `trans-encoder export runs/sts/best/bi --to onnx --int8 --out bi-int8`
    """
    from trans_encoder.encoders import load_encoder
    from trans_encoder.exporting import export as run
    from trans_encoder.exporting import read_loss

    with show_progress():
        test = Reading(columns).test_set(dev) if dev else None
        encoder = load_encoder(model, kind=kind, device="cpu", trust_remote_code=trust_remote_code)
        folder = run(encoder, out, to=to, int8=int8, dev=test)
    loss = read_loss(folder) if int8 else None
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    result = {"model": model, "kind": encoder.kind, "format": to, "int8": int8, "out": folder, "bytes": size}
    result["loss"] = loss
    form = f"{to} in 8 bits" if int8 else to
    shown = f"{folder}: {encoder.kind}-encoder as {form}, {size / 1e6:.1f} MB" + (f"; {loss}" if loss else "")
    print_result(result, as_json=json, shown=shown)
