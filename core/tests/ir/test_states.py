"""States in the IR: text, equality, laws, and passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from byoc_core import transform
from byoc_core.errors import IRError, VerifyError
from byoc_core.ir import (
    ConstantStore,
    IRModule,
    StateVariable,
    declare_states,
    parse_module,
    print_module,
    states_of,
    structurally_equal,
    verify,
)
from byoc_core.transform import BindParams, default_passes, pass_name

NAMES = '"input_names": ("x", "h"), "output_names": ("y", "g")'
LONG = np.arange(6, dtype=np.float32).reshape(2, 3)


def text(states: str, names: str = NAMES, past: str = "(2, 3)", added: str = "R.add(x, h)", rest: str = "") -> str:
    return f"""
@R.function
def main(x: R.Tensor((2, 3)), h: R.Tensor({past})):
    R.func_attr({{{names}, "states": {states}}})
    g = {added}
    y = R.nn.relu(g)
    return y, g
{rest}"""


def module(states: str = '(("h", "g"),)', **changes: str) -> IRModule:
    return parse_module(text(states, **changes))


def with_constant(array: object = LONG) -> IRModule:
    """Return a module with an initial constant."""
    parsed = parse_module(text("()"))
    constant = parsed.constants.add(np.asarray(array))
    states = [StateVariable("h", "g", initial=constant.digest)]
    return parsed.with_function(declare_states(parsed["main"], states))


def test_states_print_and_parse() -> None:
    first = verify(module())
    assert states_of(first["main"]) == (StateVariable("h", "g"),)
    assert '"states": (("h", "g"),)' in str(first)
    again = parse_module(str(first))
    assert structurally_equal(first, again)
    assert str(again) == str(first)
    assert not structurally_equal(first, module("()"))


@pytest.mark.parametrize("array", [LONG, np.zeros((2, 3), np.float32)])
def test_initial_constants_print_and_parse(array: object) -> None:
    first = verify(with_constant(array))
    assert "const0 = R.constant(" in print_module(first)
    store = ConstantStore()
    for constant in first.constants.values():
        store.add(constant)
    again = verify(parse_module(str(first), constants=store))
    assert structurally_equal(first, again)
    assert states_of(again["main"]) == states_of(first["main"])
    with pytest.raises(Exception, match="has no array"):
        parse_module(str(first))


def test_a_small_initial_constant_is_not_written_out() -> None:
    """Written out, the constant would be in no operand, and the parsed module would not hold the array."""
    parsed = parse_module("@R.function\ndef main(h: R.Tensor((2,))):\n    g = R.nn.relu(h)\n    return g\n")
    digest = parsed.constants.add(np.ones(2, np.float32)).digest
    first = parsed.with_function(declare_states(parsed["main"], [StateVariable("h", "output0", initial=digest)]))
    assert f'R.constant("{digest}"' in str(verify(first))
    verify(parse_module(str(first), constants=first.constants))


def test_declaring_states_names_inputs_and_outputs() -> None:
    plain = parse_module("@R.function\ndef main(h: R.Tensor((2,))):\n    g = R.nn.relu(h)\n    return g\n")["main"]
    declared = declare_states(plain, [StateVariable("h", "output0")])
    assert declared.attrs["input_names"] == ("h",)
    assert declared.attrs["output_names"] == ("output0",)
    assert "states" not in declare_states(plain, []).attrs


APART = """
@R.function
def main(x: R.Tensor((2, 3)), h: R.Tensor(("p", 3)), k: R.Tensor(("p", 3))):
    R.func_attr({"input_names": ("x", "h", "k"), "output_names": ("a", "b"), "states": (("h", "a", 0), ("k", "b", 0))})
    a = R.concat(h, x, axis=0)
    b = R.concat(k, x, x, axis=0)
    return a, b
"""


def two_states(shape: str, second: str, added: str) -> IRModule:
    """Return a module with a state of moving length `p` after a state of a shape."""
    return parse_module(f"""
@R.function
def main(x: R.Tensor(("n", 3)), k: R.Tensor({shape}), h: R.Tensor(("p", 3))):
    R.func_attr({{"input_names": ("x", "k", "h"), "output_names": ("a", "b"), "states": ({second}, ("h", "b", 0))}})
    a = {added}
    b = R.concat(h, x, axis=0)
    return a, b
""")


LAWS: dict[str, tuple[Callable[[], IRModule], str]] = {
    "another output": (
        lambda: module('(("h", "z"),)'),
        "function `main`: has no output `z`; expected y, g",
    ),
    "no names": (
        lambda: module(names='"output_names": ("y", "g")'),
        "function `main`: has states, but no explicit names of inputs; expected `input_names`",
    ),
    "repeated names": (
        lambda: module('(("h", "y"),)', names='"input_names": ("x", "h"), "output_names": ("y", "y")'),
        "function `main`: has states and repeated names of outputs: y",
    ),
    "an input in two states": (
        lambda: module('(("h", "g"), ("h", "y"))'),
        "function `main`: two states have the input `h`",
    ),
    "an output in two states": (
        lambda: module('(("h", "g"), ("x", "g"))'),
        "function `main`: two states have the output `g`",
    ),
    "another shape": (
        lambda: module(past="(1, 3)"),
        (
            "function `main`, state `h`: the output does not have the type of the input; "
            'got R.Tensor((2, 3), "float32"), expected R.Tensor((1, 3), "float32")'
        ),
    ),
    "a malformed state": (
        lambda: module('(("h",),)'),
        (
            "function `main`: a state is malformed; got ('h',), "
            "expected (input, output), (input, output, digest) or (input, output, axis)"
        ),
    ),
    "a missing axis": (
        lambda: module('(("h", "g", 2),)'),
        'function `main`, state `h`: has no axis 2; got R.Tensor((2, 3), "float32")',
    ),
    "sizes before a moving axis": (
        lambda: module('(("h", "g", 1),)', past='(2, "p")', added="R.concat(h, x, axis=1)"),
        (
            "function `main`, state `h`: has sizes other than 1 before the moving axis 1; "
            'got R.Tensor((2, "p"), "float32")'
        ),
    ),
    "a shorter output": (
        lambda: module('(("h", "g", 0),)', past='("p", 3)', added="R.nn.relu(x)"),
        (
            "function `main`, state `h`: may become shorter; "
            'got R.Tensor((2, 3), "float32"), expected R.Tensor(("p", 3), "float32")'
        ),
    ),
    "a length without a symbol": (
        lambda: module('(("h", "g", 0),)', added="R.concat(h, x, axis=0)"),
        'function `main`, state `h`: has no symbol as the size of the moving axis 0; got R.Tensor((2, 3), "float32")',
    ),
    "lengths growing apart": (
        lambda: parse_module(APART),
        "function `main`, state `k`: grows to another length than other states of p rows; got p+4, expected p+2",
    ),
    "a moving length of another state": (
        lambda: two_states('("p", 3)', '("k", "a")', "R.nn.relu(k)"),
        (
            "function `main`, state `k`: has the moving length p on an axis that does not move; "
            'got R.Tensor(("p", 3), "float32"). Use another symbol, or declare the axis as a moving length.'
        ),
    ),
    "a moving length on a later axis of another moving state": (
        lambda: two_states('("q", "p")', '("k", "a", 0)', "R.concat(k, k, axis=0)"),
        (
            "function `main`, state `k`: has the moving length p on an axis that does not move; "
            'got R.Tensor(("q", "p"), "float32"). Use another symbol, or declare the axis as a moving length.'
        ),
    ),
    "a size of the state alone": (
        lambda: module(past='("n", 3)', added="R.nn.relu(h)"),
        (
            "function `main`, state `h`: no input but the state determines the size n; a first call could not begin; "
            'got R.Tensor(("n", 3), "float32"). Add an input with the size n, or give the size a number.'
        ),
    ),
    "a batch of a moving state alone": (
        lambda: module('(("h", "g", 0),)', past='("p", "n")', added="R.concat(h, h, axis=0)"),
        (
            "function `main`, state `h`: no input but the state determines the size n; a first call could not begin; "
            'got R.Tensor(("p", "n"), "float32"). Add an input with the size n, or give the size a number.'
        ),
    ),
    "a missing constant": (
        lambda: module(f'(("h", "g", "{"0" * 64}"),)'),
        (
            "function `main`, state `h`: the initial constant is not in the store; "
            f'got {"0" * 16}, expected R.Tensor((2, 3), "float32")'
        ),
    ),
    "another type of the constant": (
        lambda: with_constant(LONG.astype(np.float64)),
        (
            "function `main`, state `h`: the initial constant has another type; "
            'got R.Tensor((2, 3), "float64"), expected R.Tensor((2, 3), "float32")'
        ),
    ),
    "a call": (
        lambda: module(rest="@R.function\ndef outer(x: R.Tensor((2, 3))):\n    a, b = main(x, x)\n    return a\n"),
        (
            "function `outer`, binding `a, b`: calls `main`, a function with states. "
            "Declare the states of the calling function, or inline the callee."
        ),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_each_law(law: str) -> None:
    make, message = LAWS[law]
    broken = make()
    with pytest.raises(VerifyError) as caught:
        verify(broken)
    first_line = str(caught.value).partition("\n")[0]
    assert first_line == message


def test_states_may_share_a_moving_length() -> None:
    verify(two_states('("p", 3)', '("k", "a", 0)', "R.concat(k, x, axis=0)"))


def test_a_moving_length_is_lawful() -> None:
    verify(module('(("h", "g", 0),)', past='("p", 3)', added="R.concat(h, x, axis=0)"))
    verify(
        parse_module(
            """
@R.function
def main(x: R.Tensor((1, "n", 3)), h: R.Tensor((1, "p", 3))):
    R.func_attr({"input_names": ("x", "h"), "output_names": ("g",), "states": (("h", "g", 1),)})
    g = R.concat(h, x, axis=1)
    return g
"""
        )
    )


def passes() -> list[transform.Pass]:
    found = [*default_passes()]
    named = (
        transform.Canonicalise,
        transform.CaptureSizes,
        transform.CopyDequantised,
        transform.EliminateCommonSubexpressions,
        transform.FoldBatchNorm,
        transform.FoldConstants,
        transform.FoldPad,
        transform.FoldScales,
        transform.FoldShapes,
        transform.HoistSeeds,
        transform.InlineCalls,
        transform.MoveTransposes,
        transform.RecogniseComposites,
        transform.RemoveDeadCode,
        transform.RemoveUnusedFunctions,
        transform.SelectIntegers,
        transform.Simplify,
        transform.TakeIntegers,
        transform.UniqueNames,
    )
    return [*found, *(kind() for kind in named)]


@pytest.mark.parametrize("run", passes(), ids=pass_name)
def test_no_pass_loses_a_state(run: Callable[[IRModule], IRModule]) -> None:
    """The state is returned unchanged by one branch of the rewrites: `h + 0`, `h * w` with constants, transposes."""
    before = verify(
        parse_module(
            """
@R.function
def main(x: R.Tensor(("n", 3)), h: R.Tensor(("n", 3)), p: R.Tensor(("p", 3))):
    R.func_attr({"input_names": ("x.1", "h.1", "p.1"), "output_names": ("y.1", "h.2", "p.2"),
                 "states": (("h.1", "h.2"), ("p.1", "p.2", 0))})
    zero = R.add(R.const([0.0], "float32"), R.const([0.0], "float32"))
    a = R.add(h, zero)
    t = R.permute_dims(a)
    u = R.permute_dims(t)
    b = R.add(x, h)
    y = R.add(b, a)
    q = R.concat(p, x, axis=0)
    return y, u, q
""".replace("R.add(R.const", "R.add(R.const")
        )
    )
    after = verify(run(before))
    assert states_of(after["main"]) == states_of(before["main"])
    assert after["main"].input_names == before["main"].input_names
    assert after["main"].output_names == before["main"].output_names
    assert after["main"].result_types == before["main"].result_types


def test_a_state_cannot_be_bound() -> None:
    with pytest.raises(IRError) as caught:
        BindParams({"h": LONG})(module())
    assert str(caught.value) == (
        "function `main`: parameter `h` is a state and cannot be bound. The initial value of a state may be a constant."
    )
    bound = verify(BindParams({"x": LONG})(module()))
    assert states_of(bound["main"]) == (StateVariable("h", "g"),)
