"""Reports of the kernels of generated C: each kernel of the source once, with the ops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from byoc_core.authoring import c
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope, KernelFacts
from byoc_core.backend.hooks import SharedLoop
from byoc_core.ir import Function, FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops

SIZE = 4096


@dataclass(frozen=True)
class Tiling:
    """The choices of a kernel's writer."""

    rows: int
    is_packed: bool
    depth: int | None = None


class StatementCodegen(CSourceCodegen):
    """A backend with a single kernel, made of statements: doubles the input, on several threads."""

    def visit_function(self, scope: FunctionScope) -> None:
        (param,), (binding,) = scope.function.params, scope.function.bindings
        scope.bind(param, self.visit_var(scope, param))
        x, out = c.Buffer("x", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)
        index = c.Variable("i")
        store = c.Store(out, index, x[index] + x[index])
        loop = c.For(index, c.Size(0), c.Size(SIZE), (store,), kind=c.LoopKind.PARALLEL, grain=16, round_ps=10_000)
        function = c.outline(c.Function(scope.kernel_name("twice"), (x, out), (loop,)))
        name = scope.declare_kernel(
            c.print_function(function), "twice", KernelFacts((binding,), function, schedule=Tiling(8, True))
        )
        scope.call(name, scope.value(param), scope.buffer(binding.result))


def chain(name: str, size: int, *ops: str) -> Function:
    builder: Any = FunctionBuilder(name, ops=default_ops())
    value = builder.param("x", tensor((size,)))
    for op in ops:
        value = builder.emit(op, *([value] * len(default_ops()[op].operands)))
    function: Function = builder.finish(value)
    return function


def test_kernels_of_text_say_which_op_they_compute() -> None:
    functions = [chain("f", 6, "nn.relu", "tanh"), chain("g", 6, "add")]
    codegen = CSourceCodegen()
    reports = codegen.generated_kernels(functions)
    assert [(kernel.name, kernel.function, kernel.ops) for kernel in reports] == [
        ("f_0", "f", ("nn.relu",)),
        ("f_1", "f", ("tanh",)),
        ("g_0", "g", ("add",)),
    ]
    source = codegen.generate(functions).get_source()
    assert re.findall(r"static void (\w+)\(", source) == [kernel.name for kernel in reports]
    assert all(kernel.source in source for kernel in reports)
    assert {kernel.loops for kernel in reports} == {None}, "text has no loops that anybody knows"
    assert {kernel.flops for kernel in reports} == {None}
    module = IRModule({function.name: function for function in functions})
    assert codegen.generated_kernels(module) == reports
    assert codegen.generated_kernels(functions[1]) == reports[2:]


def test_a_kernel_of_statements_has_loops_and_an_estimate() -> None:
    (kernel,) = StatementCodegen().generated_kernels(chain("f", SIZE, "add"))
    assert kernel.name == "f_0_twice"
    assert kernel.loops == (
        f"for first_item..end_item in 0..{SIZE} by 16 (parallel)",
        "  for i in first_item..end_item: reads x; writes out",
    )
    assert kernel.shared_loops == (SharedLoop(SIZE, 16, SIZE * 10_000),)
    assert (kernel.flops, kernel.nbytes, kernel.ps) == (SIZE, SIZE * 12, SIZE * 10_000)
    assert kernel.schedule == {"rows": "8", "is_packed": "yes", "depth": "none"}
    assert kernel.to_data()["shared_loops"] == [{"rounds": SIZE, "grain": 16, "ps": SIZE * 10_000}]
