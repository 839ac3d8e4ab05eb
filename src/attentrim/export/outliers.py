"""Linear layers whose inputs do not fit into 8 bits.

onnxruntime quantises the input of a linear layer with one scale for all tokens and features. Feed-forward blocks of
some models (MPNet's are an example) have a few values a hundred times as large as the rest, which that scale rounds to
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checking import open_session

TOO_COARSE = 0.2
"""How far rounded inputs may move an output, as a share of its length: the median over tokens. In MPNet-base five of
74 linear layers lie beyond, from 0.27 on; all others below 0.16."""
STEPS = 255


def linear_nodes(graph: Any) -> list[Any]:
    """The products with constant matrices."""
    constant = {entry.name for entry in graph.initializer}
    return [node for node in graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in constant]


def too_coarse(path: Path, inputs: Mapping[str, Any]) -> list[str]:
    """The names of the linear layers in a float file that `inputs` (arrays) show to need more than 8 bits."""
    import onnx

    model = onnx.load(path)
    weights = {entry.name: entry for entry in model.graph.initializer}
    nodes = linear_nodes(model.graph)
    seen = _inputs_of(path, [node.input[0] for node in nodes], inputs)
    return [
        node.name
        for node in nodes
        if _moved(seen[node.input[0]], _matrix(node, onnx.numpy_helper.to_array(weights[node.input[1]]))) > TOO_COARSE
    ]


def _inputs_of(path: Path, names: list[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into the nodes of a file: a copy of the file, beside its weights, gives it out."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    given_out = {entry.name for entry in model.graph.output}
    wanted = dict.fromkeys(names)
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in wanted if name not in given_out
    )
    copy = path.with_name("inputs.onnx")
    try:
        onnx.save(model, copy)
        session = open_session(copy)
        feed = {entry.name: inputs[entry.name] for entry in session.get_inputs()}
        return dict(zip(wanted, session.run(list(wanted), feed), strict=True))
    finally:
        copy.unlink(missing_ok=True)


def _matrix(node: Any, weight: Any) -> Any:
    """[inputs, outputs]"""
    return weight.T if any(entry.name == "transB" and entry.i for entry in node.attribute) else weight


def _moved(features: Any, weight: Any) -> float:
    """How far rounding the inputs of a linear layer moves its outputs."""
    rows = features.reshape(-1, features.shape[-1])
    step = (max(float(rows.max()), 0.0) - min(float(rows.min()), 0.0)) / STEPS
    if not step:
        return 0.0
    apart, whole = ((np.round(rows / step) * step - rows) @ weight, rows @ weight)
    lengths = np.linalg.norm(whole, axis=1)
    return (
        float(np.median(np.linalg.norm(apart, axis=1)[lengths > 0] / lengths[lengths > 0])) if lengths.any() else 0.0
    )
