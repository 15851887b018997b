"""States from pairs of inputs and outputs: fixed shapes, moving lengths, axes moved to the front, names, and errors."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.errors import IRError
from byoc_core.ir import IRModule, StateVariable, states_of, verify
from byoc_core.transform import KeepStates, detect_states, evaluate_function

CACHE = """
@R.function
def main(x: R.Tensor(("b", 2, "n", 3)), past: R.Tensor(("b", 2, "p", 3))):
    R.func_attr({"input_names": ("x", "past_key"), "output_names": ("y", "present_key")})
    present = R.concat(past, x, axis=2)
    y = R.sum(present, axis=(2,))
    return y, present
"""


def test_a_pair_of_equal_shapes() -> None:
    module = parse("@R.function\ndef main(h: R.Tensor((2,))):\n    g = R.nn.relu(h)\n    return g\n")
    kept = verify(KeepStates([("h", "output0")])(module))
    assert states_of(kept["main"]) == (StateVariable("h", "output0"),)
    assert KeepStates([])(module) is module


def test_a_moving_axis_goes_to_the_front() -> None:
    kept = verify(KeepStates([("past_key", "present_key")])(parse(CACHE)))
    assert states_of(kept["main"]) == (StateVariable("past_key", "present_key", axis=0),)
    body = [line.strip() for line in str(kept).splitlines() if " = R." in line]
    assert body == [
        "past_1 = R.permute_dims(past, axes=(1, 2, 0, 3))",
        "past_rows = R.permute_dims(x, axes=(2, 0, 1, 3))",
        "past_2 = R.concat(past, past_rows)",
        "present = R.permute_dims(past_2, axes=(1, 2, 0, 3))",
        "y = R.sum(present, axis=(2,))",
    ]


def test_an_axis_behind_sizes_of_one_stays() -> None:
    module = parse(CACHE.replace('"b", 2,', "1, 1,"))
    kept = verify(KeepStates([("past_key", "present_key")])(module))
    assert states_of(kept["main"]) == (StateVariable("past_key", "present_key", axis=2),)
    assert kept["main"].bindings == module["main"].bindings


@pytest.mark.parametrize(
    "present",
    [
        "R.concat(past, x, axis=2)",
        "R.concat(past, x, x, axis=-2)",
        "R.concat(x, past, axis=2)",
        "R.add(joined, R.const(1.0, 'float32'))",
    ],
)
def test_numbers_stay_with_all_forms_of_growth(present: str) -> None:
    joined = "    joined = R.concat(past, x, axis=2)\n" if "joined" in present else ""
    text = CACHE.replace("    present = R.concat(past, x, axis=2)\n", f"{joined}    present = {present}\n")
    sums = "    s = R.sum(past, axis=(2,))\n    t = R.sum(present, axis=(2,))\n    y = R.add(s, t)"
    text = text.replace("    y = R.sum(present, axis=(2,))", sums)
    module = verify(parse(text))
    vm = VirtualMachine(byoc_core.build(KeepStates([("past_key", "present_key")])(module), []))
    past: Any = np.zeros((2, 2, 0, 3), np.float32)
    for step, length in enumerate((3, 1, 1, 20)):
        x = np.arange(2 * 2 * length * 3, dtype=np.float32).reshape(2, 2, length, 3) + step
        expected, past = evaluate_function(module, "main", [x, past])
        np.testing.assert_allclose(vm["main"](x), expected, rtol=1e-5)
        np.testing.assert_array_equal(vm.state()["past_key"], np.transpose(past, (2, 0, 1, 3)))


ERRORS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "input": (
        CACHE,
        [("past", "present_key")],
        "function `main`: has no input `past` for a state; expected x, past_key. Did you mean 'past_key'?",
    ),
    "output": (
        CACHE,
        [("past_key", "present")],
        "function `main`: has no output `present` for a state; expected y, present_key. Did you mean 'present_key'?",
    ),
    "twice": (
        CACHE,
        [("past_key", "present_key")] * 2,
        "function `main`: input `past_key` is in two states",
    ),
    "rank": (
        CACHE,
        [("past_key", "y")],
        (
            "function `main`, state `past_key` -> `y`: has values of different or unknown ranks; "
            'got R.Tensor(("b", 2, 3), "float32"), expected R.Tensor(("b", 2, "p", 3), "float32")'
        ),
    ),
    "dtype": (
        CACHE.replace("R.sum(present, axis=(2,))", 'R.cast(present, dtype="float64")'),
        [("past_key", "y")],
        (
            "function `main`, state `past_key` -> `y`: has values of different dtypes; "
            'got R.Tensor(("b", 2, "n+p", 3), "float64"), expected R.Tensor(("b", 2, "p", 3), "float32")'
        ),
    ),
    "axes": (
        CACHE.replace("R.sum(present, axis=(2,))", "R.concat(present, present, axis=1)"),
        [("past_key", "y")],
        (
            "function `main`, state `past_key` -> `y`: changes its size along several axes: 1, 2; "
            'got R.Tensor(("b", 4, "n+p", 3), "float32"), expected R.Tensor(("b", 2, "p", 3), "float32")'
        ),
    ),
    "shorter": (
        CACHE.replace("R.sum(present, axis=(2,))", "R.nn.relu(x)"),
        [("past_key", "y")],
        (
            "function `main`, state `past_key` -> `y`: may become shorter along axis 2; "
            'got R.Tensor(("b", 2, "n", 3), "float32"), expected R.Tensor(("b", 2, "p", 3), "float32")'
        ),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_unfit_pairs(name: str) -> None:
    text, pairs, message = ERRORS[name]
    with pytest.raises(IRError) as caught:
        KeepStates(pairs)(parse(text))
    assert str(caught.value) == message


def test_a_kept_value_is_in_no_second_state() -> None:
    kept = KeepStates([("past_key", "present_key")])(parse(CACHE))
    for pair in (("past_key", "y"), ("x", "present_key")):
        with pytest.raises(IRError, match="is in two states"):
            KeepStates([pair])(kept)


def with_names(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> IRModule:
    params = ", ".join(f"a{number}: R.Tensor((2,))" for number in range(len(inputs)))
    results = ", ".join(f"a{number % len(inputs)}" for number in range(len(outputs)))
    attrs = f'R.func_attr({{"input_names": {inputs!r}, "output_names": {outputs!r}}})'
    return parse(f"@R.function\ndef main({params}):\n    {attrs}\n    return {results}\n")


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.11.decoder.value", "present.11.decoder.value"),
        ("past_key_values_0_key", "present_key_values_0_key"),
        ("past_0", "present_0"),
        ("past_key_0", "present_key_0"),
        ("past", "present"),
        ("cache.3", "new_cache.3"),
    ],
)
def test_names_of_exporters_are_detected(past: str, present: str) -> None:
    module = with_names(("input_ids", past, "past_lengths"), ("logits", present))
    assert detect_states(module["main"]) == ((past, present),)


def test_without_such_names_detection_is_an_error() -> None:
    with pytest.raises(IRError) as caught:
        detect_states(with_names(("x", "pasta_0"), ("y", "presently_0"))["main"])
    assert str(caught.value) == (
        "function `main`: has no inputs and outputs named like past and present values; "
        "got x, pasta_0 -> y, presently_0, expected names such as `past_key_values.0.key` and `present.0.key`. "
        "Name the pairs: states=[(input, output), ...]."
    )
