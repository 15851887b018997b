"""Exported C in this process: compiled by the system's compiler, loaded, and called on arrays.

The workspace has exactly the stated bytes, between guards, and is filled with bytes of 0xFF before each run: a NaN in
any format. A call checks the guards, and that inputs keep their bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from byoc_core.artifact import Executable
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.digest import digest_of
from byoc_core.dims import Dim, evaluate, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.native.static_build import build_shared
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, NDArray, Signature, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, ConstantRef, Program, Ret, VMFunction

__all__ = [
    "BAD_ARGUMENT",
    "BAD_CONSTANTS",
    "BAD_SIZE",
    "FAILED",
    "OK",
    "ExportedModel",
    "aligned",
    "builtin",
    "c_module",
    "copies",
    "executable_of",
    "extern",
    "shift",
    "tensor",
]

OK, FAILED, BAD_SIZE, BAD_ARGUMENT, BAD_CONSTANTS = 0, -1, -2, -3, -4
_GUARD = 256
_GUARD_BYTE = 0xA5
_OUTER = """
#ifndef BYOC_PLAIN_C
BYOC_EXPORT int32_t __tvm_ffi_{name}(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {{
  (void)handle, (void)args, (void)num_args, (void)result;
  {body}
}}
#endif
"""


def tensor(name: str, *shape: Dim | str, dtype: str = "float32") -> TensorSpec:
    """Return the description of an argument; names of sizes become symbols."""
    return TensorSpec(name, dtype, tuple(symbol(dim) if isinstance(dim, str) else dim for dim in shape))


def extern(index: int, args: Sequence[int], results: Sequence[int]) -> Call:
    """Return a call of an external function."""
    return Call(CallKind.EXTERN, index, tuple(args), tuple(results))


def builtin(which: Builtin, args: Sequence[int], result: int) -> Call:
    """Return a call of a builtin."""
    return Call(CallKind.BUILTIN, which, tuple(args), (result,))


def c_module(
    name: str,
    raw: str,
    signature: Signature,
    *constants: NDArray,
    outer: str = 'return byoc_fail("ValueError", "no tensors");',
    traits: CallTraits | None = None,
) -> CSourceModule:
    """Return a module with one function over plain pointers.

    Args:
        name: the symbol.
        raw: the C of the raw function.
        signature: of the function.
        constants: the arrays of the table.
        outer: the body of the function over tensors.
        traits: the permissions of the function.
    """
    table = f"BYOC_CONSTANT_TABLE({len(constants)});\n" if constants else ""
    source = f'#include "byoc_ffi.h"\n\n{table}{raw}\n{_OUTER.format(name=name, body=outer)}'
    arrays = {digest_of(array): array for array in constants}
    return CSourceModule(source, {name: signature}, constants=arrays, traits={name: traits} if traits else None)


def shift(name: str, by: float) -> CSourceModule:
    """Return y = x + a constant, for any number of elements but 13."""
    raw = f"""\
BYOC_EXPORT int32_t {name}_(const float *x, float *out, int64_t dim_n) {{
  if (dim_n == 13) return byoc_fail("ValueError", "function `{name}`: does not like 13");
  const float by = *(const float *)byoc_constants[0];
  for (int64_t i = 0; i < dim_n; ++i) out[i] = x[i] + by;
  return 0;
}}"""
    outer = f"""\
const DLTensor *x = byoc_tensor("{name}", "x", &args[0]), *out = byoc_tensor("{name}", "out", &args[1]);
  return x && out ? {name}_(byoc_data(x), byoc_data(out), x->shape[0]) : -1;"""
    spec = tensor("x", "n")
    return c_module(name, raw, Signature((spec,), (spec,)), np.array([by], "float32"), outer=outer)


def executable_of(
    functions: Sequence[VMFunction],
    modules: Sequence[CSourceModule] = (),
    constants: Sequence[NDArray] = (),
    externs: Sequence[str] | None = None,
) -> Executable:
    """Return an executable of functions; the externs are the symbols of the modules by default."""
    refs = tuple(ConstantRef(digest_of(array), array.dtype.name, array.shape) for array in constants)
    symbols = externs if externs is not None else [name for module in modules for name in module.function_names]
    arrays = {digest_of(array): array for array in constants}
    return Executable(Program(tuple(functions), tuple(symbols), refs), list(modules), arrays)


def copies(name: str, params: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> VMFunction:
    """Return a function copying each parameter to the result of the same number."""
    count = len(params)
    code = [builtin(Builtin.COPY, (index,), count + index) for index in range(len(results))]
    ret = Ret(tuple(range(count, count + len(results))))
    return VMFunction(name, tuple(params), tuple(results), (), (), (), (), (*code, ret))


class ExportedModel:
    """A compiled model.

    Args:
        executable: the executable.
        folder: gets the library.
        name: the prefix of names.
        options: further options of the export.

    Attributes:
        library: the library.
        weights: the constants passed to runs; ``None`` passes NULL, or nothing if the C holds the constants.
    """

    def __init__(self, executable: Executable, folder: Path, name: str = "model", **options: Any) -> None:
        self.model = plain_model(executable, name, **options)
        self._functions = {function.name: function for function in executable.program.functions}
        path = folder / f"{name}_{abs(hash(tuple(self.model.files.items())))}.so"
        path.write_bytes(build_shared(self.model.files, self.model.options))
        self.library = ctypes.CDLL(str(path))
        data = self.model.files.get(f"{name}.weights")
        self.weights: NDArray | None = None if data is None else aligned(data)

    @property
    def header(self) -> str:
        """The text of the header."""
        return self.model.files[f"{self.model.name}.h"].decode()

    def workspace_size(self, sizes: Mapping[str, int] | None = None, function: str = "main") -> int:
        """Return the bytes of the workspace, as stated by the C."""
        names = self.model.names[function]
        measure = getattr(self.library, names.workspace_size)
        measure.restype = ctypes.c_int64
        return int(measure(*(ctypes.c_int64((sizes or {})[name]) for name in names.sizes)))

    def call(
        self,
        inputs: Sequence[NDArray | None],
        sizes: Mapping[str, int] | None = None,
        function: str = "main",
        *,
        offset: int = 0,
        outputs: Sequence[NDArray | None] | None = None,
        weights: NDArray | None = None,
    ) -> tuple[int, list[Any]]:
        """Return the status and the outputs of a run.

        Args:
            inputs: the arrays in order; ``None`` passes NULL.
            sizes: the size of each symbol.
            function: the function.
            offset: bytes added to the address of the workspace.
            outputs: the arrays of the outputs; by default new arrays filled with bytes of 0xFF.
            weights: the constants; by default those of the model.
        """
        sizes = sizes or {}
        names, described = self.model.names[function], self._functions[function]
        if outputs is None:
            outputs = [_new_output(spec, sizes) for spec in described.results]
        nbytes = max(self.workspace_size(sizes, function), 1)
        block = np.full(nbytes + 2 * _GUARD + 64, _GUARD_BYTE, np.uint8)
        start = _GUARD + -(block.ctypes.data + _GUARD) % 64 + offset
        block[start : start + nbytes] = 0xFF
        before = [None if array is None else array.tobytes() for array in inputs]
        pointers = [None if array is None else array.ctypes.data for array in inputs]
        fields = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        packed = bytes(fields)[: 8 * len(pointers)] + b"".join(
            int(sizes[name]).to_bytes(8, "little", signed=True) for name in names.sizes
        )
        results = (ctypes.c_void_p * max(len(outputs), 1))(*(None if a is None else a.ctypes.data for a in outputs))
        run = getattr(self.library, names.run)
        run.restype = ctypes.c_int32
        arguments = [ctypes.create_string_buffer(packed or b"\0"), results, ctypes.c_void_p(block.ctypes.data + start)]
        weights = self.weights if weights is None else weights
        if self.model.constants.is_file:
            arguments.append(ctypes.c_void_p(None if weights is None else weights.ctypes.data))
        status = run(*arguments)
        outside = np.concatenate([block[:start], block[start + nbytes :]])
        assert (outside == _GUARD_BYTE).all(), "the run wrote beyond the workspace"
        assert before == [None if array is None else array.tobytes() for array in inputs], "the run wrote an input"
        return int(status), list(outputs)


def aligned(data: bytes) -> NDArray:
    """Return a copy of bytes at an address aligned to 64 bytes."""
    block = np.zeros(len(data) + 64, np.uint8)
    copy = block[-block.ctypes.data % 64 :][: len(data)]
    copy[:] = np.frombuffer(data, np.uint8)
    return copy


def _new_output(spec: TensorSpec, sizes: Mapping[str, int]) -> NDArray:
    shape = tuple(max(evaluate(dim, sizes), 0) for dim in spec.shape)
    array: NDArray = np.empty(shape, to_numpy(spec.dtype))
    array.reshape(-1).view(np.uint8)[:] = 0xFF
    return array
