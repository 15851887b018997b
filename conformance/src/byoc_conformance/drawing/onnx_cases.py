"""The node cases shipped with onnx, grouped by defining file; each file is imported on demand."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NodeCase", "node_cases", "node_groups"]

NDArray = npt.NDArray[Any]
_PACKAGE = "onnx.backend.test.case.node"


@dataclass(frozen=True, eq=False, slots=True)
class NodeCase:
    """A model of a single node, or of the ops in onnx's definition of the node, with inputs and expected outputs.

    Attributes:
        name: onnx's own.
        model: the ``ModelProto``.
        inputs: an array per input.
        outputs: an array per output.
        rtol: the relative error allowed by onnx.
        atol: the absolute error allowed by onnx.
    """

    name: str
    model: Any
    inputs: Sequence[NDArray]
    outputs: Sequence[NDArray]
    rtol: float
    atol: float


@cache
def node_groups() -> tuple[str, ...]:
    """Return the names of the groups: the names of onnx's files, a file for most ops. No file is imported.

    The groups are the cases of ``L2-onnx``, so the tests of this promise depend on the installed version of onnx.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")))


@cache
def node_cases(group: str) -> tuple[NodeCase, ...]:
    """Return the cases of a group with tensors only as inputs and outputs, single nodes first.

    Cost: mostly milliseconds; a second or two for pools, because onnx computes their expected outputs in Python.
    """
    package = importlib.import_module(_PACKAGE)
    registered = package._NodeTestCases
    first = len(registered)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = np.random.get_state()  # noqa: NPY002 - onnx seeds the global generator
        importlib.import_module(f"{_PACKAGE}.{group}")
        np.random.set_state(state)  # noqa: NPY002
    cases = [case for found in registered[first:] for case in _read(found)]
    return tuple(sorted(cases, key=lambda case: "_expanded" in case.name))


def _read(case: Any) -> list[NodeCase]:
    arrays: list[Any] = [array for data in case.data_sets[:1] for side in data for array in side]
    if not arrays or not all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return []
    inputs, outputs = case.data_sets[0]
    input_arrays, output_arrays = [np.asarray(array) for array in inputs], [np.asarray(array) for array in outputs]
    return [NodeCase(case.name, case.model, input_arrays, output_arrays, case.rtol, case.atol)]
