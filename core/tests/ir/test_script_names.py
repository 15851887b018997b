"""Names in script are kept: parsed, printed, compiled, saved, loaded and run."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import IRModule
from byoc_core.ir.output_names import choose_output_names, name_outputs

CLASSIFIER = R.parse("""
@R.ir_module
class Classifier:
    @R.function
    def scale(v: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        doubled = R.add(v, v)
        return doubled

    @R.function
    def main(image: R.Tensor(("n", 8), "float32"), weight: R.Tensor((8, 8), "float32")):
        hidden = R.matmul(image, weight)
        scaled = scale(hidden)
        same = R.reshape(scaled, shape=("n", 8))
        scores = R.nn.softmax(same)
        return scores, same
""")


def names_of(module: IRModule) -> dict[str, list[str]]:
    return {
        name: [*function.input_names, *(result.name for binding in function.bindings for result in binding.results)]
        for name, function in module.functions.items()
    }


NAMES = {"scale": ["v", "doubled"], "main": ["image", "weight", "hidden", "scaled", "same", "scores"]}


def test_a_class_prints_and_parses_with_all_its_names() -> None:
    text = str(CLASSIFIER)
    assert "\nclass Classifier:\n" in text
    again = byoc_core.parse(text)
    assert (names_of(CLASSIFIER), names_of(again)) == (NAMES, NAMES)
    assert (again.name, str(again)) == ("Classifier", text)


def test_a_decorated_class_keeps_its_name() -> None:
    @R.ir_module
    class Tiny:
        @R.function
        def main(x: R.Tensor((2,))):  # type: ignore[no-untyped-def, valid-type] # noqa: N805
            return x

    assert Tiny.name == "Tiny"  # type: ignore[attr-defined]


def test_the_name_of_a_module_does_not_count_and_is_made_valid() -> None:
    other = byoc_core.parse(str(CLASSIFIER).replace("class Classifier", "class Other"))
    assert other == CLASSIFIER
    assert hash(other) == hash(CLASSIFIER)
    assert byoc_core.parse("def main(x: R.Tensor((2,))):\n    return x").name == "Module"
    odd = byoc_core.ir.IRModule(name="an odd name")
    assert byoc_core.parse(str(odd)).name == "an_odd_name"


def test_passes_and_partition_keep_the_name_of_the_module() -> None:
    explanation = byoc_core.explain(CLASSIFIER, [])
    assert "\nclass Classifier:\n" in explanation.to_script()
    assert byoc_core.partition(CLASSIFIER, ["host"]).name == "Classifier"


def test_outputs_are_named_as_the_values_returned_whatever_passes_put_there(tmp_path: Path) -> None:
    executable = byoc_core.build(CLASSIFIER, [])
    executable.save(tmp_path / "m.byoc")
    for made in (executable, byoc_core.load(tmp_path / "m.byoc")):
        signature = made.signature("main")
        assert [spec.name for spec in signature.inputs] == ["image", "weight"]
        assert [spec.name for spec in signature.outputs] == ["scores", "same"]
        machine = byoc_core.VirtualMachine(made)
        image, weight = np.ones((3, 8), np.float32), np.eye(8, dtype=np.float32)
        scores = np.empty((3, 8), np.float32)
        machine.run("main", {"image": image, "weight": weight}, out={"scores": scores})
        np.testing.assert_array_equal(scores, np.full((3, 8), 0.125, np.float32))
    assert [spec.name for spec in byoc_core.inspect(tmp_path / "m.byoc").functions["main"].outputs] == [
        "scores",
        "same",
    ]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["y"], ("y",)),
        (["lv0"], ("output0",)),
        (["gv", "lv", "lv12", "gvx"], ("output0", "output1", "output2", "gvx")),
        ([None, "y"], ("output0", "y")),
        (["y", "y", "z"], ("output0", "output1", "z")),
        (["output1", "lv0"], ("output0", "output1")),
        (["output0", "x"], ("output0", "x")),
        ([], ()),
    ],
)
def test_values_without_a_name_of_their_own_get_numbers(names: list[str | None], chosen: tuple[str, ...]) -> None:
    assert choose_output_names(names) == chosen


def test_names_that_a_function_states_go_before_those_of_values() -> None:
    text = (
        'def main(x: R.Tensor((2,))):\n    R.func_attr({"output_names": ("out",)})\n    y = R.nn.relu(x)\n    return y'
    )
    written = byoc_core.parse(text)
    assert name_outputs(written, written) is written
    plain = byoc_core.parse("def main(x: R.Tensor((2,))):\n    lv0 = R.nn.relu(x)\n    return lv0")
    assert name_outputs(plain, plain) is plain
    assert name_outputs(plain, written.with_functions({})) is plain
