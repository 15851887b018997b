"""Script with small mistakes: the error suggests the intended word."""

from __future__ import annotations

from types import ModuleType

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import ByocError, IRTypeError, PatternError, ScriptError
from byoc_core.ir import IRModule, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import FuseOpsByPattern
from byoc_core.pattern import is_op, wildcard
from byoc_core.transform import evaluate_function
from hypothesis import given
from hypothesis import strategies as st

HEAD = "def main(x: R.Tensor((2, 8), 'float64'), w: R.Tensor((8, 8))):\n    "
DPS = '`R.call_dps_packed("symbol", (x, ...), out_types=[R.Tensor(...)])`'
VALUE = "is not a value; expected a name, `R.const` or `R.constant`."
BINDING = "is not a binding, a region or a return."
HINTS = {
    "y = R.add(x, 1.0)": (
        f'{VALUE} A number among operands is `R.const(1.0, "float64")`; attributes are passed by name.'
    ),
    "y = R.add(-2, x)": f'{VALUE} A number among operands is `R.const(-2, "float64")`; attributes are passed by name.',
    "y = R.split(x, 2)": f'{VALUE} A number among operands is `R.const(2, "float64")`; attributes are passed by name.',
    "y = x + w": f"{BINDING} Write the op in place of the operator: `R.add(...)`.",
    "y = -x": f"{BINDING} Write the op in place of the operator: `R.negative(...)`.",
    "x += w": f"{BINDING} Write the op in place of the operator, with a name for the result: `y = R.add(...)`.",
    "y = x[0]": f"{BINDING} Parts of a tensor are taken by `R.strided_slice` or `R.take`.",
    "y = 1.0": f'{BINDING} A constant is `R.const(values, "dtype")`.',
    "R.abs(x)": f"{BINDING} A result is bound to a name: `y = R.<op>(...)`.",
    "R.func_atr({})": f"{BINDING} Did you mean 'func_attr' or 'function'?",
    "if x: y = R.abs(x)": f"{BINDING} A branch is `R.if_(condition, ..., regions=[...])`.",
    "y = R.call_tir('f', (x,), R.Tensor((2,)))": (
        f"op `call_tir`: is not known. A function filling results passed as arguments is called by {DPS}."
    ),
    "y = R.extern('f')": (
        f"op `extern`: is not known. A function filling results passed as arguments is called by {DPS}, "
        'a function returning the results by `R.call_packed`; `R.extern("symbol")` may stand for the symbol.'
    ),
    "y = R.emit(x)": "op `emit`: is not known. A binding needs no keyword: write `y = R.<op>(...)`.",
    "y = R.conv2d(x, w)": "op `conv2d`: is not known. Did you mean 'R.nn.conv2d'?",
    "y = op.conv2d(x, w)": ("calls neither an op `R.<name>` nor a function of the module. Did you mean 'R.nn.conv2d'?"),
}


@pytest.mark.parametrize("line", HINTS)
def test_the_error_has_the_word_that_is_meant(line: str) -> None:
    with pytest.raises(ByocError) as caught:
        R.parse(HEAD + line + "\n    return y\n")
    assert str(caught.value).splitlines()[0].removeprefix("<script>, line 2: ") == HINTS[line]


@pytest.mark.parametrize("text", ["@R.func\ndef main(): pass", "class M:\n    @R.func\n    def main(): pass"])
def test_decorators_of_other_names(text: str) -> None:
    with pytest.raises(ScriptError, match=r"`R\.func` is not a decorator of script\. Did you mean 'function'\?"):
        R.parse(text)


def test_decorators_are_known_by_their_last_word() -> None:
    text = "@I.ir_module\nclass M:\n    @R.function(pure=True)\n    def main(x: R.Tensor((2,))):\n        return x\n"
    assert list(R.parse(text).functions) == ["main"]


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (R, "func", ". Did you mean 'function'?"),
        (R, "call_tir", f". A function filling results passed as arguments is called by {DPS}."),
        (R, "no_such_word", ""),
        (R, "__no_such__", ""),
        (byoc_core.transform, "FoldConstnts", ". Did you mean 'FoldConstants'?"),
        (byoc_core.transform, "no_such_pass", ""),
        (byoc_core.transform, "__no_such__", ""),
    ],
)
def test_names_that_a_module_has_not(module: ModuleType, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value).startswith(f"module {module.__name__!r} has no attribute {name!r}{hint}")


def test_a_pair_in_place_of_a_composite_pattern() -> None:
    pair = ("toy.add", is_op("add")(wildcard(), wildcard()))
    with pytest.raises(PatternError) as caught:
        FuseOpsByPattern([pair])  # type: ignore[list-item]
    assert str(caught.value) == (
        "pattern 0: is not a composite pattern; got tuple, expected CompositePattern. "
        "Write `CompositePattern('toy.add', pattern, check)`."
    )


# -- split -------------------------------------------------------------------------------------------------------------


def parts(text: str, x: np.ndarray) -> list[np.ndarray]:
    shape = ", ".join(map(str, x.shape))
    given = f"x: R.Tensor(({shape},), 'float64')"
    for count in range(1, 10):
        names = [f"y{index}" for index in range(count)]
        try:
            module = R.parse(
                f"def main({given}):\n    {', '.join(names)} = R.split(x, {text})\n    return {', '.join(names)}\n"
            )
        except ScriptError as error:
            if "names, but" not in str(error):
                raise
            continue
        assert R.parse(str(module)) == module
        return [np.asarray(value) for value in evaluate_function(module, "main", [x])]
    raise AssertionError(text)


@given(st.data())
def test_counts_and_indices_split_as_numpy_does(data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from([0, 1, -1]))
    count, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    x = np.arange(3.0 * count * size).reshape((count * size, 3) if axis == 0 else (3, count * size))
    expected = np.split(x, count, axis=axis)
    for name in ("sections", "indices_or_sections"):
        for found, part in zip(parts(f"{name}={count}, axis={axis}", x), expected, strict=True):
            np.testing.assert_array_equal(found, part)
    indices = sorted(data.draw(st.lists(st.integers(0, count * size), max_size=4)))
    expected = np.split(x, indices, axis=axis)
    for found, part in zip(parts(f"indices_or_sections={indices}, axis={axis}", x), expected, strict=True):
        np.testing.assert_array_equal(found, part)
    sizes = [part.shape[axis] for part in expected]
    for found, part in zip(parts(f"sections={sizes}, axis={axis}", x), expected, strict=True):
        np.testing.assert_array_equal(found, part)


def test_the_builder_takes_counts_and_symbolic_sizes() -> None:
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor(("2*n", 6)))
    halves = builder.emit("split", x, sections=2)
    assert isinstance(halves, tuple)
    assert [str(part.type) for part in halves] == [str(tensor(("n", 6)))] * 2
    function = builder.finish(*halves)
    assert R.parse(str(IRModule({"main": function}))) == IRModule({"main": function})


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            "sections=(2, 6)",
            (
                "op `split`: attribute `sections` sums to 8; got (2, 6), expected 6, the size of axis 0. "
                "`sections` are sizes; to cut at indices write `indices_or_sections=(2, 6)`."
            ),
        ),
        (
            "sections=4",
            (
                "op `split`: attribute `sections` is 4, and the size of the axis is 6; "
                "expected a number of equal parts, or the sizes of the parts"
            ),
        ),
        (
            "sections=0",
            (
                "op `split`: attribute `sections` is 0, and the size of the axis is 6; "
                "expected a number of equal parts, or the sizes of the parts"
            ),
        ),
        (
            "indices_or_sections=(4, 2)",
            "op `split`: attribute `indices_or_sections` does not rise from 0 to 6, the size of the axis; got (4, 2)",
        ),
        (
            "indices_or_sections='2'",
            (
                "op `split`: attribute `indices_or_sections` is neither a number nor a list of indices; got '2', "
                "expected a number of equal parts, or indices"
            ),
        ),
        (
            "indices_or_sections=2, sections=(3, 3)",
            "op `split`: has both `sections` and `indices_or_sections`; expected a single attribute",
        ),
    ],
)
def test_splits_that_do_not_fit(attrs: str, message: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        R.parse(f"def main(x: R.Tensor((6,))):\n    y, z = R.split(x, {attrs})\n    return y\n")
    assert str(caught.value).splitlines()[0] == message
