"""The Python module inside a wheel of a model: one function with checked arguments, over ``ctypes`` and numpy."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence

from byoc_core.artifact.native_program import solve_sizes
from byoc_core.artifact.plain_c.names import FunctionNames, unique_names
from byoc_core.dims import Dim, substitute, symbol
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.program import VMFunction

__all__ = ["python_module"]

_HEAD = '''\
"""The model `{name}`: call `run`."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
{imports}
__all__ = ["run"]

_library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_{name}.so"))
_memory = threading.local()
_STATUSES = {{-1: "a value has no meaning for an op", -2: "a size has no meaning", -3: "a pointer is wrong"}}


class _Inputs(ctypes.Structure):
    _fields_ = {input_fields}


class _Outputs(ctypes.Structure):
    _fields_ = {output_fields}


_run = _library.{run}
_run.argtypes = [ctypes.POINTER(_Inputs), ctypes.POINTER(_Outputs), ctypes.c_void_p]
_run.restype = ctypes.c_int32
_workspace_size = _library.{size}
_workspace_size.argtypes = {size_types}
_workspace_size.restype = ctypes.c_int64


def _array(name, value, dtype, ndim):
    array = np.asarray(value)
    if array.dtype != dtype:
        raise TypeError(f"input `{{name}}`: got {{array.dtype}}, expected {{np.dtype(dtype)}}")
    if array.ndim != ndim:
        raise ValueError(f"input `{{name}}`: got {{array.ndim}} axes, expected {{ndim}}")
    # C reads whole elements at their natural alignment.
    return np.require(array, requirements=["C", "A"])


def _solve(name, axis, value, factor, offset):
    if (value - offset) % factor or (value - offset) // factor < 0:
        raise ValueError(f"input `{{name}}`, axis {{axis}}: impossible size {{value}}")
    return (value - offset) // factor


def _check(name, array, shape):
    if array.shape != shape:
        raise ValueError(f"input `{{name}}`: got the shape {{array.shape}}, expected {{shape}}")


def _workspace(nbytes):
    block = getattr(_memory, "block", None)
    if block is None or block.size < nbytes + 64:
        block = _memory.block = np.empty(nbytes + 64, np.uint8)
    return block.ctypes.data + -block.ctypes.data % 64


def broadcast(left, right):
    """Return the size of two broadcast axes."""
    if left != right and 1 not in (left, right):
        raise ValueError(f"sizes {{left}} and {{right}} do not broadcast")
    return right if left == 1 else left
'''


def python_module(function: VMFunction, names: FunctionNames, name: str) -> str:
    """Return the text of the module.

    Args:
        function: the exported function.
        names: the C names of the function.
        name: the model's name.

    Raises:
        CodegenError: a size cannot be computed from the shapes of the inputs.
    """
    dtypes = {spec.dtype for spec in (*function.params, *function.results)}
    members = [*((member, "ctypes.c_void_p") for member in names.inputs)]
    members += [(member, "ctypes.c_int64") for member in names.sizes.values()]
    head = _HEAD.format(
        name=name,
        imports="import ml_dtypes\n" if any(dtype_info(dtype).from_ml_dtypes for dtype in dtypes) else "",
        input_fields=_fields(members or [("unused", "ctypes.c_char")]),
        output_fields=_fields(
            [(member, "ctypes.c_void_p") for member in names.outputs] or [("unused", "ctypes.c_char")]
        ),
        run=names.run,
        size=names.workspace_size,
        size_types=f"[{', '.join(['ctypes.c_int64'] * len(names.sizes))}]",
    )
    return head + "\n\n" + "\n".join(_function(function, names)) + "\n"


def _fields(members: Sequence[tuple[str, str]]) -> str:
    return f"[{', '.join(f'({member!r}, {ctype})' for member, ctype in members)}]"


def _function(function: VMFunction, names: FunctionNames) -> Iterator[str]:
    parameters = unique_names(names.inputs, (), _is_free)
    count = len(parameters)
    variables = tuple(f"_input_{number}" for number in range(count))
    results = tuple(f"_output_{number}" for number in range(len(function.results)))
    sizes = {name: f"_size_{number}" for number, name in enumerate(names.sizes)}
    yield f"def run({', '.join(parameters)}):"
    yield '    """Run the model.'
    yield ""
    yield "    Args:"
    yield from (
        f"        {m}: {s.dtype} of shape {_shape_text(s)}." for m, s in zip(parameters, function.params, strict=True)
    )
    yield ""
    yield "    Returns:"
    texts = [f"{spec.dtype} of shape {_shape_text(spec)}" for spec in function.results]
    yield f"        {'; '.join(texts) or 'nothing'}."
    yield '    """'
    for variable, parameter, spec in zip(variables, parameters, function.params, strict=True):
        yield f"    {variable} = _array({spec.name!r}, {parameter}, {_dtype(spec.dtype)}, {len(spec.shape)})"
    yield from _solutions(function, variables, sizes)
    for variable, spec in zip(variables, function.params, strict=True):
        yield f"    _check({spec.name!r}, {variable}, {_shape(spec.shape, sizes)})"
    for result, spec in zip(results, function.results, strict=True):
        yield f"    {result} = np.empty({_shape(spec.shape, sizes)}, {_dtype(spec.dtype)})"
    pointers = [f"{variable}.ctypes.data" for variable in variables]
    yield f"    _nbytes = _workspace_size({', '.join(sizes.values())})"
    yield "    if _nbytes < 0:"
    yield "        raise ValueError(_STATUSES[-2])"
    arguments = ", ".join([*pointers, *sizes.values()])
    outputs = ", ".join(f"{result}.ctypes.data" for result in results)
    yield f"    _status = _run(_Inputs({arguments}), _Outputs({outputs}), _workspace(_nbytes))"
    yield "    if _status:"
    yield "        raise ValueError(_STATUSES[_status])"
    yield f"    return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}"


def _solutions(function: VMFunction, variables: Sequence[str], sizes: dict[str, str]) -> Iterator[str]:
    """Yield statements computing each symbol from an axis."""
    solved = solve_sizes(function) or {}
    for (index, axis), (name, factor, offset) in solved.items():
        size = f"{variables[index]}.shape[{axis}]"
        arguments = f"{function.params[index].name!r}, {axis}, {size}, {factor}, {_size(offset, sizes)}"
        yield f"    {sizes[name]} = _solve({arguments})"
    missing = sizes.keys() - {name for name, _, _ in solved.values()}
    if missing:
        names = ", ".join(sorted(missing))
        raise CodegenError(f"function `{function.name}`", f"has sizes in no shape of an input: {names}")


_NAMES = frozenset(
    [
        *("np", "ml_dtypes", "broadcast", "max", "min", "ValueError"),
        *("_array", "_check", "_nbytes", "_run", "_solve", "_status", "_workspace", "_workspace_size"),
        *("_Inputs", "_Outputs", "_STATUSES"),
    ]
)
"""Names in the function."""


def _is_free(text: str) -> bool:
    """Return whether an identifier may be a parameter: no keyword, and no name in the function."""
    is_variable = text.startswith(("_input_", "_output_", "_size_"))
    return not (keyword.iskeyword(text) or text in _NAMES or is_variable)


def _shape(shape: Sequence[Dim], sizes: dict[str, str]) -> str:
    texts = [_size(dim, sizes) for dim in shape]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _size(dim: Dim, sizes: dict[str, str]) -> str:
    return str(substitute(dim, {name: symbol(variable) for name, variable in sizes.items()}))


def _shape_text(spec: TensorSpec) -> str:
    return f"({', '.join(map(str, spec.shape))}{',' if len(spec.shape) == 1 else ''})"


def _dtype(dtype: str) -> str:
    module = "ml_dtypes" if dtype_info(dtype).from_ml_dtypes else "np"
    return f"{module}.{'bool_' if dtype == 'bool' else dtype}"
