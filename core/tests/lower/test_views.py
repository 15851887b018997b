"""Lowered rearranging ops: free ops, copies, and their display in listings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import CodegenError
from byoc_core.ir import IRModule, verify
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.runtime.module import CallTraits, NDArray
from byoc_core.vm import Call, Program, disassemble
from byoc_core.vm import verify as verify_program

from core.tests.lower.view_modules import IN_PLACE, TraitModule, without_views
from core.tests.vm.programs import num_copies

PLAIN = CallTraits()
STRIDED = CallTraits(strided=True)
IN_ITS_PLACE = CallTraits(in_place=IN_PLACE)


def module(params: str, body: str, **traits: CallTraits) -> IRModule:
    """Return a module; a returned call gets a name."""
    *first, last = body.strip().splitlines()
    last = last.replace("return R.", "y = R.") + "\nreturn y" if last.startswith("return R.") else last
    lines = "\n".join(f"        {line}" for line in (*first, *last.splitlines()))
    parsed = verify(parse(f"class M:\n    @R.function\n    def main({params}):\n{lines}\n"))
    externals = TraitModule({"next": PLAIN, "add": PLAIN, **traits})
    return parsed.with_attrs(**{EXTERNAL_MODULES: (externals,)})


def call(name: str, *operands: str, shape: str) -> str:
    return f'R.call_dps_packed("{name}", ({", ".join(operands)},), out_types=[{t(shape)}])'


def t(shape: str) -> str:
    return f'R.Tensor({shape}, "float32")'


def program(source: IRModule) -> Program:
    lowered = lower(source)
    verify_program(lowered)
    return lowered


def run(source: IRModule, *inputs: NDArray) -> Any:
    executable = Executable(program(source), source.attrs[EXTERNAL_MODULES], dict(source.constants))
    return VirtualMachine(executable)["main"](*inputs)


def ramp(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def two_calls(shape: str, axis: int) -> str:
    return f"""
a = {call("next", "x", shape=shape)}
b = {call("next", "a", shape=shape)}
return R.concat(a, b, axis={axis})"""


FREE: dict[str, tuple[str, str, dict[str, CallTraits]]] = {
    "concat of two externs": ("(2, 3)", two_calls("(2, 3)", 0), {}),
    "concat along axis 1 at batch 1": ("(1, 4, 5)", two_calls("(1, 4, 5)", 1), {}),
    "concat along axis 1 at a batch, for those who take strides": (
        "(3, 4, 5)",
        two_calls("(3, 4, 5)", 1),
        {"next": STRIDED},
    ),
    "concat along axis 1 at a symbolic batch": ("('n', 4, 5)", two_calls("('n', 4, 5)", 1), {"next": STRIDED}),
    "concat beside an axis whose size is zero or more only because calls are checked": (
        "(2, 3, 'n-2')",
        two_calls("(2, 3, 'n-2')", 1),
        {"next": STRIDED},
    ),
    "concat along the last of many axes": ("(2, 3, 'n', 5)", two_calls("(2, 3, 'n', 5)", 3), {"next": STRIDED}),
    "split to two": (
        "(4, 3)",
        f"""
a, b = R.split(x, sections=(2, 2))
return {call("add", "a", "b", shape="(2, 3)")}""",
        {},
    ),
    "split along axis 1 to two that take strides": (
        "(3, 4)",
        f"""
a, b = R.split(x, sections=(2, 2), axis=1)
return {call("add", "a", "b", shape="(3, 2)")}""",
        {"add": STRIDED},
    ),
    "reshape before": ("(2, 6)", f"a = R.reshape(x, shape=(3, 4))\nreturn {call('next', 'a', shape='(3, 4)')}", {}),
    "reshape before return": (
        "(2, 6)",
        f"a = {call('next', 'x', shape='(2, 6)')}\nreturn R.reshape(a, shape=(3, 4))",
        {},
    ),
    "symbolic reshape": (
        "('n', 2, 6)",
        f"a = {call('next', 'x', shape=chr(40) + repr('n') + ', 2, 6)')}\nreturn R.reshape(a, shape=('n', 12))",
        {},
    ),
    "squeeze and back": (
        "(1, 2, 6)",
        f"""
a = R.squeeze(x, axis=(0,))
b = {call("next", "a", shape="(2, 6)")}
return R.expand_dims(b, axis=(0,))""",
        {},
    ),
    "chain of concat, reshape and split": (
        "(1, 2, 6)",
        f"""
a = {call("next", "x", shape="(1, 2, 6)")}
b = {call("next", "a", shape="(1, 2, 6)")}
c = R.concat(a, b, axis=1)
d = R.reshape(c, shape=(4, 6))
e, f = R.split(d, sections=(1, 3))
g = {call("next", "e", shape="(1, 6)")}
h = {call("next", "f", shape="(3, 6)")}
i = R.concat(g, h)
return R.reshape(i, shape=(24,))""",
        {},
    ),
    "dense block": (
        "(1, 2, 4)",
        f"""
a = {call("next", "x", shape="(1, 2, 4)")}
b = {call("next", "a", shape="(1, 2, 4)")}
c = R.concat(a, b, axis=1)
d = {call("next", "c", shape="(1, 4, 4)")}
e = R.concat(c, d, axis=1)
f = {call("next", "e", shape="(1, 8, 4)")}
g = R.concat(e, f, axis=1)
return {call("next", "g", shape="(1, 16, 4)")}""",
        {},
    ),
    "transposed for one that takes strides": (
        "(3, 4)",
        f"a = R.permute_dims(x, axes=(1, 0))\nreturn {call('next', 'a', shape='(4, 3)')}",
        {"next": STRIDED},
    ),
    "transposed after one that takes strides": (
        "(3, 4)",
        f"a = {call('next', 'x', shape='(3, 4)')}\nreturn R.permute_dims(a, axes=(1, 0))",
        {"next": STRIDED},
    ),
    "residual": (
        "(3, 4)",
        f"""
a = {call("next", "x", shape="(3, 4)")}
b = {call("next", "a", shape="(3, 4)")}
c = {call("add", "a", "b", shape="(3, 4)")}
return R.reshape(c, shape=(12,))""",
        {"add": IN_ITS_PLACE},
    ),
}


@pytest.mark.parametrize("case", FREE)
def test_what_costs_nothing(case: str) -> None:
    shape, body, traits = FREE[case]
    source = module(f"x: {t(shape)}", body, **traits)
    assert num_copies(program(source)) == 0
    x = ramp(*eval(shape.replace("'n'", "3").replace("'n-2'", "3")))
    executable = Executable(without_views(source), source.attrs[EXTERNAL_MODULES], {})
    assert num_copies(executable.program) > 0
    np.testing.assert_array_equal(run(source, x), VirtualMachine(executable)["main"](x))


COPIED = {
    "an input": ("(2, 3)", f"a = {call('next', 'x', shape='(2, 3)')}\nreturn R.concat(a, x)", 1),
    "a part that is there twice": ("(2, 3)", f"a = {call('next', 'x', shape='(2, 3)')}\nreturn R.concat(a, a)", 1),
    "parts with strides for one that takes none": ("(3, 4, 5)", two_calls("(3, 4, 5)", 1), 2),
    "a part that one who takes no strides reads": (
        "(3, 4)",
        f"a, b = R.split(x, sections=(2, 2), axis=1)\nreturn {call('add', 'a', 'b', shape='(3, 2)')}",
        2,
    ),
    "an input reshaped for two, one of which takes no strides": (
        "(3, 4, 5)",
        f"""
a = R.reshape(x, shape=(3, 2, 10))
b = {call("next", "a", shape="(3, 2, 10)")}
return R.concat(a, b, axis=1)""",
        2,
    ),
    "an input with its axes in another order": ("(3, 4)", "return R.permute_dims(x, axes=(1, 0))", 1),
    "an input reshaped": ("(3, 4)", "return R.reshape(x, shape=(12,))", 1),
    "a broadcast": ("(1, 4)", f"a = R.broadcast_to(x, shape=(3, 4))\nreturn {call('next', 'a', shape='(3, 4)')}", 1),
    "every second row": (
        "(4, 3)",
        f"""
a = R.strided_slice(x, axes=(0,), begin=(0,), end=(4,), strides=(2,))
return {call("next", "a", shape="(2, 3)")}""",
        1,
    ),
}


@pytest.mark.parametrize("case", COPIED)
def test_what_is_copied(case: str) -> None:
    shape, body, count = COPIED[case]
    source = module(f"x: {t(shape)}", body)
    assert num_copies(program(source)) == count
    x = ramp(*eval(shape))
    executable = Executable(without_views(source), source.attrs[EXTERNAL_MODULES], {})
    np.testing.assert_array_equal(run(source, x), VirtualMachine(executable)["main"](x))


def test_a_concat_along_axes_whose_sizes_only_calls_prove() -> None:
    params = ", ".join(["x: " + t("(2, 'n-2', 3)"), "y: " + t("(2, 4, 3)")])
    joined = "(2, 'n+6', 3)"
    body = f"""
a = {call("next", "y", shape="(2, 4, 3)")}
b = R.concat(x, a, y, axis=1)
return {call("next", "b", shape=joined)}"""
    for traits, count in ((STRIDED, 2), (PLAIN, 3)):
        source = module(params, body, next=traits)
        assert num_copies(program(source)) == count
        x, y = ramp(2, 5, 3), ramp(2, 4, 3)
        np.testing.assert_array_equal(run(source, x, y), np.concatenate([x, y + 1, y], 1) + 1)


def test_a_concat_beside_a_broadcast_size() -> None:
    joined = "(4, 'broadcast(n+1, m)')"
    params = ", ".join(["x: " + t("(2, 'n+1')"), "y: " + t("('m',)")])
    body = f"""
a = {call("add", "x", "y", shape="(2, 'broadcast(n+1, m)')")}
b = R.concat(a, a, axis=0)
return {call("next", "b", shape=joined)}"""
    x, y = ramp(2, 5), ramp(1)
    np.testing.assert_array_equal(run(module(params, body), x, y), np.concatenate([x + y, x + y]) + 1)


def test_parts_of_which_several_have_a_size_that_only_calls_prove() -> None:
    params = ", ".join(["x: " + t("('n-2', 3)"), "y: " + t("('n', 3)")])
    source = module(params, "return R.concat(x, y, x, axis=0)")
    x, y = ramp(3, 3), ramp(5, 3)
    np.testing.assert_array_equal(run(source, x, y), np.concatenate([x, y, x]))


@pytest.mark.parametrize("traits", [PLAIN, STRIDED])
def test_a_slice_across_parts_of_what_is_joined(traits: CallTraits) -> None:
    """The slice's steps do not fit the parts, so the slice counts as a read of all parts."""
    body = f"""
a = {call("next", "x", shape="('n', 4, 2)")}
b = R.concat(x, a, x, axis=1)
c = R.strided_slice(b, axes=(1,), begin=(0,), end=(5,), strides=(3,))
return {call("next", "c", shape="('n', 2, 2)")}"""
    source = module("x: " + t("('n', 4, 2)"), body, next=traits)
    x = ramp(3, 4, 2)
    np.testing.assert_array_equal(run(source, x), np.concatenate([x, x + 1, x], 1)[:, :5:3] + 1)


def test_a_slice_across_a_part_that_is_read_before_the_others_are_made() -> None:
    body = f"""
a = {call("next", "x", shape="(2, 8, 2)")}
c = R.strided_slice(a, axes=(1,), begin=(0,), end=(7,), strides=(3,))
d = {call("next", "c", shape="(2, 3, 2)")}
b = R.concat(a, d, axis=1)
return b"""
    source = module("x: " + t("(2, 8, 2)"), body, next=STRIDED)
    x = ramp(2, 8, 2)
    np.testing.assert_array_equal(run(source, x), np.concatenate([x + 1, x[:, :7:3] + 2], 1))


def test_listing() -> None:
    shape = "('n', 2, 6)"
    body = f"""
a = {call("next", "x", shape=shape)}
b = {call("next", "a", shape=shape)}
c = R.concat(a, b, axis=1)
d = R.reshape(c, shape=('n', 24))
return {call("other", "d", shape="('n', 24)")}"""
    lowered = program(module(f"x: {t(shape)}", body, next=STRIDED, other=PLAIN))
    assert disassemble(lowered) == (
        "extern next\n"
        "extern other\n"
        "\n"
        "function main(p0 x: float32[n, 2, 6]) -> (o0 output0: float32[n, 24])\n"
        "    storage 0: 96*n bytes\n"
        "    t0 = float32[n, 4, 6] at storage 0 + 0\n"
        "    w0 = float32[n, 2, 6] at t0 + 0 strides [24, 6, 1]\n"
        "    w1 = float32[n, 2, 6] at t0 + 48 strides [24, 6, 1]\n"
        "    w2 = float32[n, 24] at t0 + 0\n"
        "       0: call_dps_packed next(p0) -> w0\n"
        "       1: call_dps_packed next(w0) -> w1\n"
        "       2: call_dps_packed other(w2) -> o0\n"
        "       3: ret o0\n"
    )


def test_a_chain_in_place_needs_one_buffer_and_ends_in_the_result() -> None:
    names = ["x", *(f"v{index}" for index in range(6))]
    lines = [f"{new} = {call('next', old, shape='(16,)')}" for old, new in pairwise(names)]
    source = module(f"x: {t('(16,)')}", "\n".join([*lines, "return v5"]), next=IN_ITS_PLACE)
    lowered = program(source)
    assert lowered.functions[0].storages == ()
    assert [step.results for step in lowered.functions[0].code if isinstance(step, Call)] == [(1,)] * 6
    np.testing.assert_array_equal(run(source, ramp(16)), ramp(16) + 6)


def test_a_value_that_is_needed_later_keeps_its_place() -> None:
    body = f"""
a = {call("next", "x", shape="(16,)")}
b = R.reshape(a, shape=(4, 4))
c = {call("next", "a", shape="(16,)")}
d = {call("next", "b", shape="(4, 4)")}
return c, d"""
    source = module(f"x: {t('(16,)')}", body, next=IN_ITS_PLACE)
    first, second = run(source, ramp(16))
    np.testing.assert_array_equal(first, ramp(16) + 2)
    np.testing.assert_array_equal(second, (ramp(16) + 2).reshape(4, 4))


def test_views_that_would_need_a_larger_arena_are_copies() -> None:
    """A part of a hundredth would keep the whole alive during a chain of equally large buffers."""
    chain = [f"{new} = {call('next', old, shape='(100, 64)')}" for old, new in ("bc", "cd", "de")]
    body = "\n".join(
        [
            f"a = {call('next', 'x', shape='(100, 64)')}",
            "p, q = R.split(a, sections=(1, 99))",
            f"b = {call('next', 'x', shape='(100, 64)')}",
            *chain,
            f"r = {call('next', 'p', shape='(1, 64)')}",
            "return e, r",
        ]
    )
    source = module(f"x: {t('(100, 64)')}", body)
    lowered, plain = program(source), without_views(source)
    assert num_copies(lowered) > 0
    assert lowered.functions[0].arena_nbytes == plain.functions[0].arena_nbytes
    for have, want in zip(run(source, ramp(100, 64)), (ramp(100, 64) + 4, ramp(100, 64)[:1] + 2), strict=True):
        np.testing.assert_array_equal(have, want)


UNKNOWN: dict[str, tuple[str, str, str]] = {
    "an op that computes": ("(2, 3)", "return R.nn.relu(x)", "nn.relu"),
    "a slice along an axis of unknown size": (
        "('n', 3)",
        "return R.strided_slice(x, axes=(0,), begin=(1,), end=(2,), strides=(1,))",
        "strided_slice",
    ),
    "a slice backwards": (
        "(4, 3)",
        "return R.strided_slice(x, axes=(0,), begin=(3,), end=(0,), strides=(-1,))",
        "strided_slice",
    ),
    "a reshape that may not fit": ("('n', 3)", "return R.reshape(x, shape=(12,))", "reshape"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_has_no_code(case: str) -> None:
    shape, body, op = UNKNOWN[case]
    with pytest.raises(CodegenError) as caught:
        lower(module(f"x: {t(shape)}", body))
    assert str(caught.value) == (
        f"function `main`, op `{op}` (`y`): has no code: no backend compiled the op. "
        "Give `RunCodegen` a backend for every op, or build with the host as the last backend."
    )
