"""The partition scenarios P1 to P32, text in and text out.

``sketch`` prints a module without types: ``aone_*`` and ``btwo_*`` are the regions of the two fake backends. Backend
``aone`` takes elementwise ops of one kind, ``btwo`` takes ``tanh``, and ``exp`` stays on the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import HookError, PatternError
from byoc_core.ir import Binding, IRModule, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import (
    AnnotateSupported,
    FuseOpsByPattern,
    MergeCompositeFunctions,
    RunCodegen,
    check_partition,
    partition,
)
from byoc_core.pattern import CompositePattern, Match, Rejection, Support, is_const, is_op, wildcard
from byoc_core.transform import Sequential, UniqueNames, evaluate_function

A_OPS = ("add", "subtract", "multiply", "nn.relu", "nn.dense", "minimum", "split", "concat", "reshape")
TYPE = 'R.Tensor((4,), "float32")'


def function(params: str, body: str, shape: str = "(4,)") -> IRModule:
    """Gives a module with ``main`` of float32 tensors of one shape."""
    head = ", ".join(f"{name}: R.Tensor({shape})" for name in params.split())
    return R.parse("\n".join([f"def main({head}):", *(f"    {line.strip()}" for line in body.strip().splitlines())]))


def sketch(module: IRModule, *names: str) -> str:
    """Prints functions without types and annotations; all but ``main``'s callees' attributes are left out."""
    lines = []
    for line in str(module).splitlines():
        line = re.sub(r'R\.Tensor\((None|\(.*?\)), "\w+"\)', "T", line)
        line = re.sub(r": T|, out_types=\[.*?\]|, codegen=\"\w+\"| -> .*(?=:$)", "", line).replace("R.", "")
        if line.startswith("    ") and not line.lstrip().startswith(("@", "func_attr", "#")):
            lines.append(line[4:])
    blocks = re.split(r"\n(?=def )", "\n".join(lines))
    return "\n".join(block for block in blocks if not names or block[4:].startswith(names))


def text(expected: str) -> str:
    """Gives an indented literal without its indentation."""
    lines = expected.strip("\n").rstrip().splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


@pytest.fixture
def two(fake_backend: Callable[..., Any]) -> list[Any]:
    return [fake_backend("aone", A_OPS), fake_backend("btwo", ["tanh"])]


def names_of(module: IRModule) -> list[str]:
    return [name for name in module.functions if name != "main"]


CONV = is_op("nn.dense")(wildcard(), wildcard())
CONV_RELU = is_op("nn.relu")(CONV)


@pytest.mark.parametrize("swapped", [False, True])
def test_p1_at_equal_priority_the_larger_match_wins(swapped: bool) -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nreturn b", "(4, 4)")
    patterns = [CompositePattern("aone.dense", CONV), CompositePattern("aone.dense_relu", CONV_RELU)]
    fused = FuseOpsByPattern(patterns[::-1] if swapped else patterns)(module)
    (composite,) = fused["main"].bindings
    assert composite.attrs == {"name": "aone.dense_relu", "pattern": "nn.dense_nn.relu_"}


def test_p1_a_higher_priority_wins_over_size() -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nreturn b", "(4, 4)")
    patterns = [CompositePattern("aone.dense_relu", CONV_RELU), CompositePattern("aone.dense", CONV, priority=1)]
    composite, relu = FuseOpsByPattern(patterns)(module)["main"].bindings
    assert (composite.attrs["name"], relu.op.name) == ("aone.dense", "nn.relu")


def test_p2_an_intermediate_used_outside_is_declined_or_returned() -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nc = R.exp(a)\nreturn b, c", "(4, 4)")
    pattern = CompositePattern("aone.dense_relu", CONV_RELU)
    assert FuseOpsByPattern([pattern])(module) is module
    fused = FuseOpsByPattern([replace(pattern, leaked="return")])(module)
    assert sketch(fused) == text("""
        def main(x, w):
            def dense_relu(x, w):
                a = nn.dense(x, w)
                b = nn.relu(a)
                return b, a
            b, a = composite("aone.dense_relu", (x, w), pattern="nn.dense_nn.relu_", regions=[dense_relu])
            c = exp(a)
            return b, c
    """)
    inputs = list(np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32))
    for have, want in zip(
        evaluate_function(MergeCompositeFunctions()(fused), "main", inputs),
        evaluate_function(module, "main", inputs),
        strict=True,
    ):
        np.testing.assert_array_equal(have, want)


def test_p3_a_diamond_of_one_backend_is_one_region(two: Sequence[Any]) -> None:
    module = function("x", "a = R.nn.relu(x)\nb = R.nn.relu(a)\nc = R.add(a, a)\nd = R.add(b, c)\nreturn d")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            b = nn.relu(a)
            c = add(a, a)
            d = add(b, c)
            return d
        def main(x):
            d = aone_main_0(x)
            return d
    """)


def test_p4_a_diamond_with_one_arm_of_another_backend_is_three_regions(two: Sequence[Any]) -> None:
    module = function("x", "a = R.nn.relu(x)\nb = R.tanh(a)\nc = R.add(a, a)\nd = R.add(b, c)\nreturn d")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            c = add(a, a)
            return a, c
        def btwo_main_0(a):
            b = tanh(a)
            return b
        def aone_main_1(b, c):
            d = add(b, c)
            return d
        def main(x):
            a, c = aone_main_0(x)
            b = btwo_main_0(a)
            d = aone_main_1(b, c)
            return d
    """)


def test_p5_two_chains_that_join_are_one_region(two: Sequence[Any]) -> None:
    module = function("x y", "a = R.nn.relu(x)\nb = R.add(y, y)\nc = R.nn.relu(b)\nd = R.multiply(a, c)\nreturn d")
    assert names_of(partition(module, two)) == ["aone_main_0"]


def test_p6_a_host_op_between_keeps_first_and_last_apart(two: Sequence[Any]) -> None:
    module = function("x", "a = R.nn.relu(x)\nb = R.exp(a)\nc = R.nn.relu(b)\nd = R.add(a, c)\nreturn d")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            return a
        def aone_main_1(b, a):
            c = nn.relu(b)
            d = add(a, c)
            return d
        def main(x):
            a = aone_main_0(x)
            b = exp(a)
            d = aone_main_1(b, a)
            return d
    """)


def test_p7_the_classic_crossing(two: Sequence[Any]) -> None:
    body = """
        a = R.add(x1, x2)
        b = R.tanh(x3)
        c = R.add(a, b)
        d = R.tanh(c)
        e = R.nn.relu(c)
        f = R.add(e, d)
        g = R.nn.relu(f)
        return g
    """
    parted = partition(function("x1 x2 x3", body), two)
    assert sketch(parted) == text("""
        def btwo_main_0(x3):
            b = tanh(x3)
            return b
        def aone_main_0(x1, x2, b):
            a = add(x1, x2)
            c = add(a, b)
            e = nn.relu(c)
            return c, e
        def btwo_main_1(c):
            d = tanh(c)
            return d
        def aone_main_1(e, d):
            f = add(e, d)
            g = nn.relu(f)
            return g
        def main(x1, x2, x3):
            b = btwo_main_0(x3)
            c, e = aone_main_0(x1, x2, b)
            d = btwo_main_1(c)
            g = aone_main_1(e, d)
            return g
    """)
    left, right = (parted[name].with_attrs(global_symbol="same") for name in ("btwo_main_0", "btwo_main_1"))
    assert left == right


def test_p8_results_of_split_keep_their_order(two: Sequence[Any]) -> None:
    module = function("x", "a, b = R.split(x, sections=(2, 2))\nc = R.subtract(b, a)\nreturn c")
    assert sketch(partition(module, two), "aone") == text("""
        def aone_main_0(x):
            a, b = split(x, sections=(2, 2))
            c = subtract(b, a)
            return c
    """)


def test_p9_only_results_read_outside_leave_a_region(two: Sequence[Any]) -> None:
    body = """
        a, b, c = R.split(x, sections=(1, 1, 2))
        d = R.nn.relu(a)
        e = R.exp(b)
        return d, e
    """
    assert sketch(partition(function("x", body), two)) == text("""
        def aone_main_0(x):
            a, b, c = split(x, sections=(1, 1, 2))
            d = nn.relu(a)
            return b, d
        def main(x):
            b, d = aone_main_0(x)
            e = exp(b)
            return d, e
    """)


def test_p11_one_extern_called_from_two_entries(fake_backend: Any, run_compiled: Any) -> None:
    module = R.parse(f"""
class M:
    def shared(x: {TYPE}):
        R.func_attr({{"Codegen": "aone", "global_symbol": "shared_lib"}})
        y = R.nn.relu(x)
        return y
    def first(x: {TYPE}):
        y = shared(x)
        return y
    def second(x: {TYPE}):
        y = shared(x)
        z = shared(y)
        return z
""")
    compiled = RunCodegen(backends=[fake_backend("aone", A_OPS)])(module)
    assert sketch(compiled) == text("""
        def first(x):
            y = call_dps_packed("shared_lib", (x,))
            return y
        def second(x):
            y = call_dps_packed("shared_lib", (x,))
            z = call_dps_packed("shared_lib", (y,))
            return z
    """)
    (result,) = run_compiled(compiled, "second", [np.array([-1.0, 0.0, 1.0, 2.0], np.float32)])
    np.testing.assert_array_equal(result, [0.0, 0.0, 1.0, 2.0])


def test_p12_ops_of_different_attributes_stay_two(two: Sequence[Any], run_compiled: Any) -> None:
    body = """
        a, b, c = R.split(x, sections=(1, 1, 2))
        d = R.exp(a)
        e, f, g = R.split(x, sections=(2, 1, 1))
        h = R.multiply(R.const(2.0, "float32"), f)
        return d, h
    """
    compiled = RunCodegen(backends=two)(partition(function("x", body), two))
    d, h = run_compiled(compiled, "main", [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal([d, h], [[1.0], [4.0]])


def test_p13_a_shape_is_an_attribute_and_no_parameter(two: Sequence[Any]) -> None:
    module = function("x", 'a = R.reshape(x, shape=("2*n", 2))\nb = R.nn.relu(a)\nreturn b', '("n", 4)')
    assert sketch(partition(module, two), "aone") == text("""
        def aone_main_0(x):
            a = reshape(x, shape=("2*n", 2))
            b = nn.relu(a)
            return b
    """)


def test_p14_concat_of_several_operands_keeps_their_order(two: Sequence[Any]) -> None:
    module = function("x y z", "a = R.nn.relu(y)\nb = R.concat(z, a, x, z)\nreturn b")
    assert sketch(partition(module, two), "aone") == text("""
        def aone_main_0(y, z, x):
            a = nn.relu(y)
            b = concat(z, a, x, z)
            return b
    """)


def test_p15_a_dead_op_behind_the_sole_output(two: Sequence[Any]) -> None:
    module = function("x", "a = R.nn.relu(x)\nb = R.nn.relu(a)\nreturn a")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            b = nn.relu(a)
            return a
        def main(x):
            a = aone_main_0(x)
            return a
    """)
    alone = partition(function("x", "a = R.nn.relu(x)\nreturn x"), two)
    assert sketch(alone, "main") == "def main(x):\n    a = aone_main_0(x)\n    return x"


BIAS = CompositePattern("aone.bias", is_op("add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard()))


@pytest.mark.parametrize(
    "body",
    [
        "a = R.nn.dense(x, w)\nb = R.add(a, a)\nreturn b",
        "a = R.nn.dense(x, w)\nb = R.power(a, a)\nc = R.add(a, b)\nreturn c",
        "a = R.nn.dense(x, w)\nb = R.power(a, a)\nc = R.add(b, a)\nreturn c",
    ],
)
@pytest.mark.parametrize("leaked", ["decline", "return"])
def test_p17_no_bias_that_depends_on_the_matched_op(body: str, leaked: Any) -> None:
    module = function("x w", body, "(4, 4)")
    assert FuseOpsByPattern([replace(BIAS, leaked=leaked)])(module) is module


def test_p18_a_constant_on_the_left_stays_on_the_left(fake_backend: Any, run_compiled: Any) -> None:
    module = function("x", 'a = R.subtract(R.const(1.0, "float32"), x)\nb = R.nn.relu(a)\nreturn b')
    pattern = CompositePattern("aone.flip", is_op("nn.relu")(is_op("subtract")(is_const(), wildcard())))
    backend = fake_backend("aone", [], [pattern])
    compiled = RunCodegen(backends=[backend])(partition(module, [backend]))
    (result,) = run_compiled(compiled, "main", [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(result, [1.0, 0.0, 0.0, 0.0])
    other_way = CompositePattern("aone.flip", is_op("subtract")(wildcard(), is_const()))
    assert FuseOpsByPattern([other_way])(module) is module


def test_p19_constants_are_embedded_or_lifted(fake_backend: Any, run_compiled: Any) -> None:
    module = function("x", 'a = R.add(x, R.const(1.0, "float32"))\nb = R.nn.relu(a)\nreturn b')
    for constants, params in (("embedded", 1), ("lifted", 2)):
        backend = fake_backend("aone", A_OPS, constants=constants)
        compiled = RunCodegen(backends=[backend])(partition(module, [backend]))
        (seen,) = backend.compiled
        (call,) = compiled["main"].bindings
        assert (len(seen.params), len(call.operands)) == (params, params)
        (result,) = run_compiled(compiled, "main", [np.arange(4, dtype=np.float32)])
        np.testing.assert_array_equal(result, [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(("bound", "operands"), [(True, 1), (False, 2)])
def test_p19_composites_take_constants_inside_or_as_operands(bound: bool, operands: int) -> None:
    module = function("x", 'a = R.add(x, R.const(1.0, "float32"))\nb = R.nn.relu(a)\nreturn b')
    pattern = CompositePattern("aone.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), is_const())))
    fused = FuseOpsByPattern([pattern], bind_constants=bound)(module)
    assert len(fused["main"].bindings[0].operands) == operands
    check_partition(module, MergeCompositeFunctions()(fused))


def test_p20_shared_equal_and_different_weights(fake_backend: Any, run_compiled: Any) -> None:
    first, second = np.full((2, 2), 2.0, np.float32), np.full((2, 2), 3.0, np.float32)
    builder = FunctionBuilder("main")
    x = builder.param("x", R.Tensor((1, 2)))
    dense = [builder.bind("nn.dense", [x, weight], {}).result for weight in (first, first.copy(), second)]
    layers = [builder.bind("exp", [value], {}).result for value in dense]
    module = IRModule({"main": builder.finish(*layers)}, builder.constants)
    assert len(module.constants) == 2
    backend = fake_backend("aone", A_OPS)
    parted = partition(module, [backend])
    assert names_of(parted) == ["aone_main_0", "aone_main_1", "aone_main_2"]
    results = run_compiled(RunCodegen(backends=[backend])(parted), "main", [np.ones((1, 2), np.float32)])
    np.testing.assert_array_equal(np.log(results)[:, 0, 0].round(), [4.0, 4.0, 6.0])


def test_p21_one_symbolic_region_function_called_with_two_sizes(fake_backend: Any, run_compiled: Any) -> None:
    module = R.parse("""
class M:
    def double(x: R.Tensor(("k", 2))):
        R.func_attr({"Codegen": "aone", "global_symbol": "double"})
        y = R.add(x, x)
        return y
    def main(x: R.Tensor(("n", 2)), y: R.Tensor(("m", 2))):
        a = double(x)
        b = double(y)
        return a, b
""")
    compiled = RunCodegen(backends=[fake_backend("aone", A_OPS)])(module)
    assert [str(call.result.type) for call in compiled["main"].bindings] == [
        'R.Tensor(("n", 2), "float32")',
        'R.Tensor(("m", 2), "float32")',
    ]
    a, b = run_compiled(compiled, "main", [np.ones((3, 2), np.float32), np.ones((5, 2), np.float32)])
    assert (a.shape, b.shape) == ((3, 2), (5, 2))


def test_p21_a_backend_of_static_shapes_is_not_asked_for_symbolic_ones(fake_backend: Any) -> None:
    module = function("x", "a = R.nn.relu(x)\nreturn a", '("n", 4)')
    assert partition(module, [fake_backend("aone", None, dynamic_shapes=False)]) == module


def test_p21_a_size_that_no_input_gives_comes_with_a_value_that_does(two: Sequence[Any], run_compiled: Any) -> None:
    """Neither ``m`` nor ``n`` follows from the ``m*n`` elements that the last region reads."""
    body = 'a = R.reshape(x, shape=("m*n",))\nb = R.tanh(a)\nc = R.reshape(b, shape=("m", "n"))\nreturn c'
    module = function("x", body, '("n", "m")')
    parted = partition(module, two)
    assert sketch(parted, "main", "aone_main_1") == text("""
        def aone_main_1(b, x):
            c = reshape(b, shape=("m", "n"))
            return c
        def main(x):
            a = aone_main_0(x)
            b = btwo_main_0(a, x)
            c = aone_main_1(b, x)
            return c
    """)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    compiled = RunCodegen(backends=two)(parted)
    np.testing.assert_array_equal(run_compiled(compiled, "main", [x])[0], np.tanh(x.reshape(3, 2)))
    executable = byoc_core.build(module, two)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), np.tanh(x.reshape(3, 2)))
    assert partition(parted, two) is parted


def test_p22_bodies_of_if_and_loop_are_partitioned(two: Sequence[Any]) -> None:
    module = R.parse(f"""
def main(p: R.Tensor((), "bool"), n: R.Tensor((), "int64"), x: {TYPE}):
    def yes(a: {TYPE}):
        b = R.nn.relu(a)
        c = R.add(b, b)
        return c
    def no(d: {TYPE}):
        e = R.tanh(d)
        return e
    f = R.if_(p, x, regions=[yes, no])
    def body(i: R.Tensor((), "int64"), g: {TYPE}):
        h = R.multiply(g, g)
        return R.const(True, "bool"), h
    k = R.loop(n, p, f, regions=[body])
    return k
""")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(a):
            b = nn.relu(a)
            c = add(b, b)
            return c
        def btwo_main_0(d):
            e = tanh(d)
            return e
        def aone_main_1(g):
            h = multiply(g, g)
            return h
        def main(p, n, x):
            def yes(a):
                c = aone_main_0(a)
                return c
            def no(d):
                e = btwo_main_0(d)
                return e
            f = if_(p, x, regions=[yes, no])
            def body(i, g):
                h = aone_main_1(g)
                return const(True, "bool"), h
            k = loop(n, p, f, regions=[body])
            return k
    """)


def test_p22_a_pure_if_is_no_barrier(two: Sequence[Any]) -> None:
    module = R.parse(f"""
def main(p: R.Tensor((), "bool"), x: {TYPE}):
    a = R.nn.relu(x)
    def yes(b: {TYPE}):
        c = R.nn.relu(b)
        return c
    def no(d: {TYPE}):
        return d
    e = R.if_(p, x, regions=[yes, no])
    f = R.nn.relu(a)
    return e, f
""")
    assert sketch(partition(module, two), "aone_main_1") == text("""
        def aone_main_1(x):
            a = nn.relu(x)
            f = nn.relu(a)
            return f
    """)


def test_p23_every_pass_twice(two: Sequence[Any]) -> None:
    body = """
        a = R.nn.dense(x, w)
        b = R.nn.relu(a)
        c = R.tanh(b)
        d = R.add(b, c)
        e = R.exp(d)
        return e
    """
    module = function("x w", body, "(4, 4)")
    pattern = CompositePattern("aone.dense_relu", CONV_RELU)
    for step in (
        UniqueNames(),
        FuseOpsByPattern([pattern]),
        AnnotateSupported(two[0]),
        AnnotateSupported(two[1]),
        MergeCompositeFunctions(),
        RunCodegen(backends=two),
    ):
        module = step(module)
        assert step(module) is module, type(step).__name__
    assert partition(module, two) is module


def test_p24_an_impure_call_is_not_crossed(two: Sequence[Any]) -> None:
    body = """
        a = R.nn.relu(x)
        b = R.call_packed("log", (a,), out_types=[R.Tensor((4,))])
        c = R.nn.relu(a)
        d = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
        e = R.add(a, c)
        return e
    """
    assert sketch(partition(function("x", body), two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            return a
        def aone_main_1(a):
            c = nn.relu(a)
            return c
        def aone_main_2(a, c):
            e = add(a, c)
            return e
        def main(x):
            a = aone_main_0(x)
            b = call_packed("log", (a,))
            c = aone_main_1(a)
            d = call_packed("log", (x,))
            e = aone_main_2(a, c)
            return e
    """)
    pure = function("x", body.replace("(a,), ", "(a,), pure=True, ").replace("(x,), ", "(x,), pure=True, "))
    assert names_of(partition(pure, two)) == ["aone_main_0"]


def test_p24_no_pattern_reaches_over_an_impure_call() -> None:
    body = """
        a = R.nn.dense(x, w)
        b = R.call_packed("log", (x,), out_types=[R.Tensor((4, 4))])
        c = R.nn.relu(a)
        return c
    """
    module = function("x w", body, "(4, 4)")
    assert FuseOpsByPattern([CompositePattern("aone.dense_relu", CONV_RELU)])(module) is module


def test_p25_names_that_are_taken_are_avoided(two: Sequence[Any]) -> None:
    module = R.parse(f"""
class M:
    def aone_main_0(x: {TYPE}):
        R.func_attr({{"Codegen": "aone", "global_symbol": "aone_main_1"}})
        y = R.nn.relu(x)
        return y
    def main(x: {TYPE}):
        y = aone_main_0(x)
        z = R.exp(y)
        v = R.nn.relu(z)
        return v
""")
    parted = partition(module, two)
    assert list(parted.functions) == ["aone_main_2", "aone_main_0", "main"]
    assert parted["aone_main_2"].attrs["global_symbol"] == "aone_main_2"


def test_p26_a_duplicate_output_leaves_once(two: Sequence[Any]) -> None:
    module = function("x", "a = R.nn.relu(x)\nb = R.add(a, a)\nreturn b, a, b")
    assert sketch(partition(module, two)) == text("""
        def aone_main_0(x):
            a = nn.relu(x)
            b = add(a, a)
            return a, b
        def main(x):
            a, b = aone_main_0(x)
            return b, a, b
    """)


def test_p27_a_function_whose_output_is_its_own_input(fake_backend: Any, run_compiled: Any) -> None:
    module = R.parse(f"""
class M:
    def same(x: {TYPE}):
        R.func_attr({{"Codegen": "aone", "global_symbol": "same"}})
        y = R.nn.relu(x)
        return x, y
    def main(x: {TYPE}):
        y, z = same(x)
        return y, z
""")
    compiled = RunCodegen(backends=[fake_backend("aone", A_OPS)])(module)
    y, z = run_compiled(compiled, "main", [np.array([-1.0, 0.0, 1.0, 2.0], np.float32)])
    np.testing.assert_array_equal([y, z], [[-1.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 2.0]])


def test_p28_a_check_that_raises_names_pattern_and_place() -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nreturn b", "(4, 4)")

    def check(match: Match) -> Rejection | None:
        raise KeyError("padding")

    with pytest.raises(PatternError) as caught:
        FuseOpsByPattern([CompositePattern("aone.dense_relu", CONV_RELU, check)])(module)
    assert str(caught.value) == (
        "pattern `aone.dense_relu`: its check raised KeyError: 'padding'\n"
        "  @R.function\n"
        '  def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):\n'
        "      a = R.nn.dense(x, w)\n"
        ">     b = R.nn.relu(a)\n"
        "      return b"
    )
    with pytest.raises(PatternError, match="its check gave neither a Rejection nor None; got False"):
        FuseOpsByPattern([CompositePattern("aone.dense_relu", CONV_RELU, lambda match: False)])(module)  # type: ignore[arg-type, return-value]


def test_p29_codegen_that_gives_nothing_for_a_function_is_an_error(fake_backend: Any) -> None:
    backend = fake_backend("aone", A_OPS, forgets=["aone_main_1"])
    module = partition(function("x", "a = R.nn.relu(x)\nb = R.exp(a)\nc = R.nn.relu(b)\nreturn c"), [backend])
    with pytest.raises(HookError, match="neither compiled nor rejected function `aone_main_1`; got a module with"):
        RunCodegen(backends=[backend])(module)


def test_p32_an_alias_between_two_matched_ops_does_not_stop_a_match() -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = a\nc = R.nn.relu(b)\nreturn c", "(4, 4)")
    (composite,) = FuseOpsByPattern([CompositePattern("aone.dense_relu", CONV_RELU)])(module)["main"].bindings
    assert composite.attrs["pattern"] == "nn.dense_nn.relu_"


def test_a_backend_is_not_asked_inside_composites(fake_backend: Any) -> None:
    """A second backend must not claim ops that a composite of the first one holds."""
    asked: list[str] = []

    def supports(binding: Binding) -> Support:
        asked.append(binding.op.name)
        return Support()

    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nc = R.exp(b)\nreturn c", "(4, 4)")
    first = fake_backend("aone", [], [CompositePattern("aone.dense_relu", CONV_RELU)])
    parted = partition(module, [first, fake_backend("btwo", supports=supports)])
    assert asked == ["exp"]
    assert names_of(parted) == ["aone_main_0", "btwo_main_0"]


def test_sequence_of_passes_by_hand(two: Sequence[Any]) -> None:
    module = function("x w", "a = R.nn.dense(x, w)\nb = R.nn.relu(a)\nc = R.tanh(b)\nreturn c", "(4, 4)")
    passes = [
        FuseOpsByPattern([CompositePattern("aone.dense_relu", CONV_RELU)]),
        AnnotateSupported(two[1]),
        MergeCompositeFunctions(),
        RunCodegen(backends=two, entry_functions=("main",)),
    ]
    compiled = verify(Sequential(passes)(module))
    assert sketch(compiled) == text("""
        def main(x, w):
            b = call_dps_packed("aone_main_0", (x, w))
            c = call_dps_packed("btwo_main_0", (b,))
            return c
    """)


def test_p19_a_backend_that_wants_its_constants_lifted_gets_none_inside_composites(fake_backend: Any) -> None:
    module = function("x", 'a = R.add(x, R.const(1.0, "float32"))\nb = R.nn.relu(a)\nreturn b')
    pattern = CompositePattern("aone.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), is_const())))
    backend = fake_backend("aone", [], [pattern], constants="lifted")
    RunCodegen(backends=[backend])(partition(module, [backend]))
    (seen,) = backend.compiled
    assert (len(seen.params), len(seen.bindings[0].regions[0].params)) == (2, 2)
