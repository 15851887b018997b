"""The ONNX front end: :func:`from_onnx` turns a model into an IR module.

Opsets 7 up to the newest that the installed ``onnx`` package knows. Needs the extra ``byoc-core[onnx]``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from byoc_core.errors import FrontendError, OptionsError

if TYPE_CHECKING:
    from onnx import ModelProto

    from byoc_core.ir.module import IRModule
    from byoc_core.opset.registry import OpRegistry

__all__ = ["from_onnx"]


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    ops: OpRegistry | None = None,
    max_nodes: int | None = None,
) -> IRModule:
    """Gives an ONNX model as an IR module with one function, ``main``.

    Args:
        model: a file, a file's bytes, or a loaded model. External data is read only from beside a model file.
        ops: where op names are looked up, and the registry of the module; byoc's own ops by default.
        max_nodes: the most nodes that calls of functions, unrolled loops and sequences may stand for, the ops that
            they become included; by default 100,000 and 16 for each node in the file.

    Returns:
        A module whose ``main`` has one parameter for each input that is no initializer, in the model's order. Its
        attributes ``input_names`` and ``output_names`` keep the model's names. Named dynamic sizes (``dim_param``)
        become symbols of that name, unnamed and negative ones become fresh symbols. Each binding's location names its
        node. Functions are imported in the place of their calls. Branches and loop bodies become regions, unless it is
        known which branch is taken, or that a loop has few rounds: then these stand in the place of the node.

    Raises:
        UnsupportedOpsError: the model has ops that are not imported; all of them are listed, with counts.
        FrontendError: the file is no ONNX model or is damaged, its graph is malformed or nested too deeply, stands for
            more than ``max_nodes`` nodes, declares an input of sizes that no array has, a node uses a variant of an op
            that is not imported, or the package ``onnx`` is missing.
        OptionsError: ``max_nodes`` is not positive.

    Cost:
        ``O(nodes + bytes of weights)``; weights in external files are memory-mapped.
    """
    try:
        from byoc_core.frontend.onnx.importer import import_model
        from byoc_core.frontend.onnx.loading import load_model
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "onnx":
            raise
        raise FrontendError(
            "ONNX front end", "needs the package `onnx`", hint="pip install 'byoc-core[onnx]'."
        ) from error

    if max_nodes is not None and max_nodes < 1:
        raise OptionsError("max_nodes", "is not positive", got=max_nodes)
    return import_model(load_model(model), ops, max_nodes)
