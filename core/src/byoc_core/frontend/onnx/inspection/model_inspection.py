"""The inspection of an ONNX model before compilation: operators, weights, work, memory, and missing importers.

The model is imported without reading the bytes of large weights. FLOPs and memory are those of the model as written:
the compiler's passes and the backends come later. Ops on constants alone are left out: the compiler computes these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_name
from byoc_core.errors import ByocError, InternalError
from byoc_core.frontend.onnx.foreign_operators import ForeignKind, OperatorSearch, search_importers
from byoc_core.frontend.onnx.importer import import_model
from byoc_core.frontend.onnx.inspection.counting import ModelWork, count_work
from byoc_core.frontend.onnx.inspection.rows import (
    ImportKind,
    OperatorUse,
    TensorRow,
    Weight,
)
from byoc_core.frontend.onnx.inspection.stored_tensors import dtype_text, list_weights
from byoc_core.frontend.onnx.loading import LoadedModel, load_model
from byoc_core.frontend.onnx.support import ImportPath
from byoc_core.frontend.onnx_names import dotted_name
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import IRModule, Value
from byoc_core.opset.types import TensorType
from byoc_core.transform.dead_code import RemoveDeadCode
from byoc_core.transform.trace_sizes import trace_sizes

__all__ = ["ModelInspection", "ModelWork", "inspect_model"]

_HASHED_NBYTES = 1 << 16


@dataclass(frozen=True)
class ModelInspection:
    """The facts of a model.

    Attributes:
        source: the file.
        nbytes: the bytes of the file, without external data.
        producer: name and version of the producer; may be empty.
        ir_version: the version of the file format.
        opsets: the versions of the operator sets, by domain.
        num_nodes: the number of nodes; the nodes of a function of the model count for each call.
        inputs: the inputs, with the names of dynamic sizes used by byoc if the import is possible.
        outputs: the outputs; with inferred sizes if the import is possible.
        operators: the operators, most nodes first.
        weights: the stored tensors, largest first.
        error: the error of the import, if the import is not possible.
        work: work and memory; ``None`` if the import is not possible.
    """

    source: str
    nbytes: int
    producer: str
    ir_version: int
    opsets: Mapping[str, int]
    num_nodes: int
    inputs: tuple[TensorRow, ...]
    outputs: tuple[TensorRow, ...]
    operators: tuple[OperatorUse, ...]
    weights: tuple[Weight, ...]
    error: ByocError | None
    work: ModelWork | None

    @property
    def missing(self) -> tuple[OperatorUse, ...]:
        """The operators without importer."""
        return tuple(use for use in self.operators if use.kind is ImportKind.MISSING)

    def weights_by_dtype(self) -> dict[str, tuple[int, int, int]]:
        """Return the number of tensors, elements and bytes of each dtype, most bytes first."""
        found: dict[str, tuple[int, int, int]] = {}
        for weight in self.weights:
            tensors, elements, nbytes = found.get(weight.dtype, (0, 0, 0))
            found[weight.dtype] = tensors + 1, elements + weight.num_elements, nbytes + weight.nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1][2]))

    def to_data(self, num_largest: int) -> dict[str, Any]:
        """Return the inspection as JSON values.

        Args:
            num_largest: the number of weights to list, largest first.

        Returns:
            The facts. ``work`` is ``None``, and ``error`` has the texts of the error, if the import is not possible.
        """
        error = None
        if self.error is not None:
            error = {"text": str(self.error), "hint": self.error.hint, "detail": self.error.detail}
        by_dtype = self.weights_by_dtype()
        return {
            "schema": 1,
            "kind": "model",
            "file": self.source,
            "nbytes": self.nbytes,
            "producer": self.producer,
            "ir_version": self.ir_version,
            "opsets": dict(self.opsets),
            "num_nodes": self.num_nodes,
            "can_be_imported": self.error is None,
            "inputs": [row.to_data() for row in self.inputs],
            "outputs": [row.to_data() for row in self.outputs],
            "operators": [use.to_data() for use in self.operators],
            "missing": [use.operator for use in self.missing],
            "error": error,
            "weights": {
                "tensors": len(self.weights),
                "elements": sum(weight.num_elements for weight in self.weights),
                "nbytes": sum(weight.nbytes for weight in self.weights),
                "by_dtype": [
                    {"dtype": dtype, "tensors": tensors, "elements": elements, "nbytes": nbytes}
                    for dtype, (tensors, elements, nbytes) in by_dtype.items()
                ],
                "largest": [weight.to_data() for weight in self.weights[:num_largest]],
            },
            "work": None if self.work is None else self.work.to_data(),
        }


def inspect_model(
    path: str | os.PathLike[str],
    sizes: Mapping[str, int] | None = None,
    *,
    max_nodes: int | None = None,
    num_heaviest: int = 10,
    progress: Callable[[str], None] | None = None,
) -> ModelInspection:
    """Return the facts of an ONNX model.

    Args:
        path: the file.
        sizes: the counted values of symbolic sizes; other sizes count as 1.
        max_nodes: see :func:`byoc_core.from_onnx`.
        num_heaviest: the number of nodes to list, most FLOPs first.
        progress: called with the name of each stage at the beginning of the stage.

    Raises:
        FrontendError: the file is no ONNX model or is damaged, functions call themselves, or nest too deeply.
        PluginError: several importer plugins import an operator of the model.
        OptionsError: a name of ``sizes`` is no symbolic size of the model.

    Cost: ``O(nodes log nodes)``. External data is mapped; only tensors below 64 KiB are read.
    """
    show = progress or (lambda _stage: None)
    show("read")
    model = load_model(path)
    search = search_importers(model, FunctionBuilder().ops)
    weights = sorted(list_weights(model), key=lambda weight: -weight.nbytes)
    module, error = _import(model, search, max_nodes, show)
    work = None
    if module is not None:
        show("count")
        work = count_work(model, module["main"], trace_sizes(module), sizes or {}, num_heaviest)
    return ModelInspection(
        source=model.source,
        nbytes=Path(path).stat().st_size,
        producer=model.producer,
        ir_version=model.ir_version,
        opsets=_read_opsets(model),
        num_nodes=search.survey.num_nodes,
        inputs=_inputs(model) if module is None else _rows(module["main"].input_names, module["main"].params),
        outputs=_declared(model.graph.output)
        if module is None
        else _rows(module["main"].output_names, module["main"].results),
        operators=_list_operators(search),
        weights=tuple(weights),
        error=error,
        work=work,
    )


def _import(
    model: LoadedModel, search: OperatorSearch, max_nodes: int | None, show: Callable[[str], None]
) -> tuple[IRModule | None, ByocError | None]:
    """Return the imported module without dead code, or the error."""
    if (missing := search.missing(model)) is not None:
        return None, missing
    show("import")
    try:
        module = import_model(model, None, max_nodes, _UnhashedConstants())
    except InternalError:
        raise
    except ByocError as error:
        return None, error
    return RemoveDeadCode()(module), None


class _UnhashedConstants(ConstantStore):
    """A store with numbers in place of the digests of large arrays: the bytes of large weights are not read."""

    def add(self, array: npt.ArrayLike) -> Constant:
        data = np.asarray(array)
        if data.nbytes < _HASHED_NBYTES:
            return super().add(data)
        constant = Constant(f"unhashed {len(self)}", TensorType(tuple(data.shape), dtype_name(data.dtype)))
        self.adopt(constant, data)
        return constant


def _read_opsets(model: LoadedModel) -> dict[str, int]:
    found = {entry.domain or "ai.onnx": int(entry.version) for entry in model.opset_imports}
    if "ai.onnx" in found:
        found["ai.onnx"] = model.written_opset
    return found


def _inputs(model: LoadedModel) -> tuple[TensorRow, ...]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return _declared([value for value in model.graph.input if value.name not in stored])


def _declared(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorRow, ...]:
    """Return inputs or outputs as declared; a size without a name or with a negative number is ``?``."""
    return tuple(_declared_row(value) for value in values)


def _declared_row(value: onnx.ValueInfoProto) -> TensorRow:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorRow(value.name, (kind or "").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape: tuple[Dim | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?"
            for dim in tensor.shape.dim
        )
    return TensorRow(value.name, dtype_text(tensor.elem_type), shape)


def _rows(names: Sequence[str], values: Sequence[Value]) -> tuple[TensorRow, ...]:
    return tuple(
        TensorRow(name, value.type.dtype, value.type.shape)
        if isinstance(value.type, TensorType)
        else TensorRow(name, str(value.type), None)
        for name, value in zip(names, values, strict=True)
    )


_FOREIGN_KINDS = {
    ForeignKind.PLUGIN: ImportKind.PLUGIN,
    ForeignKind.REGISTERED: ImportKind.REGISTERED,
    ForeignKind.DELEGATED: ImportKind.DELEGATED,
}
_FUNCTIONS = {
    ImportPath.MODEL_FUNCTION: "function of the model",
    ImportPath.STANDARD_FUNCTION: "function of the standard",
}


def _list_operators(search: OperatorSearch) -> tuple[OperatorUse, ...]:
    """Return the operators, missing operators first, then most nodes first."""
    uses = []
    for (name, path), nodes in search.survey.operators.items():
        foreign = search.foreign.get(name)
        if path in _FUNCTIONS:
            kind, origin = ImportKind.FUNCTION, _FUNCTIONS[path]
        elif path is ImportPath.NONE:
            kind, origin = ImportKind.MISSING, ""
        elif foreign is None:
            kind, origin = ImportKind.CORE, ""
        else:
            kind = _FOREIGN_KINDS[foreign.kind]
            origin = "package onnx" if foreign.kind is ForeignKind.DELEGATED else foreign.origin
        uses.append(OperatorUse(dotted_name(name), nodes, kind, origin))
    return tuple(sorted(uses, key=lambda use: (use.kind is not ImportKind.MISSING, -use.nodes, use.operator)))
