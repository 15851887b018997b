"""Reading script: the accepted forms, and no execution."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from byoc_core.errors import ByocError
from byoc_core.ir import (
    ConstantStore,
    IRModule,
    OpRegistry,
    digest_of,
    parse_module,
    print_module,
    tensor,
    verify,
)

HEAD = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n'


def body(*lines: str) -> str:
    """Return a function of one parameter with these lines."""
    return HEAD + "".join(f"    {line}\n" for line in lines) + "    return x\n"


def same(left: str, right: str, ops: OpRegistry) -> IRModule:
    module = parse_module(left, ops)
    assert module == parse_module(right, ops)
    return verify(module)


def test_the_header_the_class_and_decorators_are_optional(ops: OpRegistry) -> None:
    bare = "def f(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    return y\n"
    dressed = '"""Doc."""\nfrom byoc_core import script as R\nimport other\n'
    dressed += '@R.ir_module\nclass M:\n    """Doc."""\n    @anything\n'
    dressed += "".join(f"    {line}\n" for line in bare.splitlines())
    same(bare, dressed, ops)


@pytest.mark.parametrize(
    "lines",
    [
        ("with R.dataflow():", "    y = R.nn.relu(x)", "    R.output(y)"),
        ("with R.dataflow():", "    y = R.nn.relu(x)", "    return y"),
        ("'''Doc.'''", "pass", "z = R.nn.relu(x)", "y = z"),
        ("y: R.Tensor((2,), 'float32') = R.nn.relu(x)",),
        ("y: R.Tensor(dtype='float32', shape=[2]) = R.nn.relu((x,))",),
        ("x = R.nn.relu(x)", "y = x"),
        ("(y,) = R.nn.relu(x)",),
        ("[y] = R.nn.relu([x])",),
    ],
)
def test_ways_to_write_one_binding(lines: tuple[str, ...], ops: OpRegistry) -> None:
    def function(*lines: str) -> str:
        return HEAD + "".join(f"    {line}\n" for line in lines)

    text = function(*lines) if "    return y" in lines else function(*lines, "return y")
    same(text, function("y = R.nn.relu(x)", "return y"), ops)


@pytest.mark.parametrize(
    "call",
    [
        'R.call_dps_packed("f", (x, x), out_types=[R.Tensor((2,))])',
        'R.call_dps_packed("f", [x, x], R.Tensor((2,), "float32"))',
        'R.call_dps_packed(R.extern("f"), (x, x), out_types=R.Tensor((2,)))',
        'R.call_dps_packed("f", (x, x), (R.Tensor((2,)),))',
    ],
)
def test_ways_to_call_an_external_function(call: str, ops: OpRegistry) -> None:
    canonical = 'R.call_dps_packed("f", (x, x), out_types=[R.Tensor((2,), "float32")])'
    same(body(f"y = {call}"), body(f"y = {canonical}"), ops)


def test_constants_in_text(ops: OpRegistry) -> None:
    text = body(
        "a = R.const(1)",
        "b = R.const([[True], [False]], dtype='bool')",
        "c = R.const(values=(-1, 7), dtype='int4')",
        "d = R.const((), 'int8')",
        "e = R.const([float('nan'), float('-inf'), 1e-300], 'bfloat16')",
        "y = R.sequence(a, b, c, d, e, R.const(-0.0, 'float64'))",
    )
    module = verify(parse_module(text, ops))
    types = [operand.type for operand in module["main"].bindings[0].operands]
    assert types == [
        tensor(()),
        tensor((2, 1), "bool"),
        tensor((2,), "int4"),
        tensor((0,), "int8"),
        tensor((3,), "bfloat16"),
        tensor((), "float64"),
    ]
    assert parse_module(print_module(module), ops, constants=module.constants) == module


def test_cited_constants(ops: OpRegistry) -> None:
    array = np.arange(8.0)
    digest = digest_of(array)
    text = f'w = R.constant("{digest}", R.Tensor((8,), "float64"))\ndef f(): return w\n'
    here = f'def f():\n    w = R.constant("{digest}", R.Tensor((8,), "float64"))\n    return w\n'
    module = parse_module(text, ops, constants={digest: array})
    assert module == parse_module(here, ops, constants={digest: array})
    array[0] = 7
    assert digest_of(module.constants[digest]) == digest
    store = ConstantStore()
    store.add(np.arange(8.0))
    assert np.shares_memory(parse_module(text, ops, constants=store).constants[digest], store[digest])


def test_functions_may_stand_in_any_order(ops: OpRegistry) -> None:
    callees = [f"def f{i}(x: R.Tensor((2,))):\n    y = f{i + 1}(x)\n    return y\n" for i in range(2000)]
    module = parse_module("".join([*callees, "def f2000(x: R.Tensor((2,))): return x\n"]), ops)
    assert list(module.functions) == [f"f{i}" for i in range(2001)]
    assert verify(module)["f0"].result_types == (tensor((2,)),)


def test_control_flow(ops: OpRegistry) -> None:
    text = body(
        "def then(p: R.Tensor((2,))):",
        "    q = R.nn.relu(p)",
        "    return q",
        "def other(p: R.Tensor((2,))): return p",
        "y = R.if_(R.const(True, 'bool'), x, regions=[then, other])",
        "def step(i: R.Tensor((), 'int64'), p: R.Tensor((2,))):",
        "    q = R.add(p, p)",
        "    return R.const(True, 'bool'), q",
        "z = R.loop(R.const(3, 'int64'), R.const(True, 'bool'), y, regions=step)",
    )
    module = verify(parse_module(text, ops))
    assert [b.op.name for b in module["main"].walk()] == ["nn.relu", "if", "add", "loop"]
    assert parse_module(str(module), ops) == module


def test_nothing_is_executed(ops: OpRegistry, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    bomb = f"open({str(trap)!r}, 'w')"
    texts = [
        bomb,
        f"import os; {bomb}",
        f"@{bomb}\nclass A:\n    @{bomb}\n    def f(): return\n",
        f"class A({bomb}): pass",
        f"def f(x: {bomb}): return",
        f"def f() -> {bomb}: return",
        f"def f(x: R.Tensor(({bomb},))): return",
        f"R.module_attrs({{'a': {bomb}}})",
        f"R.module_attrs({{{bomb}: 1}})",
        *(body(line) for line in (
            bomb, f"y = {bomb}", f"y = R.nn.relu({bomb})", f"y = R.split(x, sections={bomb})", f"R.output({bomb})",
            f"with {bomb}: pass", f"y = R.const({bomb})", f"y = R.nn.relu(x)[{bomb}]", f"y = f'{{{bomb}}}'",
            f"y = [R.nn.relu(x) for _ in {bomb}]", f"R.func_attr({{'a': {bomb}}})", f"y: {bomb} = R.nn.relu(x)",
        )),
    ]  # fmt: skip
    for text in texts:
        with contextlib.suppress(ByocError):
            parse_module(text, ops)
    assert not trap.exists()
