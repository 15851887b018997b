"""A correct backend, or a backend with a single fault: option ``fault`` names the fault, ``op`` the op.

A separate file, installable for other processes too.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    Rejection,
    Support,
    hookimpl,
)
from byoc_core.errors import CodegenError
from byoc_core.ir import Binding, Constant, Function, IRModule, TensorType
from byoc_core.ir.sizes import result_symbols
from byoc_core.runtime.module import PackedFunction, RuntimeModule, Signature, TensorSpec
from byoc_core.transform import evaluate_function
from pydantic import BaseModel

Array = np.ndarray[Any, Any]
_COUNTER = itertools.count()


class Options(BaseModel):
    """The fault and the op."""

    fault: str = "none"
    op: str = ""
    min_ops: int = 1
    roundoff: float = 0.0

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        return {"float32": self.roundoff} if self.roundoff else {}


def _last_lane(array: Array) -> Array:
    changed = array.copy()
    changed.reshape(-1)[-1] += 3
    return changed


def _with_nan(array: Array) -> Array:
    changed = array.copy()
    changed.reshape(-1)[0] = np.nan
    return changed


def _half(array: Array) -> Array:
    return array.astype(np.float16).astype(array.dtype)


def _longer(array: Array) -> Array:
    return np.concatenate([array, array[:, -1:]], axis=1)


VALUE_FAULTS: dict[str, Callable[[Array], Array]] = {
    "lane": _last_lane,
    "nan": _with_nan,
    "half": _half,
    "longer": _longer,
}
"""Wrong values of the op named in the options."""


def _backward_dense(x: Array, w: Array) -> Array:
    """A correct dense layer with sums from the last term to the first, in sequence."""
    dtype = np.result_type(x.dtype, np.float32)
    left, right = x.astype(dtype), w.astype(dtype)
    total = np.zeros((*x.shape[:-1], w.shape[0]), dtype)
    for k in reversed(range(x.shape[-1])):
        total += left[..., k, None] * right[:, k]
    return total.astype(x.dtype)


def _half_dense(x: Array, w: Array) -> Array:
    """A dense layer with operands rounded to half precision first."""
    total: Array = _half(x) @ _half(w).T
    return total


def _write_input(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    inputs[0].reshape(-1)[0] = 7


def _add_to_outputs(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    outputs[0][...] += outputs[0]


def _drift(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    outputs[0].reshape(-1).view(np.uint8)[0] ^= next(_COUNTER) % 4  # the lowest bits: the values stay right


def _raise(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    raise ValueError("no such kernel")


def _segfault(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    ctypes.string_at(0)


def _exit(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    print("on the way to a crash", file=sys.stderr, flush=True)
    os._exit(3)


def _say_pid(pid: int) -> None:
    if "FAULTY_PID_FILE" in os.environ:
        Path(os.environ["FAULTY_PID_FILE"]).write_text(f"{pid}\n", encoding="utf-8")


def _hang(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    _say_pid(os.getpid())
    time.sleep(600)


def _hang_locked(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    _say_pid(os.getpid())
    ctypes.PyDLL(None).sleep(600)  # with Python's lock held: no other thread runs


def _fork_and_exit(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    _say_pid(pid)
    os._exit(3)


def _trap_underflow(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    np.seterr(all="raise")


def _print(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    print("noise", flush=True)


CALL_FAULTS: dict[str, Callable[[Sequence[Array], Sequence[Array]], None]] = {
    "input-written": _write_input,
    "not-deterministic": _drift,
    "raise": _raise,
    "segfault": _segfault,
    "exit": _exit,
    "hang": _hang,
    "hang-locked": _hang_locked,
    "fork-and-exit": _fork_and_exit,
    "errstate": _trap_underflow,
    "print": _print,
}
"""Faults after writing the right results to the outputs."""


class FaultyModule(RuntimeModule):
    """Functions run by the reference interpreter, with the fault."""

    type_key = "faulty"

    def __init__(self, functions: Sequence[Function], context: CompileContext) -> None:
        assert isinstance(context.options, Options)
        assert context.module is not None
        self._options = context.options
        self._constants = context.module.constants
        self._functions = {str(function.attrs["global_symbol"]): function for function in functions}

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        function = self._functions[name]
        signature = _signature(function, self._options.fault)
        sabotaged = replace(function, bindings=tuple(map(self._sabotage, function.bindings)))
        if self._options.fault == "fused" and self._is_alone(function):
            sabotaged = function
        module = IRModule({function.name: sabotaged}, self._constants)

        def fill(*arrays: Array) -> None:
            inputs, outputs = arrays[: len(function.params)], arrays[len(function.params) :]
            values = evaluate_function(module, function.name, inputs)
            for output, value in zip(outputs, values, strict=True):
                if self._options.fault == "output-unwritten":
                    output.reshape(-1)[:-1] = value.reshape(-1)[:-1]
                elif self._options.fault == "output-read":
                    output += value
                else:
                    np.copyto(output, value)
            if self._options.fault in CALL_FAULTS and self._has_op(function):
                CALL_FAULTS[self._options.fault](inputs, outputs)

        def give(*inputs: Array) -> tuple[Array, ...]:
            return evaluate_function(module, function.name, inputs)

        return PackedFunction(name, give if signature.new_symbols else fill, signature)

    def _has_op(self, function: Function) -> bool:
        return not self._options.op or any(b.op.name == self._options.op for b in function.bindings)

    def _is_alone(self, function: Function) -> bool:
        """Return whether the faulty op's value is itself a result: this fault appears only in fusion with other ops."""
        results = {id(result) for result in function.results}
        return any(b.op.name == self._options.op and id(b.result) in results for b in function.bindings)

    def _sabotage(self, binding: Binding) -> Binding:
        dense = {"backward": _backward_dense, "half-dense": _half_dense}.get(self._options.fault)
        if binding.op.name == "nn.dense" and dense is not None:
            return replace(binding, op=replace(binding.op, kernel=dense))
        name = "lane" if self._options.fault == "fused" else self._options.fault
        fault, kernel = VALUE_FAULTS.get(name), binding.op.kernel
        if fault is None or binding.op.name != self._options.op:
            return binding
        assert kernel is not None

        def wrong(*arrays: Array, **attrs: object) -> Array:
            result = kernel(*arrays, **attrs)
            assert isinstance(result, np.ndarray)
            assert fault is not None
            return fault(result)

        return replace(binding, op=replace(binding.op, kernel=wrong))


def _signature(function: Function, fault: str) -> Signature:
    outputs = [_spec(f"output{i}", type_) for i, type_ in enumerate(function.result_types)]
    if fault == "wrong-dtype":
        outputs[0] = replace(outputs[0], dtype="float64")
    if fault == "wrong-shape":
        outputs[0] = replace(outputs[0], shape=(*outputs[0].shape, 1))
    if fault == "too-few":
        outputs.pop()
    return Signature(tuple(_spec(param.name, param.type) for param in function.params), tuple(outputs))


def _spec(name: str, type_: object) -> TensorSpec:
    assert isinstance(type_, TensorType)
    assert type_.shape is not None
    return TensorSpec(name, type_.dtype, type_.shape)


class FaultyBackend:
    """A plugin object.

    Args:
        ops: the claimed ops (none given: all).
        constants: the requested form of constants.
        deterministic: the declaration.
        unit_roundoff: the declaration.
    """

    def __init__(
        self,
        *ops: str,
        constants: Literal["embedded", "lifted"] = "embedded",
        deterministic: bool = True,
        unit_roundoff: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._ops = ops
        self._info = BackendInfo(
            "faulty",
            dynamic_shapes=True,
            data_dependent_sizes=True,
            deterministic=deterministic,
            options=Options,
            constants=constants,
            unit_roundoff=unit_roundoff,
        )

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return self._info

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        if not self._ops or binding.op.name in self._ops:
            return Support()
        return Rejection("op", f"no `{binding.op.name}` here")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        assert isinstance(context.options, Options)
        (function,) = functions
        if self._info.constants == "lifted":
            assert not any(isinstance(o, Constant) for b in function.bindings for o in b.operands)
        has_op = any(b.op.name == context.options.op for b in function.bindings)
        if context.options.fault == "refuse" or len(function.bindings) < context.options.min_ops:
            return CodegenResult(None, rejections={function.name: Rejection("mood", "not today")})
        if context.options.fault == "compile-error" and has_op:
            raise CodegenError("faulty", f"cannot compile `{context.options.op}`")
        if context.options.fault == "compile-crash" and has_op:
            os._exit(4)
        assert not result_symbols(function) or len(functions) == 1
        return CodegenResult(FaultyModule(functions, context))


plugin = FaultyBackend("add", "multiply", "subtract", "nn.relu", "nn.dense", "exp")
