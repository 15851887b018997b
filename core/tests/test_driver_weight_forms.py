"""Backends ask for swappable weights in forms of their own: computed once, and equal to a fresh build after a swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import list_weights, swap_weights
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Support, hookimpl
from byoc_core.errors import CodegenError
from byoc_core.ir import Binding, Function, IRModule, Value, declare_weights, merge_modules, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import Rejection
from byoc_core.vm import VirtualMachine
from hypothesis import given
from hypothesis import strategies as st

from core.tests.weighted_modules import emit

SHAPE = (4, 4)
Forms = Mapping[int, Function]


def transposed(shape: tuple[int, ...] = SHAPE) -> Function:
    fb = FunctionBuilder("form")
    return fb.finish(emit(fb, "permute_dims", fb.param("weight", tensor(shape)), axes=(1, 0)))


class Transposing:
    """A backend for products by swappable weights, compiled as products by the transposed weights.

    Args:
        forms: returns the forms for a region's weights; by default the transposed weights.
    """

    def __init__(self, forms: Callable[[Function, frozenset[int]], Forms] | None = None) -> None:
        self.forms = forms or (lambda _, weights: dict.fromkeys(sorted(weights), transposed()))
        self.offered: dict[str, frozenset[int]] = {}

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("transposing")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return Support() if binding.op.name == "matmul" else Rejection("op", "there is no kernel")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        self.offered = dict(context.weights)
        forms = {f.name: self.forms(f, context.weights.get(f.name, frozenset())) for f in functions}
        result = GraphCodegen().compile([_of_transposed(f, forms[f.name]) for f in functions], context)
        return CodegenResult(result.module, result.constants, prepared_weights={k: v for k, v in forms.items() if v})


def _of_transposed(function: Function, forms: Forms) -> Function:
    """Return a region reading the transposes of some parameters."""
    fb = FunctionBuilder(function.name)
    mapping: dict[Value, Value] = {param: fb.param(param.name, param.type) for param in function.params}
    for number in forms:
        mapping[function.params[number]] = emit(fb, "permute_dims", mapping[function.params[number]], axes=(1, 0))
    for binding in function.bindings:
        operands = [mapping.get(operand, operand) for operand in binding.operands]
        mapping[binding.results[0]] = emit(fb, binding.op.name, *operands)
    return fb.finish(*(mapping[result] for result in function.results), **function.attrs)


def network(*, is_derived: bool = False, in_branch: bool = False) -> IRModule:
    """Return ``x @ a @ b``, perhaps with a computed ``b``, or inside a branch."""
    fb = FunctionBuilder("main")
    x, a, b = (fb.param(name, tensor(SHAPE)) for name in "xab")
    factor = emit(fb, "tanh", b) if is_derived else b
    y = emit(fb, "nn.relu", emit(fb, "matmul", x, a))
    if not in_branch:
        return IRModule({"main": fb.finish(emit(fb, "matmul", y, factor))}, fb.constants)
    bodies = []
    for name in ("then", "otherwise"):
        body = FunctionBuilder(name)
        p, q = body.param("p", tensor(SHAPE)), body.param("q", tensor(SHAPE))
        bodies.append(body.finish(emit(body, "matmul", p, q)))
    flag = fb.param("flag", tensor((), "bool"))
    taken = fb.emit("if", flag, y, factor, regions=bodies)
    return IRModule({"main": fb.finish(taken)}, fb.constants)  # type: ignore[arg-type]


def drawn(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(SHAPE).astype(np.float32) for name in "ab"}


X = np.random.default_rng(9).standard_normal(SHAPE).astype(np.float32)


@given(st.booleans(), st.integers(0, 5), st.sampled_from(["a", "b", "ab"]))
def test_a_swap_computes_the_forms_again(is_derived: bool, seed: int, names: str) -> None:
    module, backend = network(is_derived=is_derived), Transposing()
    first, second = drawn(seed), {**drawn(seed), **{name: drawn(seed + 1)[name] for name in names}}
    before, fresh = (byoc_core.build(declare_weights(module, v), [backend]) for v in (first, second))
    changed = before.with_weights({name: second[name] for name in names})
    assert changed.to_bytes() == fresh.to_bytes()
    plain = byoc_core.build(module, [])
    for executable, values in ((before, first), (fresh, second), (changed, second)):
        want = VirtualMachine(plain)["main"](X, values["a"], values["b"])
        np.testing.assert_array_equal(VirtualMachine(executable)["main"](X), want)


def test_a_saved_artifact_holds_forms_in_place_of_unread_weights(tmp_path: Path) -> None:
    backend, values = Transposing(), drawn(0)
    executable = byoc_core.build(declare_weights(network(), values), [backend])
    assert list(backend.offered.values()) == [frozenset({1}), frozenset({1})]
    program = {executable.constants[ref.digest].tobytes() for ref in executable.program.constants}
    assert program == {np.ascontiguousarray(value.T).tobytes() for value in values.values()}
    executable.save(tmp_path / "model.byoc")
    assert [weight.constants for weight in list_weights(tmp_path / "model.byoc").weights] == [(), ()]
    swap_weights(tmp_path / "model.byoc", drawn(1))
    fresh = byoc_core.build(declare_weights(network(), drawn(1)), [backend])
    assert (tmp_path / "model.byoc").read_bytes() == fresh.to_bytes()


def test_entries_with_equal_forms_store_one_array() -> None:
    values = drawn(0)
    module = declare_weights(network(), values)
    both = byoc_core.build(merge_modules({"prefill": module, "decode": module}), [Transposing()])
    one = byoc_core.build(module, [Transposing()])
    assert sum(array.nbytes for array in both.constants.values()) == sum(a.nbytes for a in one.constants.values())
    machine = VirtualMachine(both)
    np.testing.assert_array_equal(machine["prefill"](X), machine["decode"](X))


def test_constants_and_operands_of_bodies_are_not_offered() -> None:
    backend = Transposing()
    byoc_core.build(declare_weights(network(in_branch=True), drawn(0)), [backend])
    assert list(backend.offered.values()) == [frozenset({1})]  # the product before the branch
    byoc_core.build(byoc_core.transform.BindParams(drawn(0))(network()), [backend])
    assert backend.offered == {}


_ASKS = "backend `transposing`: asks for a form of parameter"

_OTHER_TYPE = (
    f'{_ASKS} 1 of function `transposing_main_0` with another type; got R.Tensor((2, 8), "float32"), '
    'R.Tensor((8, 2), "float32"), expected a function from R.Tensor((4, 4), "float32") to the same type'
)

MISFITS: list[tuple[Forms, str]] = [
    ({0: transposed()}, f"{_ASKS} 0 of function `transposing_main_0`, which gets no swappable weight"),
    ({1: transposed((2, 8))}, _OTHER_TYPE),
]


@pytest.mark.parametrize(("forms", "message"), MISFITS)
def test_misfits_are_errors(forms: Forms, message: str) -> None:
    backend = Transposing(lambda _function, _weights: forms)
    with pytest.raises(CodegenError) as caught:
        byoc_core.build(declare_weights(network(), drawn(0)), [backend])
    assert str(caught.value) == message
