"""Script in users' style: decorated classes and strings."""

# mypy: disable-error-code="valid-type,no-untyped-def,name-defined"

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.dims import symbol
from byoc_core.errors import ScriptError
from byoc_core.ir import IRModule, ObjectType, OpRegistry, tensor, verify
from byoc_core.ops import default_ops

pytestmark = pytest.mark.interpreter


@R.ir_module
class Example:
    R.module_attrs({"note": "text", "size": R.dim("2*n")})

    @R.function
    def scale(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(("n", 4), "float32"):  # noqa: N805
        R.func_attr({"Codegen": "ccompiler", "global_symbol": "scale_lib"})
        with R.dataflow():
            lv0 = R.multiply(x, y)
            gv0: R.Tensor(("n", 4), "float32") = R.add(lv0, R.const([1.0], "float32"))
            R.output(gv0)
        return gv0

    @R.function
    def main(x: R.Tensor(("n", 4)), kind: R.Object("text")):  # noqa: N805
        lv0 = scale(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))  # noqa: F821

        @R.region
        def body(p: R.Tensor(("n", 4))):
            q = R.exp(p)
            return q  # noqa: RET504

        lv1 = R.composite("some.exp", (lv0,), regions=[body])
        raise_is_never_reached = R.call_packed("print", (lv1,), out_types=[R.Tensor(("k",), "int64")])
        return lv1, raise_is_never_reached, kind


MODULE = cast("IRModule", Example)
LINE = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line == "class Example:") - 1


def test_a_decorated_class_is_a_module() -> None:
    module = MODULE
    assert isinstance(module, IRModule)
    verify(module)
    assert list(module.functions) == ["scale", "main"]
    assert module["scale"].attrs == {"Codegen": "ccompiler", "global_symbol": "scale_lib"}
    assert module.attrs == {"note": "text", "size": 2 * symbol("n")}
    assert [b.op.name for b in module["main"].walk()] == ["call", "exp", "composite", "call_packed"]
    assert R.parse(str(module)) == module


def test_locations_are_those_of_the_file() -> None:
    location = MODULE["scale"].bindings[0].location
    assert location is not None
    assert location.source == __file__
    assert location.name == f"line {LINE + 8}"


def test_the_line_of_a_mistake_is_that_of_the_file() -> None:
    with pytest.raises(ScriptError) as caught:

        @R.ir_module
        class Wrong:
            @R.function
            def main(x: R.Tensor((2,))):  # noqa: N805
                y = R.exp(x)  # noqa: F841
                return z  # noqa: F821

    number = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "return z  #" in line)
    first, *window = str(caught.value).splitlines()
    assert first == f"{__file__}, line {number}: `z` is not defined"
    assert next(line for line in window if line.startswith(">")).startswith(f"> {number:4} |         return z")


def test_a_class_without_source() -> None:
    with pytest.raises(ScriptError) as caught:
        R.ir_module(type("Made", (), {"__module__": "no.such.module"}))
    assert str(caught.value).startswith("class `Made`: the source cannot be found. ")


def test_parse_takes_ops_and_constants(ops_of_two: OpRegistry) -> None:
    text = "def main(x: R.Tensor((2,))):\n    y = R.exp(x)\n    return y\n"
    assert R.parse(text, ops=ops_of_two) == R.parse(text)
    with pytest.raises(Exception, match="op `exp`: is not known"):
        R.parse(text, ops=OpRegistry())
    big = np.arange(9.0)
    module = R.parse("def main(): return R.const([0.0, 1.0], 'float64')")
    constant = module.constants
    assert len(constant) == 1
    store = IRModule().constants
    cited = store.add(big)
    text = f'def main(): return R.constant("{cited.digest}", {cited.type})'
    assert R.parse(text, constants=store)["main"].results == (cited,)


@pytest.fixture
def ops_of_two() -> OpRegistry:
    known = default_ops()
    return OpRegistry([known["exp"], known["add"]])


def test_decorators_and_types_by_themselves() -> None:
    def plain() -> None: ...

    assert R.function(plain) is plain
    assert R.region(plain) is plain
    assert R.Tensor(("n", 2), "int8") == tensor(("n", 2), "int8")
    assert R.Tensor(None) == tensor(None)
    assert R.Object("list") == ObjectType("list")
    assert R.dim("n+1") == symbol("n") + 1


def test_a_class_body_that_python_runs_may_cite_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from byoc_core import script as R\n\n\n@R.ir_module\nclass Cited:\n"
        f'    w = R.constant("{"ab" * 32}", R.Tensor((2,), "float32"))\n\n'
        "    @R.function\n    def main():\n        return w\n"
    )
    (tmp_path / "cited_by_class.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ScriptError) as caught:
        __import__("cited_by_class")
    sys.modules.pop("cited_by_class", None)
    first = str(caught.value).splitlines()[0]
    path = tmp_path / "cited_by_class.py"
    assert first == f"{path}, line 6: constant abababababababab... has no array. Pass the array in `constants=`."


def test_every_name_that_script_exports_exists() -> None:
    for name in R.__all__:
        assert inspect.getdoc(getattr(R, name))
