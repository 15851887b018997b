"""Variants of recurrent layers beyond the IR's ops, against ONNX Runtime: peepholes, clipping, other activations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule

from core.tests.frontend.conftest import Case, build_node_model, run_onnxruntime

Array = npt.NDArray[Any]
Cases = list[dict[str, Any]]

_LAYERS = {"GRU": (3, 1), "LSTM": (4, 2), "RNN": (1, 1)}
"""Numbers of gates and states."""
_PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "Elu", "HardSigmoid", "LeakyRelu")
_WITH_ALPHA = ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu")
_WITH_BETA = ("Affine", "HardSigmoid", "ScaledTanh")
_STEPS, _BATCH, _INPUTS, _HIDDEN = 5, 3, 4, 2


def _layer(op_type: str, direction: str = "forward", *, steps: int = _STEPS, **options: Any) -> dict[str, Any]:
    """Return a case of a layer; options with capital letters choose inputs, the others are attributes."""
    num_gates, num_states = _LAYERS[op_type]
    count = 2 if direction == "bidirectional" else 1
    generator = np.random.default_rng(7)
    dtype = options.pop("D", "float32")

    def floats(*shape: int) -> Array:
        return generator.uniform(-1, 1, shape).astype(dtype)

    rows = num_gates * _HIDDEN
    inputs: list[Array | None] = [
        floats(steps, _BATCH, _INPUTS),
        floats(count, rows, _INPUTS),
        floats(count, rows, _HIDDEN),
        floats(count, 2 * rows),
        np.array([steps, 1, steps - 2], np.int32) if options.pop("L", False) else None,
        *(floats(count, _BATCH, _HIDDEN) for _ in range(num_states)),
    ]
    if options.pop("P", False):
        inputs.append(floats(count, 3 * _HIDDEN))
    for name in ("activations", "activation_alpha", "activation_beta"):
        if name in options:
            options[name] = list(options[name]) * count
    attrs = {"hidden_size": _HIDDEN, "direction": direction, **options}
    return {"inputs": inputs, "attrs": attrs, "num_outputs": 1 + num_states, "exact": False, "terms": 16}


def _directions() -> Iterator[tuple[str, bool]]:
    return itertools.product(("forward", "reverse", "bidirectional"), (False, True))


def _lstm(opset: int) -> Cases:
    cases = []
    other = {"activations": ["HardSigmoid", "ScaledTanh", "LeakyRelu"], "activation_alpha": [0.3, 0.7, 0.2]}
    for (direction, has_lengths), has_peepholes in itertools.product(_directions(), (False, True)):
        inputs = {"L": has_lengths, "P": has_peepholes}
        variants: tuple[dict[str, Any], ...] = (
            {"clip": 0.5},
            {"input_forget": 1},
            {"P": True},
            {**other, "activation_beta": [0.4, 0.6]},
        )
        cases += [_layer("LSTM", direction, **{**inputs, **variant}) for variant in variants]
    return cases


def _gru(opset: int) -> Cases:
    cases = []
    for (direction, has_lengths), linear in itertools.product(_directions(), (0, 1)):
        shared = {"L": has_lengths, "linear_before_reset": linear}
        cases.append(_layer("GRU", direction, clip=0.5, **shared))
        cases.append(_layer("GRU", direction, activations=["Sigmoid", "Softsign"], **shared))
    return cases


def _rnn(opset: int) -> Cases:
    cases = []
    for direction, has_lengths in _directions():
        cases += [_layer("RNN", direction, activations=[name], L=has_lengths) for name in _PLAIN]
        cases.append(_layer("RNN", direction, activations=["Relu"], L=has_lengths, clip=0.3))
    for name in _WITH_ALPHA:
        beta: dict[str, Any] = {"activation_beta": [0.2]} if name in _WITH_BETA else {}
        cases.append(_layer("RNN", activations=[name], activation_alpha=[0.3], **beta))
    mixed = _layer("RNN", "bidirectional")
    mixed["attrs"]["activations"] = ["Relu", "Sigmoid"]
    return [*cases, mixed]


_CASES: dict[str, Callable[[int], Cases]] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}


def test_same_as_onnxruntime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    for case in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**case))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", sorted(_LAYERS))
def test_many_steps_are_a_loop(
    op_type: str, direction: str, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    """Also if all sizes but the sizes of weights are unknown."""
    case = make_case(**{**_layer(op_type, direction, steps=40, clip=0.5, L=True), "constants": (1, 2, 3)})
    for dynamic in (False, True):
        module = check_case(op_type, 22, case, dynamic=dynamic)
        assert [binding.op.name for binding in module["main"].bindings].count("loop") == 1 + ("bi" in direction)


def test_batch_first() -> None:
    """ONNX Runtime lacks the layout: the same layer with steps first is the oracle."""
    case = _layer("LSTM", "bidirectional", P=True)
    first = build_node_model("LSTM", 22, Case(**case))
    arrays = case["inputs"]
    every, *last = run_onnxruntime(first, {f"i{i}": array for i, array in enumerate(arrays) if array is not None})
    turned = [array.transpose(1, 0, 2) if i in (0, 5, 6) else array for i, array in enumerate(arrays)]
    model = build_node_model("LSTM", 22, Case(**{**case, "inputs": turned, "attrs": {**case["attrs"], "layout": 1}}))
    results = VirtualMachine(build(from_onnx(model), []))["main"](*(array for array in turned if array is not None))
    expected = [every.transpose(2, 0, 1, 3), *(state.transpose(1, 0, 2) for state in last)]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", sorted(_LAYERS))
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(op_type: str, dtype: str) -> None:
    """Clipping without effect gives the results of the layer's op."""
    results: list[Any] = []
    variants: tuple[dict[str, Any], ...] = ({}, {"clip": 1e3})
    for clip in variants:
        case = _layer(op_type, D=dtype, L=True, **clip)
        run = VirtualMachine(build(from_onnx(build_node_model(op_type, 22, Case(**case))), []))["main"]
        results.append(run(*(array for array in case["inputs"] if array is not None)))
    for plain, stepwise in zip(*results, strict=True):
        first, second = np.asarray(plain), np.asarray(stepwise)
        assert first.dtype == second.dtype == np.dtype(dtype)
        np.testing.assert_allclose(second, first, rtol=0, atol=2**-7 if dtype == "float16" else 2**-48)


@pytest.mark.parametrize(
    ("op_type", "options", "problem"),
    [
        ("LSTM", {"clip": 0.0}, "attribute `clip` is too small; got 0.0, expected above 0"),
        (
            "GRU",
            {"activations": ["Sigmoid"]},
            "attribute `activations` has the wrong number of values; got Sigmoid, ex",
        ),
        ("RNN", {"activations": ["Cosine"]}, "has an unknown activation; got Cosine, expected one of affine, elu, "),
    ],
)
def test_errors(op_type: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(build_node_model(op_type, 22, Case(**_layer(op_type, **options))))
    assert problem in str(caught.value)


def test_weights_of_unknown_sizes(node_model: Callable[..., Any]) -> None:
    case = _layer("RNN", clip=1.0)
    del case["attrs"]["hidden_size"]
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model("RNN", 22, Case(**case), dynamic=True))
    assert "input 1 does not fit the number of gates and of states, or has an unknown size; got [" in str(caught.value)


def test_peepholes_of_the_wrong_shape() -> None:
    case = _layer("LSTM", P=True)
    case["inputs"][7] = case["inputs"][7][:, 1:]
    with pytest.raises(
        FrontendError, match=r"has peephole weights of the wrong shape; got \[1, 5\], expected \[1, 6\]"
    ):
        from_onnx(build_node_model("LSTM", 22, Case(**case)))
