"""A backend of static shapes, a model with symbolic sizes, and shared checks of both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, IRModule, TensorType
from byoc_core.pattern import CompositePattern, Match, is_op, wildcard
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.specialised import SpecialisedModule
from byoc_core.transform import evaluate_function

TEXT = """
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", "n"), "float32"), z: R.Tensor((3,), "float32")):
    a = R.add(x, x)
    b = R.nn.relu(a)
    c = R.matmul(y, b)
    d = R.reshape(c, shape=("2*m", 2))
    e = R.exp(z)
    return d, e
"""


MODULE = R.parse(TEXT)


class Toy:
    """A backend of static shapes recording the compiled shapes; claims all ops except refused ops."""

    def __init__(self, refuse: Callable[[Binding], str | None] = lambda _: None) -> None:
        self.compiled: list[list[tuple[Any, ...]]] = []
        self.refuse = refuse
        self.codegen_refuses = False

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("toy")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        check_static(binding)
        reason = self.refuse(binding)
        return Support() if reason is None else Rejection("shape", reason)

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        def check(match: Match) -> None:
            for binding in match.bindings:
                check_static(binding)
            assert match.tensor("sum").shape is not None
            assert match.binding("sum").op.name == "add"
            assert [user.op.name for user in match.users("sum")] == ["nn.relu"]

        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()).named("sum"))
        return [CompositePattern("toy.add_relu", pattern, check)]

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        for function in functions:
            for binding in function.walk():
                check_static(binding)
            self.compiled.append([param.type.shape or () for param in function.params])  # type: ignore[union-attr]
        if self.codegen_refuses:
            return CodegenResult(None, rejections={f.name: Rejection("mood", "not today") for f in functions})
        return GraphCodegen().compile(functions, context)


def check_static(binding: Binding) -> None:
    for value in (*binding.operands, *binding.results):
        assert isinstance(value.type, TensorType)
        assert value.type.shape is not None
        assert all(type(dim) is int for dim in value.type.shape), binding


def inputs_of(n: int, m: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n * 100 + m)
    return tuple(rng.standard_normal(shape, np.float32) for shape in ((n, 4), (m, n), (3,)))


def check(main: Callable[..., Any], n: int, m: int, module: IRModule = MODULE) -> None:
    inputs = inputs_of(n, m)
    for found, expected in zip(main(*inputs), evaluate_function(module, "main", inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def shares(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["op"]: row["outcome"] for row in executable.report_data["ops"]}


def host_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log's messages about sizes run on the host, and clear the log."""
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    caplog.clear()
    return lines


def made_module(max_first_uses: int) -> tuple[SpecialisedModule, list[int], dict[str, Signature]]:
    """Return a module of a single function, ``f(x) = x + x``, and the sizes compiled."""
    text = "def f(x: R.Tensor(('n',), 'float32')):\n    a = R.add(x, x)\n    return a\n"
    compiled: list[int] = []

    def compile_sizes(name: str, sizes: Mapping[str, int]) -> Any:
        compiled.append(sizes["n"])
        function = R.parse(text.replace("'n'", str(sizes["n"])))["f"]
        result = GraphCodegen().compile([function], CompileContext("toy"))
        assert result.module is not None
        return result.module

    spec = TensorSpec("x", "float32", tuple(R.parse(text)["f"].params[0].type.shape or ()))  # type: ignore[union-attr]
    signatures = {"f": Signature((spec,), (TensorSpec("a", "float32", spec.shape),))}
    return SpecialisedModule("toy", signatures, (), compile_sizes, max_first_uses=max_first_uses), compiled, signatures
