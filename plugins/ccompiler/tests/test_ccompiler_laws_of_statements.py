"""Kernels of statements keep the laws of generated C, for the canonical cases of all ops, also with symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import byoc_ccompiler.kernel as kernel_module
import pytest
from byoc_ccompiler.backend import byoc_codegen
from byoc_ccompiler.registry import FAMILIES
from byoc_core.authoring.c import Call, Function, KnownCalls, outline, problems_of
from byoc_core.authoring.c.traversal import expressions_in
from byoc_core.backend.info import CompileContext
from byoc_core.errors import ByocError
from byoc_core.ir import TensorType, tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule

from plugins.ccompiler.tests.bench import Bench


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """Every declared kernel of statements, outlined."""
    found: list[Function] = []

    def recorded(function: Function, *, has_team: bool, calls: KnownCalls) -> Function:
        found.append(outline(function, has_team=has_team, calls=calls))
        return found[-1]

    monkeypatch.setattr(kernel_module, "outline", recorded)
    monkeypatch.setattr(CSourceModule, "build", lambda module: None)  # the text counts, not what a compiler makes of it
    return found


def _is_compiled(op: str, types: tuple[TensorType, ...], attrs: dict[str, object], precision: str = "float32") -> bool:
    bench = Bench(precision=precision)
    try:
        bench.op(op, types, **attrs)
    except ByocError:
        return False  # the op does not take such sizes
    result = byoc_codegen(bench.functions, CompileContext("ccompiler", bench.options, bench.constants))
    return not result.rejections


def _emptied(types: Sequence[TensorType]) -> Iterator[tuple[TensorType, ...]]:
    """Yield operand types with all axes of a size emptied, for each size."""
    for size in sorted({dim for type_ in types for dim in type_.shape or () if isinstance(dim, int)}):
        yield tuple(
            TensorType(tuple(0 if dim == size else dim for dim in type_.shape or ()), type_.dtype) for type_ in types
        )


@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_kernels_of_canonical_cases_keep_the_laws(kernels: list[Function], op: str) -> None:
    compiled = 0
    for case in default_ops()[op].canonical_cases if op in default_ops() else ():
        symbolic = (case.symbolic_types(everywhere=everywhere) for everywhere in (False, True))
        for types in (case.types(), *symbolic, *_emptied(case.types())):
            compiled += _is_compiled(op, tuple(types), dict(case.attrs))
    assert [(kernel.comments, problems) for kernel in kernels if (problems := problems_of(kernel))] == []
    # An op without operands is computed when the code is generated.
    assert kernels or not compiled or not default_ops()[op].operands


@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_what_writes_memory_takes_time(kernels: list[Function], op: str) -> None:
    # Loops of calls that cost nothing would never be worth sharing.
    for case in default_ops()[op].canonical_cases if op in default_ops() else ():
        for precision in ("float32", "bfloat16"):
            _is_compiled(op, case.types(), dict(case.attrs), precision)
    if op == "matmul":
        assert _is_compiled(op, (tensor((128, 256)), tensor((256, 128))), {}, "bfloat16")
    calls = [item.callee for kernel in kernels for item in expressions_in(kernel.body) if isinstance(item, Call)]
    callees = {callee for callee in calls if callee.writes and callee.function is None}
    assert [callee.name for callee in callees if not callee.flops and callee.ps is None] == []
