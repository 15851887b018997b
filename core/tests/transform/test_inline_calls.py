"""Calls replaced by bodies: text in, text out; sizes, symbols and names; remaining calls; random call graphs."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendInfo, CodegenResult, Support
from byoc_core.backend.hooks import hookimpl
from byoc_core.errors import IRError, OptionsError
from byoc_core.ir import FunctionBuilder, IRModule, Value, tensor, verify
from byoc_core.ir.verifier import MAX_NESTING
from byoc_core.partitioning import partition
from byoc_core.transform import InlineCalls, RemoveUnusedFunctions, Sequential, evaluate_function
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HEAD = "class Module:\n"


def parse(functions: str) -> IRModule:
    return R.parse(HEAD + functions)


def inlined_main(functions: str, transform: InlineCalls | None = None) -> str:
    """Return the text of `main` after inlining, checked by the verifier; a second run changes nothing."""
    module = parse(functions)
    text = str(module)
    after = RemoveUnusedFunctions()(verify((transform or InlineCalls())(module)))
    assert str(module) == text
    assert (transform or InlineCalls())(after) is after
    return str(after)


def check(before: str, after: str, transform: InlineCalls | None = None) -> None:
    assert inlined_main(before, transform) == str(parse(after))


INNER = """
    @R.function
    def scale(x: R.Tensor(("m", 2), "float32"), y: R.Tensor(("m", 2), "float32")):
        a = R.multiply(x, y)
        b = R.reshape(a, shape=("2*m",))
        return b, a
"""


def test_a_call_becomes_the_body_with_the_caller_s_sizes() -> None:
    check(
        INNER
        + """
    @R.function
    def main(a: R.Tensor((3, 2), "float32")):
        flat, product = scale(a, a)
        c = R.exp(flat)
        return c, product
""",
        """
    @R.function
    def main(a: R.Tensor((3, 2), "float32")):
        product = R.multiply(a, a)
        flat = R.reshape(product, shape=(6,))
        c = R.exp(flat)
        return c, product
""",
    )


def test_names_and_symbols_of_two_calls_do_not_meet() -> None:
    check(
        """
    @R.function
    def pick(x: R.Tensor(("n",), "float32")):
        a = R.abs(x)
        i = R.nonzero(a, out_types=[R.Tensor((1, "k"), "int64")])
        b = R.cast(i, dtype="float32")
        c = R.sum(b, axis=(1,), keepdims=False)
        return c

    @R.function
    def main(a: R.Tensor(("n",), "float32"), k: R.Tensor(("k",), "float32")):
        c = pick(a)
        d = pick(k)
        e = R.add(c, d)
        return e
""",
        """
    @R.function
    def main(a: R.Tensor(("n",), "float32"), k: R.Tensor(("k",), "float32")):
        a_1 = R.abs(a)
        i = R.nonzero(a_1, out_types=[R.Tensor((1, "k_1"), "int64")])
        b = R.cast(i, dtype="float32")
        c = R.sum(b, axis=(1,), keepdims=False)
        a_2 = R.abs(k)
        i_1 = R.nonzero(a_2, out_types=[R.Tensor((1, "k_2"), "int64")])
        b_1 = R.cast(i_1, dtype="float32")
        d = R.sum(b_1, axis=(1,), keepdims=False)
        e = R.add(c, d)
        return e
""",
    )


INTRODUCES = """
    @R.function
    def pick(x: R.Tensor(("n",), "float32")):
        i = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        return i

    @R.function
    def count(x: R.Tensor(("n",), "float32")):
        i = pick(x)
        b = R.cast(i, dtype="float32")
        c = R.sum(b, axis=(1,), keepdims=False)
        return c
"""


def test_sizes_that_a_call_introduces_are_the_caller_s() -> None:
    check(
        INTRODUCES
        + """
    @R.function
    def main(x: R.Tensor(("k",), "float32"), y: R.Tensor((5,), "float32")):
        c = count(x)
        d = count(y)
        return c, d
""",
        """
    @R.function
    def main(x: R.Tensor(("k",), "float32"), y: R.Tensor((5,), "float32")):
        i = R.nonzero(x, out_types=[R.Tensor((1, "k_1"), "int64")])
        b = R.cast(i, dtype="float32")
        c = R.sum(b, axis=(1,), keepdims=False)
        i_1 = R.nonzero(y, out_types=[R.Tensor((1, "k_2"), "int64")])
        b_1 = R.cast(i_1, dtype="float32")
        d = R.sum(b_1, axis=(1,), keepdims=False)
        return c, d
""",
    )
    check(
        INTRODUCES
        + """
    @R.function
    def main(x: R.Tensor((5,), "float32")):
        p = pick(x)
        return p
""",
        """
    @R.function
    def main(x: R.Tensor((5,), "float32")):
        p = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        return p
""",
    )


def test_a_size_of_a_call_that_stays_keeps_its_name() -> None:
    """`pick` stays a call introducing `k`: a caller without `k` may hold one copy of `count`, and not two."""
    transform = InlineCalls(("count",))
    free = "    @R.function\n    def main(x: R.Tensor((5,)), y: R.Tensor((5,))):\n"
    calls = "        c = count(x)\n        d = count(y)\n        return c, d\n"
    text = inlined_main(INTRODUCES + free + calls, transform)
    main = text[text.index("def main") :]
    assert main.count("pick(") == 1
    assert main.count("count(") == 1


CONTROL = """
    @R.function
    def twice(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        return y

    @R.function
    def choose(flag: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        @R.region
        def then_region(x: R.Tensor(("n",), "float32")):
            y = twice(x)
            return y

        @R.region
        def else_region(x: R.Tensor(("n",), "float32")):
            y = R.negative(x)
            return y

        z = R.if_(flag, x, regions=[then_region, else_region])
        return z
"""


def test_regions_are_copied_and_calls_in_them_replaced() -> None:
    module = R.parse(HEAD + CONTROL + MAIN_OF_CONTROL)
    after = verify(InlineCalls()(module))
    assert all(binding.op.name != "call" for binding in after["main"].walk())
    names = [value.name for binding in after["main"].walk() for value in binding.results]
    assert len(names) == len(set(names))
    for flag in (True, False):
        inputs = [np.array(flag), np.arange(4, dtype=np.float32)]
        for have, want in zip(*(evaluate_function(m, "main", inputs) for m in (after, module)), strict=True):
            np.testing.assert_array_equal(have, want)


MAIN_OF_CONTROL = """
    @R.function
    def main(flag: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        a = choose(flag, x)
        b = choose(flag, a)
        c = twice(b)
        return c
"""


def test_results_that_are_parameters_constants_or_named_twice() -> None:
    check(
        """
    @R.function
    def inner(x: R.Tensor((2,), "float32")):
        a = R.exp(x)
        return x, a, a, R.const([1.0, 2.0], "float32")

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        p, q, r, s = inner(x)
        t = R.add(r, s)
        return p, q, t
""",
        """
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        r = R.exp(x)
        t = R.add(r, R.const([1.0, 2.0], "float32"))
        return x, r, t
""",
    )


def test_locations_stay() -> None:
    module = parse(
        INNER + "\n    @R.function\n    def main(x: R.Tensor((3, 2))):\n        y, z = scale(x, x)\n        return y\n"
    )
    inside = [binding.location for binding in module["scale"].bindings]
    assert all(inside)
    assert [binding.location for binding in InlineCalls()(module)["main"].bindings] == inside


CHAIN = """
    @R.function
    def low(x: R.Tensor((2,), "float32")):
        y = R.exp(x)
        return y

    @R.function
    def middle(x: R.Tensor((2,), "float32")):
        y = low(x)
        z = R.negative(y)
        return z

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = middle(x)
        b = low(a)
        return b
"""


def ops_of(module: IRModule, name: str) -> list[str]:
    return [str(binding.attrs.get("callee", binding.op.name)) for binding in module[name].walk()]


def test_only_calls_of_the_functions_that_are_asked_for() -> None:
    module = parse(CHAIN)
    after = InlineCalls(("low",))(module)
    assert ops_of(after, "main") == ["middle", "exp"]
    assert ops_of(after, "middle") == ["exp", "negative"]
    after = InlineCalls(("middle",))(module)
    assert ops_of(after, "main") == ["low", "negative", "low"]
    assert after["middle"] is module["middle"]  # nobody calls it any more: it stays as it is
    assert InlineCalls(())(module) is module
    with pytest.raises(IRError) as caught:
        InlineCalls(("lov",))(module)
    assert str(caught.value).startswith("function `lov`: is not in the module")


def test_unused_functions_are_another_pass_s() -> None:
    after = InlineCalls()(parse(CHAIN))
    assert [*after.functions] == ["low", "middle", "main"]
    assert [*RemoveUnusedFunctions()(after).functions] == ["main"]


def test_what_is_handed_to_a_backend_stays() -> None:
    module = parse(CHAIN)
    annotated = module["low"].with_attrs(Codegen="npu", global_symbol="low")
    after = InlineCalls()(module.with_function(annotated))
    assert ops_of(after, "main") == ["low", "negative", "low"]
    caller = module["main"].with_attrs(Codegen="npu", global_symbol="main")
    assert InlineCalls()(module.with_function(caller))["main"] is caller


def test_a_composite_keeps_its_calls() -> None:
    text = """
    @R.function
    def low(x: R.Tensor((2,), "float32")):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        @R.region
        def body(x: R.Tensor((2,), "float32")):
            y = low(x)
            return y

        z = R.composite("npu.low", (x,), regions=[body])
        a = low(z)
        return a
"""
    assert ops_of(InlineCalls()(parse(text)), "main") == ["low", "composite", "exp"]


def test_functions_that_call_themselves_stay() -> None:
    """The verifier forbids recursion; the pass ends all the same."""
    builder = FunctionBuilder("loop")
    x = builder.param("x", tensor((2,)))
    first = builder.finish(x)
    module = IRModule({"loop": first})
    again = FunctionBuilder("loop", functions={"loop": first})
    again.param("x", tensor((2,)))
    call = again.bind("call", [again._params[0]], {"callee": "loop"})
    module = module.with_function(again.finish(call.result))
    main = FunctionBuilder("main", functions=module.functions)
    x = main.param("x", tensor((2,)))
    module = module.with_function(main.finish(main.bind("call", [x], {"callee": "loop"}).result))
    assert InlineCalls()(module) is module


def test_a_body_that_gets_other_results_stays() -> None:
    module = parse("""
    @R.function
    def inner(x: R.Tensor(None, "float32")):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor(None, "float32")):
        y = inner(x)
        return y
""")
    assert ops_of(InlineCalls()(module), "main") == ["exp"]
    known = FunctionBuilder("main", functions=module.functions)
    x = known.param("x", tensor((2,)))
    module = module.with_function(known.finish(known.bind("call", [x], {"callee": "inner"}).result))
    assert InlineCalls()(verify(module)) is module


def doubling(depth: int) -> IRModule:
    """Return functions, each calling the function below twice."""
    functions: dict[str, Any] = {}
    for level in range(depth):
        name = "main" if level == depth - 1 else f"f{level}"
        builder = FunctionBuilder(name, functions=functions)
        x: Value = builder.param("x", tensor((2,)))
        for _ in range(2):
            below = f"f{level - 1}"
            x = builder.bind("negative" if level == 0 else "call", [x], {} if level == 0 else {"callee": below}).result
        functions[name] = builder.finish(x)
    return IRModule(functions)


def test_a_bound_on_the_ops_that_are_added() -> None:
    module = doubling(60)
    start = time.process_time()
    after = verify(InlineCalls(max_ops=1000)(module))
    assert time.process_time() - start < 20
    sizes = {name: sum(1 for _ in function.walk()) for name, function in after.functions.items()}
    assert sum(sizes.values()) <= 1000 + 2 * 60
    assert max(sizes.values()) > 500
    assert ops_of(after, "main") == ["f58", "f58"]
    small = doubling(5)
    assert ops_of(InlineCalls(max_ops=32)(small), "main") == ["negative"] * 32
    assert ops_of(InlineCalls(max_ops=31)(small), "main") == ["negative"] * 16 + ["f3"]
    assert InlineCalls(max_ops=0)(small) is small
    with pytest.raises(OptionsError) as caught:
        InlineCalls(max_ops=-1)
    assert str(caught.value) == "max_ops: is negative; got -1"


def test_a_long_chain_of_calls() -> None:
    functions: dict[str, Any] = {}
    for level in range(2000):
        builder = FunctionBuilder(f"f{level}", functions=functions)
        x: Value = builder.param("x", tensor((2,)))
        x = builder.bind("negative", [x], {}).result
        if level:
            x = builder.bind("call", [x], {"callee": f"f{level - 1}"}).result
        functions[f"f{level}"] = builder.finish(x)
    after = InlineCalls()(IRModule(functions))
    assert ops_of(after, "f1999") == ["negative"] * 2000
    assert len(after["f1000"].bindings) == 2


def nested(depth: int, call: str | None, functions: dict[str, Any], name: str) -> Any:
    """Return a function with nested bodies of `if` around a call."""

    def body(level: int, name: str) -> Any:
        builder = FunctionBuilder(name, functions=functions)
        flag, x = builder.param("flag", tensor((), "bool")), builder.param("x", tensor((2,)))
        if level == 0:
            op, attrs = ("negative", {}) if call is None else ("call", {"callee": call})
            return builder.finish(builder.bind(op, [x] if call is None else [flag, x], attrs).result)
        regions = [body(level - 1, "then_region"), body(0, "else_region")]
        passed = [flag, flag, x]
        return builder.finish(builder.bind("if", passed, {}, regions=regions).result)

    return body(depth, name)


@pytest.mark.parametrize(("depth", "is_replaced"), [(MAX_NESTING // 2, True), (MAX_NESTING // 2 + 1, False)])
def test_bodies_are_nested_no_more_deeply_than_is_permitted(depth: int, is_replaced: bool) -> None:
    functions = {"inner": nested(MAX_NESTING // 2, None, {}, "inner")}
    functions["main"] = nested(depth, "inner", functions, "main")
    module = verify(IRModule(functions))
    after = verify(InlineCalls()(module))
    deepest = "inner" not in ops_of(after, "main")
    assert deepest is is_replaced


def regions_of(module: IRModule) -> list[list[str]]:
    toy = types.SimpleNamespace(
        byoc_backend_info=hookimpl(lambda: BackendInfo("toy")),
        byoc_supports=hookimpl(lambda binding: Support()),
        byoc_codegen=hookimpl(lambda functions: CodegenResult(None)),
    )
    carved = partition(module, [toy])
    return [ops_of(carved, name) for name, function in carved.functions.items() if "Codegen" in function.attrs]


def test_a_region_spans_a_former_call() -> None:
    module = parse(CHAIN)
    assert regions_of(module) == [["exp"], ["negative"]]
    inlined = Sequential([InlineCalls(), RemoveUnusedFunctions()])(module)
    assert regions_of(inlined) == [["exp", "negative", "exp"]]


class _Graphs:
    """A strategy for modules of functions calling each other, also in bodies of `if` and `loop`."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.functions: dict[str, Any] = {}
        self.store = IRModule().constants

    def module(self) -> IRModule:
        for number in range(self.draw(st.integers(1, 5))):
            self.add(f"f{number}", self.draw(st.sampled_from([("n", 3), (2, 3), ("n", "m")])))
        self.add("main", (2, 3))
        return IRModule(self.functions, self.store)

    def add(self, name: str, shape: tuple[int | str, ...]) -> None:
        fb = FunctionBuilder(name, constants=self.store, functions=self.functions)
        flag, x = fb.param("flag", tensor((), "bool")), fb.param("x", tensor(shape))
        values = self.fill(fb, flag, x, self.draw(st.integers(0, 5)), 1)
        self.functions[name] = fb.finish(*self.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))

    def fill(self, fb: FunctionBuilder, flag: Value, x: Value, count: int, depth: int) -> list[Value]:
        values: list[Value] = [x]
        for _ in range(count):
            operand = self.draw(st.sampled_from(values))
            kinds = ["op", "sum", "call", "call", *(["if", "loop"] if depth else [])]
            values += getattr(self, f"make_{self.draw(st.sampled_from(kinds))}")(fb, flag, operand, depth)
        return values

    def make_op(self, fb: FunctionBuilder, flag: Value, x: Value, depth: int) -> tuple[Value, ...]:
        op = self.draw(st.sampled_from(("negative", "abs", "nn.relu")))
        return fb.bind(op, [x], {}, names=(self.draw(st.sampled_from("abc")),)).results

    def make_sum(self, fb: FunctionBuilder, flag: Value, x: Value, depth: int) -> tuple[Value, ...]:
        number = fb.const(np.float32(self.draw(st.integers(1, 3))))
        return fb.bind("add", [x, number], {}, names=(self.draw(st.sampled_from("abc")),)).results

    def make_call(self, fb: FunctionBuilder, flag: Value, x: Value, depth: int) -> tuple[Value, ...]:
        fitting = []
        for name in self.functions:
            try:
                FunctionBuilder(functions=self.functions).bind("call", [flag, x], {"callee": name})
            except IRError:
                continue
            fitting.append(name)
        if not fitting:
            return ()
        binding = fb.bind("call", [flag, x], {"callee": self.draw(st.sampled_from(fitting))})
        return tuple(result for result in binding.results if result.type == x.type)

    def region(self, fb: FunctionBuilder, x: Value, first: tuple[str, Any]) -> Any:
        inner = FunctionBuilder("body", constants=self.store, functions=self.functions)
        head = inner.param(*first)
        flag = head if first[0] == "flag" else inner.param("flag", tensor((), "bool"))
        value = inner.param("x", x.type)
        values = self.fill(inner, flag, value, self.draw(st.integers(0, 3)), 0)
        last = next(v for v in reversed(values) if v.type == x.type)
        return inner.finish(last) if first[0] == "flag" else inner.finish(flag, flag, last)

    def make_if(self, fb: FunctionBuilder, flag: Value, x: Value, depth: int) -> tuple[Value, ...]:
        regions = [self.region(fb, x, ("flag", tensor((), "bool"))) for _ in range(2)]
        return fb.bind("if", [flag, flag, x], {}, regions=regions).results

    def make_loop(self, fb: FunctionBuilder, flag: Value, x: Value, depth: int) -> tuple[Value, ...]:
        trips = fb.const(np.int64(self.draw(st.integers(0, 3))))
        body = self.region(fb, x, ("i", tensor((), "int64")))
        return fb.bind("loop", [trips, flag, flag, x], {}, regions=[body]).results[1:]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_numbers_stay(data: st.DataObject) -> None:
    module = verify(_Graphs(data.draw).module())
    chosen = data.draw(st.none() | st.lists(st.sampled_from([*module.functions]), unique=True).map(tuple))
    transform = InlineCalls(chosen, max_ops=data.draw(st.sampled_from((None, 5, 50))))
    text = str(module)
    after = Sequential([transform])(module)
    assert str(module) == text
    assert str(transform(module)) == str(after)
    if chosen is None and transform.max_ops is None:
        assert "call" not in {binding.op.name for binding in after["main"].walk()}
        assert transform(after)["main"] is after["main"]
    for flag in (True, False):
        x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
        wanted = evaluate_function(module, "main", [np.array(flag), x])
        for have, want in zip(evaluate_function(after, "main", [np.array(flag), x]), wanted, strict=True):
            np.testing.assert_array_equal(have, want)


def test_what_is_inlined_runs() -> None:
    module = parse(CHAIN)
    x = np.array([0.5, -1], np.float32)
    have, want = (byoc_core.VirtualMachine(byoc_core.build(m, []))["main"](x) for m in (InlineCalls()(module), module))
    np.testing.assert_array_equal(np.asarray(have), np.asarray(want))
