from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import ConstantStore
from byoc_core.ir.module import Binding, Function, IRModule, Value, Var
from byoc_core.ir.structural import CALL, CALL_DPS_PACKED, CALL_PACKED, IF, LOOP
from byoc_core.lower import lower
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.types import ObjectType, TensorType, Type, tensor
from byoc_core.runtime.module import NDArray
from byoc_core.vm import Program, VirtualMachine, decode, encode, verify
from hypothesis import given
from hypothesis import strategies as st

from core.tests.vm.programs import Executable, num_copies

INT, BOOL = tensor((), "int64"), tensor((), "bool")


class Body:
    """A writer of functions, binding by binding."""

    def __init__(self, *types: Type) -> None:
        self.params = tuple(Var(f"p{index}", type_) for index, type_ in enumerate(types))
        self.bindings: list[Binding] = []

    def bind(
        self,
        op: OpDef,
        operands: Sequence[Value],
        types: Sequence[Type],
        regions: Sequence[Function] = (),
        **attrs: Any,
    ) -> list[Var]:
        results = [Var(f"lv{len(self.bindings)}_{index}", type_) for index, type_ in enumerate(types)]
        self.bindings.append(Binding(tuple(results), op, tuple(operands), attrs, tuple(regions)))
        return results

    def dps(self, symbol: str, *operands: Value, type: Type | None = None) -> Var:  # noqa: A002
        types = (type or operands[0].type,)
        return self.bind(CALL_DPS_PACKED, operands, types, symbol=symbol, out_types=types)[0]

    def packed(self, symbol: str, *operands: Value, type: Type) -> Var:  # noqa: A002
        return self.bind(CALL_PACKED, operands, (type,), symbol=symbol, pure=False, out_types=(type,))[0]

    def call(self, callee: str, *operands: Value, types: Sequence[Type]) -> list[Var]:
        return self.bind(CALL, operands, types, callee=callee)

    def branch(self, condition: Value, *inputs: Value, then: Function, otherwise: Function) -> list[Var]:
        return self.bind(IF, (condition, *inputs), then.result_types, (then, otherwise))

    def loop(self, trips: Value, condition: Value, *carried: Value, body: Function) -> list[Var]:
        return self.bind(LOOP, (trips, condition, *carried), [value.type for value in carried], (body,))

    def function(self, *results: Value, name: str = "main") -> Function:
        return Function(name, self.params, tuple(self.bindings), results)


EXTERNS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, out: np.add(x, y, out=out),
    "mul": lambda x, y, out: np.multiply(x, y, out=out),
    "double": lambda x, out: np.add(x, x, out=out),
    "less": lambda x, y, out: np.less(x, y, out=out),
    "true": lambda x, out: out.fill(True),
    "to_int": lambda x, out: np.copyto(out, x.astype(out.dtype)),
    "nonzero": np.flatnonzero,
    "evens": lambda x: x[x % 2 == 0],
}


def program_of(*functions: Function, store: ConstantStore | None = None) -> Program:
    program = lower(IRModule({function.name: function for function in functions}, store or ConstantStore()))
    verify(program)
    assert decode(encode(program)) == program
    return program


def run(*functions: Function, inputs: Sequence[object] = (), store: ConstantStore | None = None) -> Any:
    program = program_of(*functions, store=store)
    return VirtualMachine(Executable(program, constants=store or {}), externs=EXTERNS)["main"](*inputs)


F4 = tensor((4,))
X = np.arange(4, dtype=np.float32) + 1


def test_straight_line_code_needs_no_copy() -> None:
    body = Body(F4)
    (x,) = body.params
    doubled = body.dps("double", x)
    main = body.function(body.dps("add", x, doubled), doubled)
    program = program_of(main)
    assert num_copies(program) == 0
    assert program.functions[0].tensors == ()
    a, b = run(main, inputs=[X])
    np.testing.assert_array_equal(a, 3 * X)
    np.testing.assert_array_equal(b, 2 * X)


@given(st.data())
def test_random_graphs_compute_what_numpy_computes(data: st.DataObject) -> None:
    sizes = [tensor((4,)), tensor(("n",)), tensor((3, "n"))]
    body = Body(*sizes)
    inputs = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in ((4,), (6,), (3, 6))]
    values: list[tuple[Var, NDArray]] = list(zip(body.params, inputs, strict=True))
    for _ in range(data.draw(st.integers(1, 15))):
        var, array = data.draw(st.sampled_from(values))
        other, other_array = data.draw(st.sampled_from([pair for pair in values if pair[0].type == var.type]))
        if data.draw(st.booleans()):
            values.append((body.dps("add", var, other), array + other_array))
        else:
            values.append((body.dps("double", var), array + array))
    results = data.draw(st.lists(st.sampled_from(values), min_size=2, max_size=4))
    got = run(body.function(*(var for var, _ in results)), inputs=inputs)
    for result, (_, expected) in zip(got, results, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_intermediates_share_memory() -> None:
    body = Body(tensor((64,)))
    value = body.params[0]
    for _ in range(20):
        value = body.dps("double", value)
    main = body.function(value)
    assert program_of(main).functions[0].storages == (512,)
    np.testing.assert_array_equal(run(main, inputs=[np.ones(64, np.float32)]), np.full(64, 2.0**20))


def test_symbolic_intermediates_share_memory() -> None:
    body = Body(tensor(("n", 2)))
    value = body.params[0]
    for _ in range(20):
        value = body.dps("double", value)
    main = body.function(value)
    program = program_of(main)
    assert list(map(str, program.functions[0].storages)) == ["8*n", "8*n"]
    for size in (1, 5, 0):
        np.testing.assert_array_equal(run(main, inputs=[np.ones((size, 2), np.float32)]), np.full((size, 2), 2.0**20))


def test_results_that_are_inputs_constants_or_doubled_are_copied() -> None:
    store = ConstantStore()
    constant = store.add(X)
    body = Body(F4)
    (x,) = body.params
    doubled = body.dps("double", x)
    main = body.function(x, constant, doubled, doubled, x)
    assert num_copies(program_of(main, store=store)) == 4
    results = run(main, inputs=[X], store=store)
    for result, factor in zip(results, (1, 1, 2, 2, 1), strict=True):
        np.testing.assert_array_equal(result, factor * X)
        assert not np.shares_memory(result, X)
    assert not np.shares_memory(results[2], results[3])


def test_constants_and_externs_are_numbered_once() -> None:
    store = ConstantStore()
    constant = store.add(X)
    body = Body(F4)
    value = body.dps("add", body.dps("add", body.params[0], constant), constant)
    program = program_of(body.function(value), store=store)
    assert program.externs == ("add",)
    assert [ref.digest for ref in program.constants] == [constant.digest]


def test_names_of_inputs_and_outputs() -> None:
    body = Body(F4)
    main = body.function(body.dps("double", body.params[0])).with_attrs(input_names=("in",), output_names=("out",))
    program = program_of(main)
    vm = VirtualMachine(Executable(program), externs=EXTERNS)
    np.testing.assert_array_equal(vm.run("main", {"in": X}, out={"out": np.zeros_like(X)}), 2 * X)


def test_functions_call_each_other() -> None:
    inner = Body(tensor(("m",)))
    callee = inner.function(inner.dps("double", inner.params[0]), inner.params[0], name="callee")
    outer = Body(tensor(("n",)))
    first, _ = outer.call("callee", outer.params[0], types=[tensor(("n",))] * 2)
    second, third = outer.call("callee", first, types=[tensor(("n",))] * 2)
    a, b = run(outer.function(second, third), callee, inputs=[X])
    np.testing.assert_array_equal(a, 4 * X)
    np.testing.assert_array_equal(b, 2 * X)


class TestIf:
    def then(self) -> Function:
        body = Body(F4, F4)
        return body.function(body.dps("add", *body.params), body.params[1], name="then")

    def otherwise(self) -> Function:
        body = Body(F4, F4)
        product = body.dps("mul", *body.params)
        return body.function(product, product, name="otherwise")

    @pytest.mark.parametrize("condition", [True, False])
    def test_branches_write_into_the_result_buffers(self, condition: bool) -> None:
        body = Body(BOOL, F4, F4)
        main = body.function(*body.branch(*body.params, then=self.then(), otherwise=self.otherwise()))
        program = program_of(main)
        assert program.functions[0].tensors == ()
        assert num_copies(program) == 2
        a, b = run(main, inputs=[np.array(condition), X, X + 1])
        np.testing.assert_array_equal(a, X + X + 1 if condition else X * (X + 1))
        np.testing.assert_array_equal(b, X + 1 if condition else X * (X + 1))

    @pytest.mark.parametrize("outer", [True, False])
    @pytest.mark.parametrize("inner", [True, False])
    def test_nested(self, outer: bool, inner: bool) -> None:
        region = Body(BOOL, F4, F4)
        then = region.function(*region.branch(*region.params, then=self.then(), otherwise=self.otherwise()))
        region = Body(BOOL, F4, F4)
        otherwise = region.function(region.params[1], region.params[1])
        body = Body(BOOL, BOOL, F4, F4)
        first, second = body.branch(body.params[0], *body.params[1:], then=then, otherwise=otherwise)
        main = body.function(body.dps("add", first, second))
        result = run(main, inputs=[np.array(outer), np.array(inner), X, X + 1])
        expected = 2 * X if not outer else (X + X + 1 + X + 1 if inner else 2 * X * (X + 1))
        np.testing.assert_array_equal(result, expected)

    def test_one_region_object_may_serve_several_branches(self) -> None:
        region = Body(F4)
        shared = region.function(region.dps("double", region.dps("double", region.params[0])), name="shared")
        body = Body(BOOL, F4)
        (first,) = body.branch(*body.params, then=shared, otherwise=shared)
        (second,) = body.branch(body.params[0], first, then=shared, otherwise=shared)
        for condition in (True, False):
            a, b = run(body.function(first, second), inputs=[np.array(condition), X])
            np.testing.assert_array_equal(a, 4 * X)
            np.testing.assert_array_equal(b, 16 * X)


class TestLoop:
    def test_counts_rounds_and_stops_on_the_condition(self) -> None:
        region = Body(INT, INT, INT)
        iteration, total, limit = region.params
        total = region.dps("add", total, iteration)
        body_function = region.function(region.dps("less", total, limit, type=BOOL), total, limit, name="body")
        body = Body(INT, BOOL, INT, INT)
        total, _ = body.loop(*body.params, body=body_function)
        main = body.function(total)
        for trips, condition, start, limit_value in [
            (5, True, 0, 100),
            (5, False, 7, 100),
            (100, True, 0, 20),
            (0, True, 3, 9),
        ]:
            expected, keep_going = start, condition
            for round_ in range(trips):
                if not keep_going:
                    break
                expected += round_
                keep_going = expected < limit_value
            inputs = [np.int64(trips), np.bool_(condition), np.int64(start), np.int64(limit_value)]
            assert run(main, inputs=inputs) == expected

    def test_swapped_and_shifted_values(self) -> None:
        """The next round's values are all read before any is written."""
        region = Body(INT, F4, F4, F4)
        _, a, b, c = region.params
        keep_going = region.dps("true", a, type=BOOL)
        body_function = region.function(keep_going, b, c, a, name="body")
        body = Body(INT, BOOL, F4, F4, F4)
        main = body.function(*body.loop(*body.params, body=body_function))
        values = [X, 10 * X, 100 * X]
        for trips in range(5):
            results = run(main, inputs=[np.int64(trips), np.bool_(True), *values])
            for index, result in enumerate(results):
                np.testing.assert_array_equal(result, values[(index + trips) % 3])

    def test_the_condition_may_be_a_carried_value(self) -> None:
        region = Body(INT, BOOL, INT)
        _, flag, count = region.params
        increment = region.dps("add", count, count)
        body_function = region.function(flag, region.dps("less", count, increment, type=BOOL), increment, name="body")
        body = Body(INT, BOOL, BOOL, INT)
        _, count = body.loop(*body.params, body=body_function)
        main = body.function(count)
        assert run(main, inputs=[np.int64(9), np.bool_(True), np.bool_(False), np.int64(1)]) == 2
        assert run(main, inputs=[np.int64(3), np.bool_(True), np.bool_(True), np.int64(1)]) == 8

    def test_values_from_outside_stay_for_every_round(self) -> None:
        """A value made before the loop and carried unchanged is still present in the last round."""
        region = Body(INT, F4, F4)
        _, x, y = region.params
        scratch = region.dps("double", region.dps("double", x))
        total = region.dps("add", scratch, y)
        body_function = region.function(region.dps("true", x, type=BOOL), total, y, name="body")
        body = Body(INT, BOOL, F4)
        trips, condition, x = body.params
        fixed = body.dps("double", x)
        start = body.dps("double", fixed)
        total, same = body.loop(trips, condition, start, fixed, body=body_function)
        main = body.function(body.dps("add", total, fixed), same)
        expected = 4 * X
        for _ in range(3):
            expected = 4 * expected + 2 * X
        a, b = run(main, inputs=[np.int64(3), np.bool_(True), X])
        np.testing.assert_array_equal(a, expected + 2 * X)
        np.testing.assert_array_equal(b, 2 * X)

    def test_nested_loops_with_a_branch_inside(self) -> None:
        small = Body(F4)
        then = small.function(small.dps("double", small.params[0]))
        small = Body(F4)
        otherwise = small.function(small.params[0])
        inner = Body(INT, F4, BOOL)
        _, value, flag = inner.params
        (value,) = inner.branch(flag, value, then=then, otherwise=otherwise)
        inner_body = inner.function(inner.dps("true", value, type=BOOL), value, flag, name="inner")
        outer = Body(INT, F4, F4, INT, BOOL)
        _iteration, a, b, trips, flag = outer.params
        going = outer.dps("true", a, type=BOOL)
        a2, _ = outer.loop(trips, going, a, flag, body=inner_body)
        outer_body = outer.function(going, b, outer.dps("add", a2, b), trips, flag, name="outer")
        body = Body(INT, BOOL, F4, F4, INT, BOOL)
        main = body.function(*body.loop(*body.params, body=outer_body)[:2])
        for rounds, inner_rounds, doubling in [(0, 2, True), (1, 2, True), (4, 3, True), (3, 2, False), (2, 0, True)]:
            first, second = X, 3 * X
            for _ in range(rounds):
                first, second = second, first * (2**inner_rounds if doubling else 1) + second
            got = run(
                main,
                inputs=[np.int64(rounds), np.bool_(True), X, 3 * X, np.int64(inner_rounds), np.bool_(doubling)],
            )
            np.testing.assert_array_equal(got[0], first)
            np.testing.assert_array_equal(got[1], second)

    def test_symbolic_carried_values(self) -> None:
        n = tensor(("n",))
        region = Body(INT, n)
        x = region.params[1]
        body_function = region.function(region.dps("true", x, type=BOOL), region.dps("double", x), name="body")
        body = Body(INT, BOOL, n)
        main = body.function(*body.loop(*body.params, body=body_function))
        for size in (0, 3):
            ones = np.ones(size, np.float32)
            np.testing.assert_array_equal(run(main, inputs=[np.int64(5), np.bool_(True), ones]), 32 * ones)


class TestSizesLearntWhileRunning:
    K = tensor(("k",), "int64")

    def test_results_and_intermediates(self) -> None:
        body = Body(F4)
        indices = body.packed("nonzero", body.params[0], type=self.K)
        doubled = body.dps("double", body.dps("double", indices))
        main = body.function(indices, doubled, indices)
        a, b, c = run(main, inputs=[np.array([0, 1, 0, 1], np.float32)])
        np.testing.assert_array_equal(a, [1, 3])
        np.testing.assert_array_equal(b, [4, 12])
        np.testing.assert_array_equal(c, [1, 3])
        assert not np.shares_memory(a, c)

    @pytest.mark.parametrize("condition", [True, False])
    def test_branches(self, condition: bool) -> None:
        region = Body(F4)
        then = region.function(region.packed("nonzero", region.params[0], type=self.K))
        region = Body(F4)
        values = region.dps("to_int", region.params[0], type=tensor((4,), "int64"))
        otherwise = region.function(region.dps("double", region.packed("evens", values, type=self.K)))
        body = Body(BOOL, F4)
        (result,) = body.branch(*body.params, then=then, otherwise=otherwise)
        main = body.function(body.dps("double", result))
        got = run(main, inputs=[np.array(condition), np.array([0, 1, 2, 4], np.float32)])
        np.testing.assert_array_equal(got, [2, 4, 6] if condition else [0, 8, 16])

    def test_a_size_may_change_from_round_to_round(self) -> None:
        region = Body(INT, tensor(("n",), "int64"))
        _, values = region.params
        evens = region.packed("evens", values, type=self.K)
        region.dps("double", evens)
        going = region.dps("true", evens, type=BOOL)
        body_function = region.function(going, region.dps("add", values, values), name="body")
        body = Body(INT, BOOL, tensor(("n",), "int64"))
        main = body.function(*body.loop(*body.params, body=body_function))
        np.testing.assert_array_equal(run(main, inputs=[np.int64(3), np.bool_(True), np.array([1, 2, 3])]), [8, 16, 24])

    def test_carried_values_and_calls(self) -> None:
        inner = Body(F4)
        callee = inner.function(inner.packed("nonzero", inner.params[0], type=self.K), name="callee")
        region = Body(INT, self.K)
        x = region.params[1]
        body_function = region.function(region.dps("true", x, type=BOOL), region.dps("double", x), name="body")
        body = Body(INT, BOOL, F4)
        (indices,) = body.call("callee", body.params[2], types=[self.K])
        main = body.function(*body.loop(*body.params[:2], indices, body=body_function))
        got = run(main, callee, inputs=[np.int64(3), np.bool_(True), X])
        np.testing.assert_array_equal(got, [0, 8, 16, 24])


class TestErrors:
    def error(self, *functions: Function) -> str:
        with pytest.raises(CodegenError) as caught:
            lower(IRModule({function.name: function for function in functions}))
        return str(caught.value)

    def test_an_op_without_code(self) -> None:
        body = Body(F4)
        relu = OpDef("nn.relu", (), lambda context: context.operands)
        main = body.function(*body.bind(relu, body.params, [F4]))
        assert self.error(main) == (
            "function `main`, op `nn.relu` (`lv0_0`): has no code: no backend compiled the op. "
            "Give `RunCodegen` a backend for every op, or build with the host as the last backend."
        )

    def test_a_function_that_is_not_there(self) -> None:
        body = Body(F4)
        main = body.function(*body.call("helper", *body.params, types=[F4]))
        assert self.error(main) == "function `main`, op `call`: function `helper` is not in the module"

    def test_values_without_storage(self) -> None:
        assert self.error(Body(ObjectType("string")).function()) == (
            'function `main`: `p0` has no storage; got R.Object("string"), expected a tensor of known rank'
        )
        body = Body(F4)
        main = body.function(body.packed("f", body.params[0], type=TensorType(None, "float32")))
        assert self.error(main) == (
            'function `main`: `output0` has no storage; got R.Tensor(None, "float32"), expected a tensor of known rank'
        )

    def test_sizes_that_nothing_gives(self) -> None:
        body = Body(F4)
        main = body.function(body.dps("double", body.dps("double", body.params[0], type=tensor(("k",))), type=F4))
        assert self.error(main) == (
            "function `main`: the size of `lv0_0` is unknown at the allocation: no shape determines k; "
            'got R.Tensor(("k",), "float32"). '
            "A shape determines a size by an axis with a single unknown symbol, such as `n` or `2*n+1`."
        )
        body = Body(F4)
        main = body.function(body.packed("f", body.params[0], type=tensor(("a*b",))))
        assert self.error(main) == (
            'function `main`: the shape of `lv0_0` does not determine a, b; got R.Tensor(("a*b",), "float32"). '
            "A shape determines a size by an axis with a single unknown symbol, such as `n` or `2*n+1`."
        )


def test_the_program_does_not_depend_on_names() -> None:
    def chain(prefix: str) -> Program:
        x = Var(f"{prefix}x", F4)
        values: list[Var] = [x]
        bindings = []
        for index in range(6):
            values.append(Var(f"{prefix}{index * 7 % 5}", F4))
            bindings.append(Binding((values[-1],), CALL_DPS_PACKED, (values[-2],), {"symbol": "double"}))
        function = Function("main", (x,), tuple(bindings), (values[-1],))
        return lower(IRModule({"main": function.with_attrs(input_names=("x",))}))

    assert encode(chain("a")) == encode(chain("zz"))


def test_ten_thousand_ops() -> None:
    body = Body(F4)
    value = body.params[0]
    for _ in range(10_000):
        value = body.dps("double", value)
    program = lower(IRModule({"main": body.function(value)}))
    assert program.functions[0].storages == (80,)
