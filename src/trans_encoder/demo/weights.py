"""Float weights out of a dynamically quantised ONNX graph.

The `onnx` package would read the file too, but it would be one more dependency for everybody, for the sake of one file
whose checksum we know. What is needed of the format is little: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRAPH = 7  # the field of a ModelProto
_NODE, _INITIALIZER = 1, 5  # the fields of a GraphProto
_INPUT, _NODE_NAME, _OPERATOR = 1, 3, 4  # the fields of a NodeProto
_DIMENSION, _TYPE, _FLOATS, _SMALL_INTEGERS, _TENSOR_NAME, _RAW = 1, 2, 4, 5, 8, 9  # the fields of a TensorProto
_TYPES: dict[int, Any] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}

Array = NDArray[Any]
Value = int | memoryview


def dequantised_weights(model: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the weights of a model by their names in PyTorch, matrices in its layout (outputs x inputs)."""
    graph = next(value for field, value in _fields(memoryview(model)) if field == _GRAPH)
    parts = list(_fields(_message(graph)))
    tensors = dict(_tensor(_message(value)) for field, value in parts if field == _INITIALIZER)
    weights = {name: tensor for name, tensor in tensors.items() if name.endswith((".weight", ".bias"))}
    for name in tensors:
        stem = name.removesuffix("_quantized")
        if stem.endswith(".weight") and stem != name:
            weights[stem] = _dequantised(tensors, stem)
    for node in (_message(value) for field, value in parts if field == _NODE):
        if (layer := _linear_layer(node)) is not None:
            path, stem = layer
            weights[f"{path}.weight"] = np.ascontiguousarray(_dequantised(tensors, stem).T)
    return weights


def _dequantised(tensors: dict[str, Array], stem: str) -> NDArray[np.float32]:
    steps = tensors[f"{stem}_quantized"].astype(np.float32) - tensors[f"{stem}_zero_point"].astype(np.float32)
    return np.asarray(steps * tensors[f"{stem}_scale"], dtype=np.float32)


def _linear_layer(node: memoryview) -> tuple[str, str] | None:
    """Return the path of the layer that a node belongs to and the stem of its matrix, if it multiplies by one."""
    texts = [(field, _text(value)) for field, value in _fields(node) if field in (_INPUT, _NODE_NAME, _OPERATOR)]
    if (_OPERATOR, "MatMulInteger") not in texts:
        return None
    name = next(text for field, text in texts if field == _NODE_NAME)
    matrix = [text for field, text in texts if field == _INPUT][1]
    return ".".join(name.strip("/").split("/")[:-1]), matrix.removesuffix("_quantized")


def _tensor(message: memoryview) -> tuple[str, Array]:
    """Return the name and the content of a tensor, wherever in the message its numbers are."""
    fields = list(_fields(message))
    by_field = dict(fields)
    dtype = _TYPES[_number(by_field[_TYPE])]
    if _RAW in by_field:
        values = np.frombuffer(_message(by_field[_RAW]), dtype)
    elif _FLOATS in by_field:
        values = np.frombuffer(_message(by_field[_FLOATS]), np.float32)
    else:
        values = np.array(list(_varints(_message(by_field[_SMALL_INTEGERS]))), np.uint64).astype(dtype)
    shape = [_number(value) for field, value in fields if field == _DIMENSION]
    return _text(by_field[_TENSOR_NAME]), values.reshape(shape)


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _message(value: Value) -> memoryview:
    assert isinstance(value, memoryview)
    return value


def _text(value: Value) -> str:
    return str(_message(value), "utf-8")


def _fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a protocol buffer: their numbers and values."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
        else:
            size, place = _varint(message, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            yield key >> 3, message[place : place + size]
            place += size


def _varints(message: memoryview) -> Iterator[int]:
    place = 0
    while place < len(message):
        value, place = _varint(message, place)
        yield value


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number that starts at `place`, seven bits a byte, and where the next thing starts."""
    number = shift = 0
    while message[place] & 0x80:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1
