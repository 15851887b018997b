"""The legality checker against results broken by hand: each fault is named by the broken law."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from byoc_core import script as R
from byoc_core.errors import InternalError
from byoc_core.ir import IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.partitioning import MergeCompositeFunctions, check_partition

COMMON = """
class M:
    def hand(x: Row):
        R.func_attr({"Codegen": "cthree", "global_symbol": "hand"})
        a = R.nn.relu(x)
        return a
    def side(x: Row):
        a = R.call_packed("log", (x,), out_types=[Row])
        return a
"""
BEFORE = f"""{COMMON}
    def main(p: Flag, n: Count, x: Row, y: Row):
        R.func_attr({{"kept": 1}})
        def yes(a: Row, b: Row):
            c = R.nn.relu(a, codegen="aone")
            d = R.add(c, b)
            return d
        def no(a: Row, b: Row):
            return b
        e = R.if_(p, x, y, regions=[yes, no])
        f = R.subtract(e, y, codegen="aone")
        g = R.multiply(f, R.const([1.0, 2.0, 3.0, 4.0], "float32"), codegen="aone")
        h = R.exp(g)
        i = R.tanh(h, codegen="btwo")
        j = side(x)
        k = R.nn.relu(j, codegen="aone")
        l = R.call_packed("log", (k,), out_types=[Row])
        m = hand(x)
        def body(round: Count, q: Row, r: Row):
            s = R.negative(q, codegen="btwo")
            return p2, s, q
        t, u = R.loop(n, p, x, y, regions=[body])
        return f, i, k, m, t, u
"""
BEFORE = BEFORE.replace("return p2, s, q", 'return R.const(True, "bool"), s, q')
AFTER = (
    COMMON
    + """
    def aone_main_0(a: Row):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0", "source": "main"})
        c = R.nn.relu(a)
        return c
    def aone_main_1(e: Row, y: Row):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_1", "source": "main"})
        f = R.subtract(e, y)
        g = R.multiply(f, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
        return f, g
    def btwo_main_1(h: Row):
        R.func_attr({"Codegen": "btwo", "global_symbol": "btwo_main_1", "source": "main"})
        i = R.tanh(h)
        return i
    def aone_main_2(j: Row):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_2", "source": "main"})
        k = R.nn.relu(j)
        return k
    def btwo_main_0(q: Row):
        R.func_attr({"Codegen": "btwo", "global_symbol": "btwo_main_0", "source": "main"})
        s = R.negative(q)
        return s
    def main(p: Flag, n: Count, x: Row, y: Row):
        R.func_attr({"kept": 1})
        def yes(a: Row, b: Row):
            c = aone_main_0(a)
            d = R.add(c, b)
            return d
        def no(a: Row, b: Row):
            return b
        e = R.if_(p, x, y, regions=[yes, no])
        f, g = aone_main_1(e, y)
        h = R.exp(g)
        i = btwo_main_1(h)
        j = side(x)
        k = aone_main_2(j)
        l = R.call_packed("log", (k,), out_types=[Row])
        m = hand(x)
        def body(round: Count, q: Row, r: Row):
            s = btwo_main_0(q)
            return R.const(True, "bool"), s, q
        t, u = R.loop(n, p, x, y, regions=[body])
        return f, i, k, m, t, u
"""
)

Edits = Sequence[tuple[str, str]]


def parsed(text: str) -> IRModule:
    for name, written in (
        ("Row", "R.Tensor((4,))"),
        ("Flag", 'R.Tensor((), "bool")'),
        ("Count", 'R.Tensor((), "int64")'),
    ):
        text = text.replace(f": {name}", f": {written}").replace(f"[{name}]", f"[{written}]")
    return R.parse(text)


def edited(text: str, edits: Edits) -> IRModule:
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    return parsed(text)


def problem_of(before: IRModule, after: IRModule) -> str:
    with pytest.raises(InternalError) as caught:
        check_partition(before, after)
    return f"{caught.value.where}: {caught.value.problem}"


def test_the_unbroken_result_passes() -> None:
    before, after = parsed(BEFORE), parsed(AFTER)
    assert MergeCompositeFunctions()(before) == after
    check_partition(before, after)
    check_partition(parsed(BEFORE.replace(', codegen="aone"', "").replace(', codegen="btwo"', "")), after)


TANH = """    def btwo_main_1(h: Row):
        R.func_attr({"Codegen": "btwo", "global_symbol": "btwo_main_1", "source": "main"})
        i = R.tanh(h)
        return i
"""
LOG = """        l = R.call_packed("log", ({},), out_types=[Row])
"""
ONE_SYMBOL = "partition: made an invalid module: functions `{}` and `{}`: have the same global symbol `{}`"
RESULTS = "partition: changed the results of function `main`"
BACKEND_CHANGED = "partition: changed the backend of an op, or the impure ops around an op, of function `main`"
BROKEN: dict[str, tuple[Edits, str]] = {
    "an op goes to another backend": (
        [('"Codegen": "btwo", "global_symbol": "btwo_main_1"', '"Codegen": "aone", "global_symbol": "btwo_main_1"')],
        BACKEND_CHANGED,
    ),
    "an op that nobody claimed goes into a region": (
        [
            ("        i = R.tanh(h)\n", "        z = R.exp(h)\n        i = R.tanh(z)\n"),
            ("        h = R.exp(g)\n        i = btwo_main_1(h)", "        i = btwo_main_1(g)"),
        ],
        BACKEND_CHANGED,
    ),
    "a claim is lost": ([(TANH, ""), ("i = btwo_main_1(h)", "i = R.tanh(h)")], BACKEND_CHANGED),
    "a claim stays a claim": ([(TANH, ""), ("i = btwo_main_1(h)", 'i = R.tanh(h, codegen="btwo")')], BACKEND_CHANGED),
    "an op moves out of a branch": (
        [
            ("            c = aone_main_0(a)\n            d = R.add(c, b)", "            d = R.add(a, b)"),
            ("        e = R.if_(p, x, y,", "        c = aone_main_0(x)\n        e = R.if_(p, c, y,"),
        ],
        RESULTS,
    ),
    "an op moves from one branch to the other": (
        [
            ("            c = aone_main_0(a)\n            d = R.add(c, b)", "            d = R.add(a, b)"),
            ("            return b\n", "            c = aone_main_0(a)\n            return b\n"),
        ],
        RESULTS,
    ),
    "what a loop carries is swapped": ([('"bool"), s, q', '"bool"), q, s')], RESULTS),
    "a loop starts with other values": ([("R.loop(n, p, x, y,", "R.loop(n, p, y, x,")], RESULTS),
    "a constant has another value": ([("[1.0, 2.0, 3.0, 4.0]", "[1.0, 2.0, 3.0, 5.0]")], RESULTS),
    "an op runs once more": (
        [("        i = R.tanh(h)\n", "        z = R.tanh(h)\n        i = R.tanh(h)\n")],
        "partition: changed the ops, or the number of runs of an op, of function `main`",
    ),
    "an attribute of the function is lost": (
        [('        R.func_attr({"kept": 1})\n', "")],
        "partition: changed the attributes of function `main`",
    ),
    "the function's inputs have other names": (
        [
            ("    def main(p: Flag", "    def main(flag: Flag"),
            ("R.if_(p, x", "R.if_(flag, x"),
            ("R.loop(n, p", "R.loop(n, flag"),
        ],
        "partition: changed the names of the inputs of function `main`",
    ),
    "the function has one more parameter": (
        [('y: Row):\n        R.func_attr({"kept"', 'y: Row, z: Row):\n        R.func_attr({"kept"')],
        "partition: changed the parameters of function `main`",
    ),
    "a result is lost": (
        [("return f, i, k, m, t, u", "return f, i, k, m, t")],
        "partition: changed the names of the outputs of function `main`",
    ),
    "a result has another type": (
        [("return f, i, k, m, t, u", "return p, i, k, m, t, u")],
        "partition: changed the result types of function `main`",
    ),
    "a function that was annotated changes": (
        [('"global_symbol": "hand"})\n        a = R.nn.relu(x)', '"global_symbol": "hand"})\n        a = R.tanh(x)')],
        "partition: changed the annotated function `hand`",
    ),
    "the call of an annotated function is dissolved": ([("m = hand(x)", "m = R.nn.relu(x)")], RESULTS),
    "an impure function is called later": (
        [
            ("        j = side(x)\n        k = aone_main_2(j)\n" + LOG.format("k"), LOG.format("x")),
            ("        m = hand(x)\n", "        m = hand(x)\n        j = side(x)\n        k = aone_main_2(j)\n"),
        ],
        RESULTS,
    ),
    "a region crosses an impure op": (
        [
            ("        j = side(x)\n", ""),
            ("        f, g = aone_main_1(e, y)\n", "        j = side(x)\n        f, g = aone_main_1(e, y)\n"),
        ],
        BACKEND_CHANGED,
    ),
    "a region holds a call": (
        [("        k = R.nn.relu(j)\n", "        z = btwo_main_1(j)\n        k = R.nn.relu(z)\n")],
        "region `aone_main_2`: contains `call`, forbidden in regions",
    ),
    "a region contains an impure op": (
        [
            (
                "        j = side(x)\n        k = aone_main_2(j)\n" + LOG.format("k"),
                "        j = side(x)\n        k = aone_main_2(j)\n",
            ),
            ("        k = R.nn.relu(j)\n", "        k = R.nn.relu(j)\n" + LOG.format("k")),
        ],
        "region `aone_main_2`: contains an impure op",
    ),
    "a region holds a claim": (
        [("        k = R.nn.relu(j)\n", '        k = R.nn.relu(j, codegen="aone")\n')],
        "region `aone_main_2`: contains an op with a claim of `aone`",
    ),
    "a region has no symbol": (
        [('"Codegen": "aone", "global_symbol": "aone_main_2", ', '"Codegen": "aone", ')],
        "function `aone_main_2`: is new and not annotated for a backend",
    ),
    "a region has no backend": (
        [('{"Codegen": "aone", "global_symbol": "aone_main_2", ', '{"global_symbol": "aone_main_2", ')],
        "function `aone_main_2`: is new and not annotated for a backend",
    ),
    "two regions have one symbol": (
        [
            ('"global_symbol": "aone_main_2"', '"global_symbol": "one"'),
            ('"global_symbol": "aone_main_1"', '"global_symbol": "one"'),
        ],
        ONE_SYMBOL.format("aone_main_1", "aone_main_2", "one"),
    ),
    "inputs stand in another order": (
        [
            ("def aone_main_1(e: Row, y: Row)", "def aone_main_1(y: Row, e: Row)"),
            ("= aone_main_1(e, y)", "= aone_main_1(y, e)"),
        ],
        "region `aone_main_1`: does not have the inputs in the order of the first reads",
    ),
    "outputs stand in another order": (
        [("        return f, g\n", "        return g, f\n"), ("f, g = aone_main_1", "g, f = aone_main_1")],
        "region `aone_main_1`: does not have the outputs in the order of the producing ops",
    ),
    "an output stands twice": (
        [("        return f, g\n", "        return f, g, f\n"), ("f, g = aone_main_1", "f, g, z = aone_main_1")],
        "region `aone_main_1`: has a duplicate output",
    ),
    "an input is an output": (
        [("        return f, g\n", "        return f, g, e\n"), ("f, g = aone_main_1", "f, g, z = aone_main_1")],
        "region `aone_main_1`: has an output not produced by an op of the region",
    ),
    "an input is a constant": (
        [
            ("def aone_main_1(e: Row, y: Row)", "def aone_main_1(e: Row, y: Row, w: Row)"),
            ('R.multiply(f, R.const([1.0, 2.0, 3.0, 4.0], "float32"))', "R.multiply(f, w)"),
            ("= aone_main_1(e, y)", '= aone_main_1(e, y, R.const([1.0, 2.0, 3.0, 4.0], "float32"))'),
        ],
        "region `aone_main_1`: has a constant as input",
    ),
}


@pytest.mark.parametrize("label", BROKEN)
def test_a_broken_result_is_caught(label: str) -> None:
    edits, problem = BROKEN[label]
    assert problem_of(parsed(BEFORE), edited(AFTER, edits)).partition("\n")[0] == problem


def test_a_changed_size_is_caught() -> None:
    text = """
def main(x: R.Tensor(("n", "m"))):
    y = R.call_dps_packed("f", (x,), out_types=[R.Tensor(("{0}",))])
    return x
"""
    before, after = R.parse(text.format("n")), R.parse(text.format("m"))
    assert problem_of(before, after) == "partition: changed the ops, or the number of runs of an op, of function `main`"
    other = R.parse(text.format("n").replace('"n"', '"k"'))
    assert problem_of(before, other) == "partition: changed the parameters of function `main`"


def test_a_constant_of_another_dtype_is_caught() -> None:
    text = """
def main(x: R.Tensor((4,))):
    y = R.call_dps_packed("f", (x, R.const(1.0, "{0}")), out_types=[R.Tensor((4,))])
    return y
"""
    assert problem_of(R.parse(text.format("float32")), R.parse(text.format("float64"))) == RESULTS


class External:
    function_names = ("aone_main_0",)


def test_lost_attributes_of_the_module_and_a_taken_symbol_are_caught() -> None:
    before, after = parsed(BEFORE), parsed(AFTER)
    keeping = {EXTERNAL_MODULES: (External(),)}
    assert problem_of(before.with_attrs(**keeping), after) == "partition: changed the attributes of the module"
    assert problem_of(before.with_attrs(**keeping), after.with_attrs(**keeping)) == (
        "region `aone_main_0`: has the global symbol of an external function, `aone_main_0`"
    )


def test_the_symbol_of_a_call_that_a_user_provides_is_taken() -> None:
    text = """
def main(x: R.Tensor((4,))):
    y = R.nn.relu(x, codegen="aone")
    z = R.call_dps_packed("aone_main_0", (y,), out_types=[R.Tensor((4,))])
    return z
"""
    before = R.parse(text)
    assert list(MergeCompositeFunctions()(before).functions) == ["aone_main_1", "main"]
    after = R.parse("""
class M:
    def aone_main_0(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0"})
        y = R.nn.relu(x)
        return y
    def main(x: R.Tensor((4,))):
        y = aone_main_0(x)
        z = R.call_dps_packed("aone_main_0", (y,), out_types=[R.Tensor((4,))])
        return z
""")
    assert problem_of(before, after) == (
        "region `aone_main_0`: has the global symbol of an external function, `aone_main_0`"
    )


def test_an_error_shows_the_first_op_on_both_sides() -> None:
    before = R.parse("""
def main(x: R.Tensor((4,)), p: R.Tensor((), "bool")):
    a = R.nn.relu(x)
    b = R.exp(a)
    def yes(q: R.Tensor((4,))):
        r = R.tanh(q)
        return r
    def no(q: R.Tensor((4,))):
        s = R.clip(q, min=0.0, max=4.0)
        return s
    c = R.if_(p, b, regions=[yes, no])
    d = R.negative(c)
    return d
""")
    after = R.parse("""
class M:
    def aone_main_0(q: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0"})
        s = R.clip(q, min=1.0, max=4.0)
        return s
    def main(x: R.Tensor((4,)), p: R.Tensor((), "bool")):
        a = R.nn.relu(x)
        b = R.exp(a)
        def yes(q: R.Tensor((4,))):
            r = R.tanh(q)
            return r
        def no(q: R.Tensor((4,))):
            s = aone_main_0(q)
            return s
        c = R.if_(p, b, regions=[yes, no])
        d = R.negative(c)
        return d
""")
    with pytest.raises(InternalError) as caught:
        check_partition(before, after)
    assert str(caught.value) == (
        "partition: changed the results of function `main`\n"
        "before:\n"
        '  def main(x: R.Tensor((4,), "float32"), p: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):\n'
        "      ...\n"
        "          return r\n"
        "      @R.region\n"
        '      def no(q: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):\n'
        ">         s = R.clip(q, min=0.0, max=4.0)\n"
        "          return s\n"
        "      c = R.if_(p, b, regions=[yes, no])\n"
        "      d = R.negative(c)\n"
        "after:\n"
        "  @R.function\n"
        '  def aone_main_0(q: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):\n'
        '      R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0"})\n'
        ">     s = R.clip(q, min=1.0, max=4.0)\n"
        "      return s"
    )


def test_a_wrong_result_of_the_right_ops_shows_what_makes_it() -> None:
    before = R.parse("def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    b = R.exp(a)\n    return b, x")
    after = R.parse("def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    b = R.exp(a)\n    return a, x")
    with pytest.raises(InternalError) as caught:
        check_partition(before, after)
    lines = '  def main(x: R.Tensor((4,), "float32")) -> (R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):\n'
    assert str(caught.value) == (
        "partition: changed the results of function `main`\n"
        f"before:\n  @R.function\n{lines}      a = R.nn.relu(x)\n>     b = R.exp(a)\n      return b, x\n"
        f"after:\n  @R.function\n{lines}>     a = R.nn.relu(x)\n      b = R.exp(a)\n      return a, x"
    )
