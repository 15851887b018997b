"""The full text of every refusal of script."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.errors import IRError, IRTypeError, ScriptError
from byoc_core.ir import (
    OpRegistry,
    digest_of,
    parse_function,
    parse_module,
)

HEAD = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n'


def body(*lines: str) -> str:
    """Return a function of one parameter with these lines."""
    return HEAD + "".join(f"    {line}\n" for line in lines) + "    return x\n"


def window(text: str, guilty: int) -> str:
    """The lines shown in a message."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    numbered = [f"{'>' if n == guilty else ' '} {n:4} | {line}".rstrip() for n, line in enumerate(lines, 1)]
    return "\n".join(numbered[max(0, guilty - 3) : guilty + 2])


NO_BINDING = "is not a binding, a region or a return"
REFUSED: list[tuple[str, str, int, type[IRError], str]] = [
    ("syntax", "def main(:\n    return x\n", 1, ScriptError, "is not Python syntax: invalid syntax"),
    ("indent", "  def f(): pass\n pass", 1, ScriptError, "is not Python syntax: unexpected indent"),
    (
        "second class",
        "class A:\n    pass\nclass B:\n    pass\n",
        3,
        ScriptError,
        "is a second module class; expected a single class",
    ),
    (
        "statement in module",
        "class A:\n    x = 3\n",
        2,
        ScriptError,
        "is not a function, a constant or `R.module_attrs`",
    ),
    ("statement at top", "print('hello')\n", 1, ScriptError, "is not a function, a constant or `R.module_attrs`"),
    ("async", "async def main(): return\n", 1, ScriptError, "is not a function, a constant or `R.module_attrs`"),
    ("twice", "def f(): return\ndef f(): return\n", 2, ScriptError, "function `f` is defined twice"),
    ("module attrs not dict", "R.module_attrs((1, 2))\n", 1, ScriptError, "is not a dict of attributes"),
    ("module attrs key", "R.module_attrs({1: 2})\n", 1, ScriptError, "is not a dict with strings as keys"),
    ("module attrs unhashable", "R.module_attrs({(1, {}): 2})\n", 1, ScriptError, "is not a dict with strings as keys"),
    ("module attrs spread", "R.module_attrs({**a})\n", 1, ScriptError, "is not a dict with strings as keys"),
    ("module attrs value", "R.module_attrs({'a': b})\n", 1, ScriptError, "is not a literal"),
    (
        "cited missing",
        'w = R.constant("abababababababababababababababababababababababababababababababab", R.Tensor((2,)))\n',
        1,
        ScriptError,
        "constant abababababababab... has no array. Pass the array in `constants=`.",
    ),
    (
        "cited form",
        'w = R.constant("ab")\n',
        1,
        ScriptError,
        'is not a constant; expected R.constant("digest", R.Tensor(...))',
    ),
    ("cited object", 'w = R.constant("ab", R.Object("list"))\n', 1, ScriptError, "does not have a tensor type"),
    (
        "recursion",
        "def f(): return\ndef a(x: R.Tensor(())):\n    y = b(x)\n    return y\ndef b(x: R.Tensor(())):\n    z = a(x)\n",
        2,
        ScriptError,
        "function `a` calls itself",
    ),
    (
        "self recursion",
        "def a(x: R.Tensor(())):\n    y = a(x)\n    return y\n",
        1,
        ScriptError,
        "function `a` calls itself",
    ),
    ("varargs", "def f(*x): return\n", 1, ScriptError, "has parameters other than plain positional parameters"),
    (
        "default",
        "def f(x: R.Tensor(()) = 1): return\n",
        1,
        ScriptError,
        "has parameters other than plain positional parameters",
    ),
    (
        "keyword only",
        "def f(*, x: R.Tensor(())): return\n",
        1,
        ScriptError,
        "has parameters other than plain positional parameters",
    ),
    ("no type", "def f(x): return x\n", 1, ScriptError, "parameter `x` has no type"),
    (
        "param twice",
        "def f(x: R.Tensor(()), x: R.Tensor(())): return x\n",
        1,
        ScriptError,
        "parameter `x` is repeated",
    ),
    ("no return", "def f(x: R.Tensor(())):\n    pass\n", 1, ScriptError, "function `f` has no return"),
    ("after return", body("return x"), 4, ScriptError, "follows the return"),
    (
        "returns",
        "def f(x: R.Tensor((2,))) -> R.Tensor((3,)):\n    return x\n",
        1,
        ScriptError,
        'the result types of function `f` differ from the annotation; actual types: R.Tensor((2,), "float32")',
    ),
    (
        "returns count",
        "def f(x: R.Tensor((2,))) -> (R.Tensor((2,)), R.Tensor((2,))):\n    return x\n",
        1,
        ScriptError,
        'the result types of function `f` differ from the annotation; actual types: R.Tensor((2,), "float32")',
    ),
    ("if", body("if x: pass"), 3, ScriptError, f"{NO_BINDING}. A branch is `R.if_(condition, ..., regions=[...])`."),
    ("for", body("for i in x: pass"), 3, ScriptError, f"{NO_BINDING}. A loop is `R.loop(..., regions=[...])`."),
    (
        "augmented",
        body("x += x"),
        3,
        ScriptError,
        f"{NO_BINDING}. Write the op in place of the operator, with a name for the result: `y = R.add(...)`.",
    ),
    (
        "expression",
        body("R.nn.relu(x)"),
        3,
        ScriptError,
        f"{NO_BINDING}. A result is bound to a name: `y = R.<op>(...)`.",
    ),
    ("number", body("y = 3"), 3, ScriptError, f'{NO_BINDING}. A constant is `R.const(values, "dtype")`.'),
    ("attribute target", body("x.y = R.nn.relu(x)"), 3, ScriptError, "is not a name or a tuple of names"),
    ("star target", body("*a, b = R.split(x, sections=(1, 1))"), 3, ScriptError, "is not a name or a tuple of names"),
    ("chain", body("a = b = R.nn.relu(x)"), 3, ScriptError, "is not a binding, a region or a return"),
    ("import", body("import os"), 3, ScriptError, "is not a binding, a region or a return"),
    ("with", body("with open('x'): pass"), 3, ScriptError, "is not a binding, a region or a return"),
    ("target count", body("a, b = R.nn.relu(x)"), 3, ScriptError, "binds 2 names, but `nn.relu` has 1 results"),
    ("target none", body("() = R.nn.relu(x)"), 3, ScriptError, "binds 0 names, but `nn.relu` has 1 results"),
    ("const targets", body("a, b = R.const(1.0)"), 3, ScriptError, "binds 2 names to a single constant"),
    ("const no target", body("() = R.const(1.0)"), 3, ScriptError, "binds 0 names to a single constant"),
    (
        "annotation",
        body("y: R.Tensor((3,)) = R.nn.relu(x)"),
        3,
        ScriptError,
        'the annotation differs from the value\'s type, R.Tensor((2,), "float32")',
    ),
    (
        "annotation type",
        body("y: int = R.nn.relu(x)"),
        3,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    ("func attr", body("R.func_attr(3)"), 3, ScriptError, "is not a dict of attributes"),
    ("output", body("R.output(y)"), 3, ScriptError, "`y` is not defined"),
    ("unknown op", body("y = R.nn.rely(x)"), 3, IRTypeError, "op `nn.rely`: is not known. Did you mean 'nn.relu'?"),
    (
        "unknown function",
        "def helper(x: R.Tensor(())): return x\ndef main(x: R.Tensor(())):\n    y = halper(x)\n    return y\n",
        3,
        ScriptError,
        "function `halper` is not in the module. Did you mean 'helper'?",
    ),
    ("unknown builtin", body("y = open('x')"), 3, ScriptError, "function `open` is not in the module"),
    (
        "method",
        body("y = x.sum()"),
        3,
        ScriptError,
        "calls neither an op `R.<name>` nor a function of the module",
    ),
    (
        "call of call",
        body("y = R.f()(x)"),
        3,
        ScriptError,
        "calls neither an op `R.<name>` nor a function of the module",
    ),
    (
        "undefined",
        body("yy = R.nn.relu(x)", "z = R.nn.relu(y)"),
        4,
        ScriptError,
        "`y` is not defined. Did you mean 'yy'?",
    ),
    (
        "undefined region value",
        body("@R.region", "def r(p: R.Tensor((2,))):", "    return x", "y = R.composite('a', (x,), regions=[r])"),
        5,
        ScriptError,
        "`x` is not defined",
    ),
    (
        "operand literal",
        body("y = R.nn.relu(3)"),
        3,
        ScriptError,
        (
            "is not a value; expected a name, `R.const` or `R.constant`. "
            'A number among operands is `R.const(3, "float32")`; attributes are passed by name.'
        ),
    ),
    (
        "operand lambda",
        body("y = R.nn.relu(lambda: x)"),
        3,
        ScriptError,
        "is not a value; expected a name, `R.const` or `R.constant`",
    ),
    (
        "starred",
        body("y = R.nn.relu(*x)"),
        3,
        ScriptError,
        "is not a value; expected a name, `R.const` or `R.constant`",
    ),
    ("double star", body("y = R.nn.relu(x, **x)"), 3, ScriptError, "has `**` arguments"),
    ("keyword twice", body("y = R.split(x, axis=0, axis=0)"), 3, ScriptError, "passes `axis` twice"),
    ("attr value", body("y = R.split(x, sections=x)"), 3, ScriptError, "is not a literal"),
    ("attr call", body("y = R.split(x, sections=list(x))"), 3, ScriptError, "is not a literal"),
    (
        "attr unknown",
        body("y = R.split(x, section=(1,))"),
        3,
        IRTypeError,
        "op `split`: has no attribute `section`; expected sections, axis. Did you mean 'sections'?",
    ),
    (
        "attr type",
        body("y = R.split(x, sections=3)"),
        3,
        IRTypeError,
        "op `split`, attribute `sections`: value of the wrong type; got 3, expected ints",
    ),
    ("attr missing", body("y = R.split(x)"), 3, IRTypeError, "op `split`: needs attribute `sections`"),
    ("arity", body("y = R.add(x)"), 3, IRTypeError, "op `add`: takes 2 operands (x, y); got 1"),
    (
        "type rule",
        body("y = R.add(x, R.const([1, 2, 3], 'float32'))"),
        3,
        IRTypeError,
        "broadcast: sizes 2 and 3 do not fit; expected equal sizes, or a size of 1",
    ),
    (
        "call arity",
        "def f(a: R.Tensor(())): return a\ndef main(x: R.Tensor(())):\n    y = f(x, x)\n    return y\n",
        3,
        IRTypeError,
        "op `call`: `f` takes 1 arguments; got 2",
    ),
    (
        "call attr",
        "def f(a: R.Tensor(())): return a\ndef main(x: R.Tensor(())):\n    y = f(x, axis=1)\n    return y\n",
        3,
        IRTypeError,
        "op `call`: has no attribute `axis`; expected callee",
    ),
    (
        "call callee",
        "def f(a: R.Tensor(())): return a\ndef main(x: R.Tensor(())):\n    y = f(x, callee='g')\n    return y\n",
        3,
        ScriptError,
        "passes `callee` twice",
    ),
    (
        "out types not taken",
        body("y = R.nn.relu(x, out_types=[R.Tensor((2,))])"),
        3,
        ScriptError,
        "`nn.relu` infers the result types. Omit `out_types`.",
    ),
    (
        "out types missing",
        body("y = R.call_packed('f', (x,))"),
        3,
        IRTypeError,
        "op `call_packed`: needs its result types (`out_types=`)",
    ),
    (
        "out types value",
        body("y = R.call_packed('f', (x,), out_types=[3])"),
        3,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    (
        "packed no symbol",
        body("y = R.call_packed((x,), out_types=[R.Tensor((2,))])"),
        3,
        ScriptError,
        "has no symbol as the first argument; expected a string",
    ),
    (
        "packed nothing",
        body("y = R.call_dps_packed()"),
        3,
        ScriptError,
        "has no symbol as the first argument; expected a string",
    ),
    (
        "packed symbol twice",
        body("y = R.call_packed('f', (x,), symbol='g', out_types=[R.Tensor((2,))])"),
        3,
        ScriptError,
        "passes `symbol` twice",
    ),
    (
        "packed too many",
        body("y = R.call_packed('f', (x,), R.Tensor((2,)), x)"),
        3,
        ScriptError,
        '`call_packed` has 4 positional arguments; expected ("symbol", (operands, ...), out_types)',
    ),
    (
        "composite too many",
        body("y = R.composite('f', (x,), x)"),
        3,
        ScriptError,
        '`composite` has 3 positional arguments; expected ("name", (operands, ...))',
    ),
    (
        "schedule",
        body("y = R.nn.relu(x, schedule=3)"),
        3,
        ScriptError,
        "is not the name of a schedule; expected a string",
    ),
    ("codegen", body("y = R.nn.relu(x, codegen=3)"), 3, ScriptError, "is not the name of a backend; expected a string"),
    (
        "regions unknown",
        body("y = R.composite('f', (x,), regions=[r])"),
        3,
        ScriptError,
        "is not a region defined above",
    ),
    ("regions value", body("y = R.composite('f', (x,), regions='r')"), 3, ScriptError, "is not a region defined above"),
    (
        "regions missing",
        body("y = R.composite('f', (x,))"),
        3,
        IRTypeError,
        "op `composite`: has the wrong number of regions; got 0, expected 1",
    ),
    ("const nothing", body("y = R.const()"), 3, ScriptError, 'is not a constant; expected R.const(values, "dtype")'),
    (
        "const dtype",
        body("y = R.const(1, 'int33')"),
        3,
        IRTypeError,
        "dtype: unknown dtype 'int33'. Did you mean 'int32' or 'uint32' or 'int8'?",
    ),
    (
        "const dtype kind",
        body("y = R.const(1, 32)"),
        3,
        ScriptError,
        'is not a constant; expected R.const(values, "dtype")',
    ),
    (
        "const text",
        body("y = R.const('1.5', 'float32')"),
        3,
        ScriptError,
        "is not a constant of dtype float32: a value is not a number",
    ),
    (
        "const none",
        body("y = R.const(None, 'float32')"),
        3,
        ScriptError,
        "is not a constant of dtype float32: a value is not a number",
    ),
    (
        "const ragged",
        body("y = R.const([[1], 2], 'float32')"),
        3,
        ScriptError,
        "is not a constant of dtype float32: the rows have different lengths",
    ),
    (
        "const range",
        body("y = R.const(300, 'int8')"),
        3,
        ScriptError,
        "is not a constant of dtype int8: a value is out of range",
    ),
    (
        "const float range",
        body("y = R.const(1e300, 'float32')"),
        3,
        ScriptError,
        "is not a constant of dtype float32: a value is out of range",
    ),
    (
        "const huge",
        body(f"y = R.const({10**400}, 'float32')"),
        3,
        ScriptError,
        "is not a constant of dtype float32: int too large to convert to float",
    ),
    (
        "const truncated",
        body("y = R.const(1.5, 'int32')"),
        3,
        ScriptError,
        "is not a constant of dtype int32: a value is not of type int",
    ),
    (
        "const bool",
        body("y = R.const(2, 'bool')"),
        3,
        ScriptError,
        "is not a constant of dtype bool: a value is not of type bool",
    ),
    (
        "const argument",
        body("y = R.const(2, 'int8', shape=(3,))"),
        3,
        ScriptError,
        "has no argument `shape`; expected values, dtype",
    ),
    (
        "const arguments",
        body("y = R.const(2, 'int8', 3)"),
        3,
        ScriptError,
        "has 3 positional arguments; expected at most 2",
    ),
    ("const twice", body("y = R.const(2, 'int8', dtype='int8')"), 3, ScriptError, "passes `dtype` twice"),
    (
        "type name",
        "def f(x: int): return x\n",
        1,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    (
        "type call",
        "def f(x: Tensor((2,))): return x\n",
        1,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    (
        "type string",
        "def f(x: 'R.Tensor((2,))'): return x\n",
        1,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    (
        "tensor nothing",
        "def f(x: R.Tensor()): return x\n",
        1,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    (
        "tensor dtype",
        "def f(x: R.Tensor((2,), 'float33')): return x\n",
        1,
        ScriptError,
        "is not a type: dtype: unknown dtype 'float33'. Did you mean 'float32' or 'float64' or 'float16'?",
    ),
    (
        "tensor dtype kind",
        "def f(x: R.Tensor((2,), 3)): return x\n",
        1,
        ScriptError,
        "has a dtype other than a string",
    ),
    ("tensor shape", "def f(x: R.Tensor(2)): return x\n", 1, ScriptError, "has a shape other than a tuple"),
    (
        "tensor dim",
        "def f(x: R.Tensor(('n/2',))): return x\n",
        1,
        ScriptError,
        "is not a type: dim: cannot read 'n/2' as an integer expression",
    ),
    (
        "tensor dim float",
        "def f(x: R.Tensor((1.5,))): return x\n",
        1,
        ScriptError,
        "is not a type: dim: cannot read 1.5 as an integer expression",
    ),
    (
        "tensor negative",
        "def f(x: R.Tensor((-1,))): return x\n",
        1,
        ScriptError,
        "is not a type: tensor type: axis 0 has a negative size; got -1",
    ),
    (
        "tensor argument",
        "def f(x: R.Tensor((2,), device='cpu')): return x\n",
        1,
        ScriptError,
        "has no argument `device`; expected shape, dtype",
    ),
    (
        "object kind",
        "def f(x: R.Object(3)): return x\n",
        1,
        ScriptError,
        'is not a type; expected R.Tensor((2, "n"), "float32") or R.Object("kind")',
    ),
    ("dim", body("R.func_attr({'a': R.dim('n/')})"), 3, IRTypeError, "dim: cannot read 'n/' as an integer expression"),
]


@pytest.mark.parametrize(("text", "line", "error", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refusals(text: str, line: int, error: type[IRError], message: str, ops: OpRegistry) -> None:
    with pytest.raises(error) as caught:
        parse_module(text, ops)
    where = f"<script>, line {line}: " if error is ScriptError else ""
    assert str(caught.value) == f"{where}{message}\n{window(text, line)}"


@pytest.mark.parametrize(
    "text", ["\x00", "x = '\ud800'", "x = " + "-" * 50000 + "1", "(" * 5000, "x = " + "(a." * 90 + ")" * 90]
)
def test_text_that_python_cannot_read(text: str, ops: OpRegistry) -> None:
    with pytest.raises(ScriptError, match=r"^<script>(, line 1)?: (is not Python syntax: .|is nested too deeply)"):
        parse_module(text, ops)


def test_regions_nested_too_deeply(ops: OpRegistry) -> None:
    nested = ["    " * depth + "def f(x: R.Tensor(())):" for depth in range(95)]
    text = "\n".join([*nested, "    " * 95 + "return x"])
    with pytest.raises(ScriptError, match="has no return"):
        parse_module(text, ops)


def test_one_function_is_asked_for(ops: OpRegistry) -> None:
    text = "def f(): return\ndef g(): return\n"
    with pytest.raises(ScriptError) as caught:
        parse_function(text, ops)
    assert str(caught.value) == "<script>: does not hold a single function; got f, g, expected 1"
    with pytest.raises(ScriptError) as caught:
        parse_function("", ops)
    assert str(caught.value) == "<script>: does not hold a single function; got none, expected 1"
    assert parse_function("def f(): return", ops).name == "f"


def test_the_source_and_its_first_line_stand_in_messages_and_locations(ops: OpRegistry) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_module(body("y = R.nn.relu(z)"), ops, source="net.py", first_line=11)
    assert str(caught.value) == (
        "net.py, line 13: `z` is not defined\n"
        '    11 | @R.function\n    12 | def main(x: R.Tensor((2,), "float32")):\n'
        ">   13 |     y = R.nn.relu(z)\n    14 |     return x"
    )
    module = parse_module(body("y = R.nn.relu(x)"), ops, source="net.py", first_line=11)
    assert str(module["main"].bindings[0].location) == "net.py:line 13"


def test_windows_count_lines_as_python_does(ops: OpRegistry) -> None:
    text = "# form\x0cfeed\u2028\r\n" + body("y = R.nn.relu(z)")
    with pytest.raises(ScriptError, match=r"line 4: `z` is not defined\n(.*\n)*>    4 \|     y = R.nn.relu\(z\)"):
        parse_module(text, ops)


def test_cited_constants_are_checked(ops: OpRegistry) -> None:
    array = np.arange(8.0)
    digest = digest_of(array)
    text = f'w = R.constant("{digest}", R.Tensor((8,), "float64"))\n'
    with pytest.raises(ScriptError) as caught:
        parse_module(text, ops, constants={digest: array + 1})
    assert str(caught.value) == (
        f"<script>, line 1: the array of constant {digest[:16]}... has another digest\n{window(text, 1)}"
    )
    text = text.replace("(8,)", "(4, 2)")
    with pytest.raises(IRError) as failed:
        parse_module(text, ops, constants={digest: array})
    assert str(failed.value) == (
        "constant: the array does not have the constant's type; got float64[8], "
        f'expected R.Tensor((4, 2), "float64")\n{window(text, 1)}'
    )
