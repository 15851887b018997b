"""How IR prints."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import symbol
from byoc_core.ir import (
    Constant,
    ConstantStore,
    Function,
    FunctionBuilder,
    IRModule,
    ObjectType,
    OpRegistry,
    Var,
    binding_window,
    digest_of,
    parse_function,
    parse_module,
    print_function,
    print_module,
    tensor,
)


def conv_relu(ops: OpRegistry) -> IRModule:
    inner = FunctionBuilder("body", ops=ops)
    p = inner.param("p", tensor(("n", 4)))
    body = inner.finish(inner.emit("nn.relu", p))  # type: ignore[arg-type]
    fb = FunctionBuilder("main", ops=ops)
    x = fb.param("x", tensor(("n", 4)))
    weight = np.arange(4, dtype=np.float32).reshape(1, 4)
    y = fb.bind("add", [x, weight], {}, codegen="some", names=["y"]).result
    z = fb.emit("composite", y, name="some.relu", regions=[body], names=["z"])
    a, b = fb.emit("split", z, sections=[1, 3], axis=-1, names=["a", "b"])  # type: ignore[misc, arg-type]
    c = fb.emit("call_dps_packed", a, np.float32(2.0), symbol="f", out_types=[tensor(("n",), "int8")], names=["c"])
    return IRModule({"main": fb.finish(b, c, Codegen="some")}, fb.constants, {"note": "made\n"})  # type: ignore[arg-type]


WEIGHT = digest_of(np.arange(4, dtype=np.float32).reshape(1, 4))
PRINTED = f'''from byoc_core import script as R


@R.ir_module
class Module:
    R.module_attrs({{"note": 'made\\n'}})
    const0 = R.constant("{WEIGHT}", R.Tensor((1, 4), "float32"))

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> (R.Tensor(("n", 3), "float32"), R.Tensor(("n",), "int8")):
        R.func_attr({{"Codegen": "some"}})
        y = R.add(x, const0, codegen="some")
        @R.region
        def body(p: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            lv0 = R.nn.relu(p)
            return lv0
        z = R.composite("some.relu", (y,), regions=[body])
        a, b = R.split(z, sections=(1, 3), axis=-1)
        c = R.call_dps_packed("f", (a, R.const(2.0, "float32")), out_types=[R.Tensor(("n",), "int8")])
        return b, c
'''


def test_a_module_prints_as_python(ops: OpRegistry) -> None:
    module = conv_relu(ops)
    assert str(module) == PRINTED
    assert print_module(module) == PRINTED
    assert parse_module(PRINTED, ops, constants=module.constants) == module


def test_a_function_prints_with_its_constants(ops: OpRegistry) -> None:
    module = conv_relu(ops)
    text = print_function(module["main"], module.constants)
    assert text.splitlines()[:2] == [
        f'const0 = R.constant("{WEIGHT}", R.Tensor((1, 4), "float32"))',
        "@R.function",
    ]
    assert parse_function(text, ops, constants=module.constants) == module["main"]


def test_without_the_store_every_constant_is_cited(ops: OpRegistry) -> None:
    module = conv_relu(ops)
    text = print_function(module["main"])
    assert text.count("R.constant(") == 2
    assert parse_function(text, ops, constants=module.constants) == module["main"]


def test_comments_stand_behind_bindings_on_one_line(ops: OpRegistry) -> None:
    module = conv_relu(ops)
    first = module["main"].bindings[0]
    text = print_module(module, name="Explained", comments={id(first): "taken by\nsome"})
    assert '        y = R.add(x, const0, codegen="some")  # taken by some\n' in text
    assert "class Explained:\n" in text
    assert parse_module(text, ops, constants=module.constants) == module


class External:
    def __repr__(self) -> str:
        return "<module\nof some:"


def test_external_modules_are_comments(ops: OpRegistry) -> None:
    module = IRModule(attrs={"external_mods": (External(),)})
    assert str(module) == (
        "from byoc_core import script as R\n\n\n@R.ir_module\nclass Module:\n"
        "    # external module <module of some:\n    pass\n"
    )
    assert parse_module(str(module), ops) == module
    named = module.with_attrs(note=1)
    assert parse_module(str(named), ops) == named


def test_an_empty_module(ops: OpRegistry) -> None:
    assert str(IRModule()) == "from byoc_core import script as R\n\n\n@R.ir_module\nclass Module:\n    pass\n"
    assert parse_module(str(IRModule()), ops) == IRModule()


@pytest.mark.parametrize(
    ("hints", "names"),
    [
        (["x", "x", "x_1", "x"], "x, x_1, x_1_1, x_2"),
        (["class", "None", "match", "R", "self", "__debug__"], "class_, None_, match, R_, self_, __debug___"),
        (["", "1a", "a b", "é", "a\n"], "v, v1a, a_b, _, a_"),
        (["main", "const0", "const1"], "main_1, const0_1, const1"),
    ],
)
def test_names_are_made_valid_and_unique(hints: list[str], names: str, ops: OpRegistry) -> None:
    store = ConstantStore()
    big = store.add(np.zeros((3, 3)))
    params = tuple(Var(hint, tensor(())) for hint in hints)
    module = IRModule({"main": Function("main", params, (), (*params, big))}, store)
    assert f"        return {names}, const0\n" in str(module)
    assert parse_module(str(module), ops, constants=store) == module


def test_a_local_name_never_hides_a_constant_that_is_cited_later(ops: OpRegistry) -> None:
    store = ConstantStore()
    big = store.add(np.zeros((3, 3)))
    local = Var("const0", tensor((3, 3), "float64"))
    first = Function("first", (local,), (), (local,))
    second = Function("second", (local,), (), (big, local))
    module = IRModule({"first": first, "second": second}, store)
    assert parse_module(str(module), ops, constants=store) == module


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array(1.5, np.float32), 'R.const(1.5, "float32")'),
        (np.array([1, -2], np.int64), 'R.const([1, -2], "int64")'),
        (np.array(-0.0), 'R.const(-0.0, "float64")'),
        (np.array([True]), 'R.const([True], "bool")'),
        (np.array(0.1, np.float16), 'R.const(0.0999755859375, "float16")'),
        (np.array(2**64 - 1, np.uint64), 'R.const(18446744073709551615, "uint64")'),
        (np.array(float("nan")), "const0"),
        (np.array([1.0, float("inf")]), "const0"),
        (np.zeros(5), "const0"),
        (np.zeros(0), "const0"),
        (np.zeros((1, 1)), "const0"),
    ],
)
def test_small_finite_constants_are_written_out(array: npt.NDArray[np.generic], text: str, ops: OpRegistry) -> None:
    store = ConstantStore()
    module = IRModule({"main": Function("main", (), (), (store.add(array),))}, store)
    assert f"        return {text}\n" in str(module)
    again = parse_module(str(module), ops, constants=store)
    assert again == module
    assert {k: v.tobytes() for k, v in again.constants.items()} == {k: v.tobytes() for k, v in store.items()}


def test_objects_and_unknown_ranks(ops: OpRegistry) -> None:
    params = (Var("a", ObjectType('a"b\n')), Var("b", tensor(None)))
    module = IRModule({"main": Function("main", params, (), params)})
    assert 'def main(a: R.Object(\'a"b\\n\'), b: R.Tensor(None, "float32"))' in str(module)
    assert parse_module(str(module), ops) == module


def test_attributes_of_functions_keep_dimensions(ops: OpRegistry) -> None:
    attrs = {"size": 2 * symbol("n"), "text": "2*n", "both": (symbol("n"), "n", (), (1,)), "nan": float("nan")}
    module = IRModule({"main": Function("main", (), (), (), attrs)}, attrs=dict(attrs))
    line = '{"size": R.dim("2*n"), "text": "2*n", "both": (R.dim("n"), "n", (), (1,)), "nan": float("nan")}'
    assert f"        R.func_attr({line})\n        return\n" in str(module)
    assert parse_module(str(module), ops) == module


def test_defaults_are_left_out_and_look_alikes_are_not(ops: OpRegistry) -> None:
    fb = FunctionBuilder("main", ops=ops)
    x = fb.param("x", tensor((2,)))
    fb.emit("test.attributes", x, ratio=0.5, dim=1, dims=[])
    fb.emit("test.attributes", x, ratio=-0.5, dim="n", dims=["n", 2], ints=[], flag=True)
    text = print_function(fb.finish(x))
    assert "    lv0 = R.test.attributes(x)\n" in text
    assert '    lv1 = R.test.attributes(x, flag=True, ratio=-0.5, ints=(), dim="n", dims=("n", 2))\n' in text


def test_the_window_marks_the_guilty_line(ops: OpRegistry) -> None:
    fb = FunctionBuilder("main", ops=ops)
    x = fb.param("x", tensor((2,)))
    for _ in range(9):
        x = fb.emit("nn.relu", x)  # type: ignore[assignment]
    function = fb.finish(x)
    assert binding_window(function, function.bindings[5], context=1) == (
        '  def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n'
        "      ...\n"
        "      lv4 = R.nn.relu(lv3)\n"
        ">     lv5 = R.nn.relu(lv4)\n"
        "      lv6 = R.nn.relu(lv5)"
    )
    assert binding_window(function, None, context=1) == (
        '  @R.function\n> def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n'
        "      lv0 = R.nn.relu(x)"
    )


def test_a_constant_in_no_store_is_cited(weight: Constant) -> None:
    text = print_function(Function("main", (), (), (weight,)), ConstantStore())
    assert text.startswith(f'const0 = R.constant("{"0" * 64}", R.Tensor((2,), "float32"))\n')
