"""Every pass, text in and text out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import ExecutionError, InternalError, IRError, IRTypeError, VerifyError
from byoc_core.ir import IRModule, Var, tensor
from byoc_core.transform import (
    BindParams,
    FoldConstants,
    InferTypes,
    PassRun,
    RemoveDeadCode,
    RemoveUnusedFunctions,
    Sequential,
    UniqueNames,
    evaluate_function,
)

from core.tests.ir_text import check_module_pass


def test_fold_constants() -> None:
    check_module_pass(
        FoldConstants(),
        """
def main(x: R.Tensor((4,))):
    a = R.add(R.const([1.0, 2.0, 3.0, 4.0], "float32"), R.const(1.0, "float32"))
    b = R.negative(a)
    c = R.add(x, b)
    d, e = R.split(a, sections=(1, 3))
    return c, d, a
""",
        """
def main(x: R.Tensor((4,))):
    c = R.add(x, R.const([-2.0, -3.0, -4.0, -5.0], "float32"))
    return c, R.const([2.0], "float32"), R.const([2.0, 3.0, 4.0, 5.0], "float32")
""",
    )


def test_fold_constants_leaves_effects_claims_and_large_results() -> None:
    text = """
def main(p: R.Tensor((), "bool")):
    a = R.call_packed("log", (R.const([1.0], "float32"),), out_types=[R.Tensor((1,), "float32")])
    b = R.tanh(R.const([1.0], "float32"), codegen="npu")
    def yes():
        c = R.negative(R.const([1.0], "float32"))
        return c
    def no():
        return R.const([2.0], "float32")
    d = R.if_(p, regions=[yes, no])
    return a, b, d
"""
    module = FoldConstants()(R.parse(text))
    assert [binding.op.name for binding in module["main"].bindings] == ["call_packed", "tanh", "if"]
    assert module["main"].bindings[2].regions[0].bindings == ()


@pytest.mark.parametrize(
    ("call", "growth"),
    [
        ('R.add(R.const([[1.0]], "float32"), R.const([1.0, 2.0], "float32"))', 8 - (4 + 8)),
        ('R.broadcast_to(R.const([1.0], "float32"), shape=(3,))', 12 - 4),
        ('R.add(R.const([1.0, 2.0], "float32"), R.const([1.0, 2.0], "float32"))', 8 - 8),
        ('R.nonzero(R.const([True, False, True], "bool"), out_types=[R.Tensor((1, "k"), "int64")])', 2 * 8 - 3),
    ],
)
def test_results_are_folded_that_grow_no_more_than_is_permitted(call: str, growth: int) -> None:
    module = R.parse(f"def main():\n    a = {call}\n    return a")
    assert FoldConstants(max_growth_nbytes=growth - 1)(module) is module
    assert FoldConstants(max_growth_nbytes=growth)(module)["main"].bindings == ()


def test_remove_dead_code() -> None:
    text = """
class M:
    def noisy(x: R.Tensor((4,))):
        a = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
        return a
    def quiet(x: R.Tensor((4,))):
        a = R.tanh(x)
        return x
    def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
        a = R.tanh(x)
        b = R.exp(a)
        c = R.call_packed("log", (a,), out_types=[R.Tensor((4,))])
        d = R.call_packed("pure", (a,), pure=True, out_types=[R.Tensor((4,))])
        e = noisy(x)
        f = quiet(x)
        def yes(g: R.Tensor((4,))):
            h = R.tanh(g)
            i = R.call_packed("log", (g,), out_types=[R.Tensor((4,))])
            return g
        def no(j: R.Tensor((4,))):
            return j
        k = R.if_(p, x, regions=[yes, no])
        l, m = R.split(x, sections=(2, 2))
        return m
"""
    check_module_pass(
        RemoveDeadCode(),
        text,
        """
class M:
    def noisy(x: R.Tensor((4,))):
        a = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
        return a
    def quiet(x: R.Tensor((4,))):
        return x
    def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
        a = R.tanh(x)
        c = R.call_packed("log", (a,), out_types=[R.Tensor((4,))])
        e = noisy(x)
        def yes(g: R.Tensor((4,))):
            i = R.call_packed("log", (g,), out_types=[R.Tensor((4,))])
            return g
        def no(j: R.Tensor((4,))):
            return j
        k = R.if_(p, x, regions=[yes, no])
        l, m = R.split(x, sections=(2, 2))
        return m
""",
    )


CALLS = """
class M:
    def c(x: R.Tensor((4,))):
        return x
    def b(x: R.Tensor((4,))):
        y = c(x)
        return y
    def a(x: R.Tensor((4,))):
        y = b(x)
        return y
    def main(x: R.Tensor((4,))):
        y = b(x)
        return y
"""


def test_remove_unused_functions() -> None:
    module = R.parse(CALLS)
    assert list(RemoveUnusedFunctions()(module).functions) == ["c", "b", "main"]
    assert RemoveUnusedFunctions(("a", "main"))(module) is module
    with pytest.raises(IRError) as caught:
        RemoveUnusedFunctions(("mian",))(module)
    assert str(caught.value) == "function `mian`: is not in the module; expected c, b, a, main. Did you mean 'main'?"


def test_bind_params_makes_types_exact() -> None:
    module = R.parse("""
def main(x: R.Tensor(("n", 3)), w: R.Tensor(("m", 3)), b: R.Tensor(("m",))):
    y = R.nn.dense(x, w)
    z = R.add(y, b)
    return z
""")
    weight, bias = np.ones((2, 3), np.float32), np.array([1.0, 2.0], np.float32)
    bound = Sequential([BindParams({"w": weight})])(module)
    assert [str(param.type) for param in bound["main"].params] == [
        'R.Tensor(("n", 3), "float32")',
        'R.Tensor((2,), "float32")',
    ]
    assert str(bound["main"].results[0].type) == 'R.Tensor(("n", 2), "float32")'
    both = BindParams({"b": bias})(bound)
    assert both == BindParams({"b": bias, "w": weight})(module)
    (result,) = evaluate_function(both, "main", [np.ones((1, 3), np.float32)])
    np.testing.assert_array_equal(result, [[4.0, 5.0]])


def test_bind_params_by_the_models_own_names() -> None:
    module = R.parse("""
def main(x: R.Tensor((2,)), w: R.Tensor((2,))):
    R.func_attr({"input_names": ("input:0", "weight:0"), "output_names": ("out",)})
    y = R.add(x, w)
    return y
""")
    bound = BindParams({"weight:0": np.ones(2, np.float32)})(module)
    assert bound["main"].input_names == ("input:0",)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"weigth": np.ones((2, 3), np.float32)}, "function `main`: has no parameter `weigth`; expected x, weight"),
        ({"weight": np.ones((2, 3))}, "parameter `weight`: gets another dtype; got float64, expected float32"),
        (
            {"weight": np.ones((2, 3, 1), np.float32)},
            (
                'parameter `weight`: gets another rank; got R.Tensor((2, 3, 1), "float32"), '
                'expected R.Tensor(("m", 3), "float32")'
            ),
        ),
        (
            {"weight": np.ones((2, 4), np.float32)},
            (
                'parameter `weight`: gets another size; got R.Tensor((2, 4), "float32"), '
                'expected R.Tensor(("m", 3), "float32")'
            ),
        ),
    ],
)
def test_bind_params_errors(params: dict[str, np.ndarray], message: str) -> None:
    module = R.parse(
        'def main(x: R.Tensor((1, 3)), weight: R.Tensor(("m", 3))):\n    y = R.nn.dense(x, weight)\n    return y'
    )
    with pytest.raises(IRError) as caught:
        BindParams(params)(module)
    assert str(caught.value).split(". Did")[0] == message


def test_bind_params_that_give_one_symbol_two_sizes() -> None:
    module = R.parse('def main(x: R.Tensor(("n",)), y: R.Tensor(("n",))):\n    z = R.add(x, y)\n    return z')
    with pytest.raises(IRTypeError) as caught:
        BindParams({"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})(module)
    assert str(caught.value) == "parameter `y`: gives `n` a second size; got 3, expected 2"


def test_infer_types_reaches_attributes_and_bodies() -> None:
    module = R.parse("""
def main(p: R.Tensor((), "bool"), x: R.Tensor(("n", 4))):
    a = R.reshape(x, shape=("2*n", 2))
    def yes(b: R.Tensor(("2*n", 2))):
        c = R.tanh(b)
        return c
    def no(d: R.Tensor(("2*n", 2))):
        return d
    e = R.if_(p, a, regions=[yes, no])
    return e
""")
    typed = Sequential([InferTypes({"x": tensor((3, 4))})])(module)
    assert str(typed["main"].results[0].type) == 'R.Tensor((6, 2), "float32")'
    assert typed["main"].bindings[0].attrs == {"shape": (6, 2)}
    assert InferTypes()(typed) == typed
    with pytest.raises(IRTypeError) as caught:
        InferTypes({"y": tensor((3, 4))})(module)
    assert str(caught.value) == "function `main`: has no parameter `y`; expected p, x"
    with pytest.raises(IRTypeError, match="parameter `x`: gets another size"):
        InferTypes({"x": tensor((3, 5))})(module)


def test_unique_names() -> None:
    check_module_pass(
        UniqueNames(),
        """
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    y = R.tanh(x)
    def yes(x: R.Tensor((4,))):
        y = R.exp(x)
        return y
    def no(x: R.Tensor((4,))):
        return x
    z = R.if_(p, y, regions=[yes, no])
    return z
""",
        """
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    y = R.tanh(x)
    def yes(x_1: R.Tensor((4,))):
        y_1 = R.exp(x_1)
        return y_1
    def no(x_2: R.Tensor((4,))):
        return x_2
    z = R.if_(p, y, regions=[yes, no])
    return z
""",
    )
    unique = R.parse(CALLS)
    assert UniqueNames()(unique) is unique


def test_sequential_names_the_guilty_pass() -> None:
    module = R.parse("def main(x: R.Tensor((4,))):\n    y = R.tanh(x)\n    return y")

    def forgets_the_op(given: IRModule) -> IRModule:
        return given.with_function(replace(given["main"], bindings=()))

    with pytest.raises(InternalError) as caught:
        Sequential([UniqueNames(), forgets_the_op, UniqueNames()])(module)
    assert str(caught.value).startswith(
        "pass `forgets_the_op`: made an invalid module: function `main`: result `y` is read before the definition\n"
    )
    assert Sequential([forgets_the_op], verify=False)(module)["main"].bindings == ()
    with pytest.raises(VerifyError, match="function `main`"):
        Sequential([])(forgets_the_op(module))


def test_sequential_checks_a_module_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = R.parse("def main(x: R.Tensor((4,))):\n    y = R.tanh(x)\n    z = R.exp(x)\n    return y")
    checked: list[IRModule] = []
    monkeypatch.setattr("byoc_core.transform.pass_.verify", checked.append)
    result = Sequential([UniqueNames(), FoldConstants(), RemoveDeadCode(), RemoveDeadCode()])(module)
    assert [id(given) for given in checked] == [id(module), id(result)]


def test_sequential_dumps_and_times_every_pass(tmp_path: Path) -> None:
    module = R.parse("def main(x: R.Tensor((4,))):\n    y = R.tanh(x)\n    z = R.exp(x)\n    return y")
    runs: list[PassRun] = []
    folder = tmp_path / "deep" / "dump"
    result = Sequential([UniqueNames(), RemoveDeadCode(), lambda given: given], dump=folder, on_pass=runs.append)(
        module
    )
    assert [path.name for path in sorted(folder.iterdir())] == [
        "00_input.py",
        "01_UniqueNames.py",
        "02_RemoveDeadCode.py",
        "03__lambda_.py",
    ]
    assert (folder / "00_input.py").read_text("utf-8") == str(module)
    assert (folder / "02_RemoveDeadCode.py").read_text("utf-8") == str(result)
    assert [run.name for run in runs] == ["UniqueNames", "RemoveDeadCode", "<lambda>"]
    assert all(run.seconds >= 0 for run in runs)


def test_evaluate_a_loop_and_an_if() -> None:
    module = R.parse("""
def main(n: R.Tensor((), "int64"), x: R.Tensor((2,))):
    def body(i: R.Tensor((), "int64"), v: R.Tensor((2,))):
        w = R.add(v, v)
        return R.const(True, "bool"), w
    y = R.loop(n, R.const(True, "bool"), x, regions=[body])
    return y
""")
    (result,) = evaluate_function(module, "main", [np.int64(5), np.ones(2, np.float32)])
    np.testing.assert_array_equal(result, [32.0, 32.0])


def test_evaluate_exactly_widens_every_step() -> None:
    module = R.parse("""
def main(x: R.Tensor((1,))):
    y = R.add(x, R.const([1.0], "float32"))
    z = R.subtract(y, R.const([1.0], "float32"))
    return z
""")
    tiny = np.array([2.0**-30], np.float32)
    assert evaluate_function(module, "main", [tiny])[0] == 0.0
    (exact,) = evaluate_function(module, "main", [tiny], exact=True)
    assert (exact.dtype, exact[0]) == (np.dtype("float64"), 2.0**-30)


def test_evaluate_says_what_it_cannot_run() -> None:
    module = R.parse(
        'def main(x: R.Tensor((1,))):\n    y = R.call_dps_packed("f", (x,), out_types=[R.Tensor((1,))])\n    return y'
    )
    with pytest.raises(ExecutionError) as caught:
        evaluate_function(module, "main", [np.ones(1, np.float32)])
    assert str(caught.value) == "op `call_dps_packed`: has no reference kernel"


def test_values_keep_their_identity_where_nothing_changes() -> None:
    module = R.parse(CALLS)
    for step in (FoldConstants(), RemoveDeadCode(), UniqueNames()):
        assert step(module) is module
    assert all(isinstance(param, Var) for function in module.functions.values() for param in function.params)


def test_folding_leaves_an_op_that_fails_to_whoever_runs_it() -> None:
    module = R.parse("""
@R.ir_module
class Module:
    @R.function
    def main(test: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        @R.region
        def wrong(x: R.Tensor((2,), "float32")):
            lv0 = R.take(R.const([1.0, 2.0], "float32"), R.const([0, 7], "int64"), axis=0)
            return lv0
        @R.region
        def right(x: R.Tensor((2,), "float32")):
            lv0 = R.nn.relu(x)
            return lv0
        lv1 = R.if_(test, x, regions=[wrong, right])
        return lv1
""")
    folded = FoldConstants()(module)
    assert folded is module
    (result,) = evaluate_function(folded, "main", [np.array(False), np.array([-1, 2], np.float32)])
    assert result.tolist() == [0, 2]


def test_evaluate_exactly_widens_floats_of_eight_bits() -> None:
    module = R.parse("""
def main(x: R.Tensor((1,), "float8_e4m3fn")):
    y = R.add(x, R.const([0.0625], "float8_e4m3fn"))
    return y
""")
    (exact,) = evaluate_function(module, "main", [np.array([16.0]).astype(ml_dtypes.float8_e4m3fn)], exact=True)
    assert (exact.dtype, exact[0]) == (np.dtype("float64"), 16.0625)
