"""Export: an encoder as an ordinary sentence-transformers folder, or with an ONNX graph to serve it from."""

from pathlib import Path
from typing import Literal

from trans_encoder.data import PairSet, TestSet
from trans_encoder.encoders import Encoder, load_encoder
from trans_encoder.encoders.onnx import GRAPHS, NOTE, OnnxBiEncoder, OnnxCrossEncoder
from trans_encoder.errors import ConfigurationError, import_extra
from trans_encoder.exporting.graph import describe, write_graph
from trans_encoder.exporting.int8 import Loss, measure_loss, quantise
from trans_encoder.files import atomic_folder, check_replaceable, read_json, write_json

Format = Literal["safetensors", "onnx"]


def export(
    model: Encoder | str | Path,
    out: str | Path,
    *,
    to: Format = "safetensors",
    int8: bool = False,
    dev: TestSet | PairSet | None = None,
) -> Path:
    """Write the model to folder `out`; `to="onnx"` adds `onnx/model.onnx`, checked against the model itself.

    With `int8` the graph is quantised (`onnx/model_int8.onnx`; the float32 weights are left out), and what that costs
    is measured: by the metric of a labelled `dev` set, else as the agreement of both models' scores on the pairs of
    `dev` or, without any, on passages of Python's own documentation. `load_encoder` takes such folders as models.

    `out` may be new, empty, or hold a model, which is replaced; any other folder is refused.
    The graph is made by torch's own exporter: the ONNX backend of sentence-transformers rests on optimum-onnx, of which
    no release works with transformers 5. `onnx/model.onnx` is where that backend looks for it.
    """
    if int8 and to != "onnx":
        raise ConfigurationError(f"int8 is for ONNX graphs, and the format is {to}; give --to onnx --int8")
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_extra(package, extra="onnx")
    folder = Path(out)
    check_replaceable(folder, what="model", is_ours=_is_model)
    encoder = load_encoder(model, device="cpu") if isinstance(model, str | Path) else model
    if isinstance(encoder, OnnxBiEncoder | OnnxCrossEncoder):
        raise ConfigurationError(f"{encoder.name} is an ONNX export already; give the model that it was made from")
    with atomic_folder(folder.resolve()) as temporary:
        encoder.save(temporary)
        if to == "onnx":
            _add_graph(encoder, temporary, int8=int8, dev=dev)
    return folder


def read_loss(folder: str | Path) -> Loss | None:
    """Return what quantisation has cost an exported model, None if it is not quantised."""
    loss = read_json(Path(folder) / GRAPHS / NOTE).get("loss")
    return Loss(**loss) if loss else None


def _add_graph(encoder: Encoder, folder: Path, *, int8: bool, dev: TestSet | PairSet | None) -> None:
    graphs = folder / GRAPHS
    graphs.mkdir()
    path = graphs / "model.onnx"
    write_graph(encoder, path)
    note = describe(encoder)
    if int8:
        small = graphs / "model_int8.onnx"
        quantise(path, small)
        path.unlink()
        for weights in folder.rglob("*.safetensors"):
            weights.unlink()
        write_json(graphs / NOTE, {**note, "file": small.name, "precision": "int8"})
        loss = measure_loss(encoder, load_encoder(folder), dev=dev)
        note |= {"file": small.name, "precision": "int8", "loss": loss}
    write_json(graphs / NOTE, note)


def _is_model(names: set[str]) -> bool:
    return "modules.json" in names or {"config.json", "model.safetensors"} <= names
