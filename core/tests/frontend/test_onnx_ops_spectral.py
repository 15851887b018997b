"""Fourier transforms, mel bands and determinants, against ONNX Runtime and numpy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import ByocError, ExecutionError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import Constant, IRModule
from byoc_core.transform import FoldConstants
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from core.tests.frontend.conftest import Case, build_node_model, run_onnxruntime

Cases = list[dict[str, Any]]
Array = npt.NDArray[Any]

_UNITS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def _case(*inputs: npt.ArrayLike | None, constants: Collection[int] = (), terms: float = 1.0, **attrs: object) -> Any:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "exact": False, "terms": terms}


def _noise(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def _dft(opset: int) -> Cases:
    cases = []
    for dtype in ("float32", "float64"):
        for axis in (0, 1, -2):
            for count in (None, 1, 4, 7, 16):
                real, pairs = _noise(5, 10, 6, 1, dtype=dtype), _noise(5, 10, 6, 2, dtype=dtype)
                signals = [(real, {}), (real, {"onesided": 1}), (pairs, {}), (pairs, {"inverse": 1})]
                for signal, attrs in signals:
                    length = None if count is None else np.array(count)
                    if opset < 20:
                        cases.append(_case(signal, length, constants=(1,), terms=40, axis=axis, **attrs))
                    else:
                        cases.append(_case(signal, length, np.array(axis), constants=(1, 2), terms=40, **attrs))
    return cases


def _stft(opset: int) -> Cases:
    window = np.hanning(8).astype("float32") + np.float32(0.1)
    cases = []
    for constants in ((1, 2, 3), (1, 3), ()):
        for step in (1, 3, 5):
            arguments = np.array(step), window, np.array(8)
            cases += [
                _case(_noise(2, 30, 1), *arguments, constants=constants, terms=40),
                _case(_noise(2, 30, 1), *arguments, constants=constants, terms=40, onesided=0),
                _case(_noise(2, 30, 2), *arguments, constants=constants, terms=40, onesided=0),
                _case(_noise(2, 30, 1), np.array(step), None, np.array(7), constants=constants, terms=40),
                _case(_noise(2, 30, 1, dtype="float64"), np.array(step), window.astype("float64"), constants=constants),
            ]
    return [*cases, _case(_noise(2, 30), np.array(4), window, constants=(1, 2), terms=40)]


def _mel_weight_matrix(opset: int) -> Cases:
    def numbers(bands: int, length: int, rate: int, low: float, high: float) -> list[Array]:
        return [np.array(bands), np.array(length), np.array(rate), np.float32(low), np.float32(high)]  # type: ignore[list-item]

    settings = [(8, 16, 8192, 0, 4096), (40, 512, 16000, 20, 7600), (80, 400, 16000, 0, 8000), (5, 31, 4000, 100, 1500)]
    dtypes = [{}, {"output_datatype": TensorProto.DOUBLE}, {"output_datatype": TensorProto.INT32}]
    known = [_case(*numbers(*own), constants=range(5), **attrs) for own in settings for attrs in dtypes]
    return [*known, *(_case(*numbers(*own)) for own in settings)]


def _det(opset: int) -> Cases:
    shapes: list[tuple[int, ...]] = [(3, 3), (4, 1, 1), (2, 3, 5, 5), (0, 2, 2)]
    singular = np.ones((2, 2), np.float32)
    return [*(_case(_noise(*shape), terms=16) for shape in shapes), _case(singular)]


_CASES: dict[str, Callable[[int], Cases]] = {
    "DFT": _dft,
    "Det": _det,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}


def test_same_as_onnxruntime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    for case in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**case))


@pytest.mark.parametrize("op_type", ["Det", "STFT"])
def test_dynamic_sizes(op_type: str, check_case: Callable[..., IRModule], make_case: Callable[..., Any]) -> None:
    for case in _CASES[op_type](22):
        check_case(op_type, 22, make_case(**case), dynamic=True)


def test_dynamic_sizes_of_transforms() -> None:
    """The last axis may be unknown: the kernel looks for real or complex numbers."""
    for case in _dft(20):
        signal, length, axis = case["inputs"]
        model = build_node_model("DFT", 20, Case(**case), dynamic=True)
        run = VirtualMachine(build(from_onnx(model), []))["main"]
        for array in (signal, signal[:3]):
            wanted = _reference(array, case["attrs"], int(axis), None if length is None else int(length))
            np.testing.assert_allclose(np.asarray(run(array)), wanted, rtol=0, atol=1e-4)


def _reference(x: Array, attrs: Any, axis: int, length: int | None) -> Array:
    numbers = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    inverse, onesided = attrs.get("inverse", 0), attrs.get("onesided", 0)
    function = (np.fft.irfft if inverse else np.fft.rfft) if onesided else (np.fft.ifft if inverse else np.fft.fft)
    result = function(
        numbers.astype(np.complex128 if inverse or x.shape[-1] == 2 else np.float64), length, axis % x.ndim
    )
    return np.stack([result] if inverse and onesided else [result.real, result.imag], axis=-1)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_transforms_of_any_kind_equal_numpy(data: st.DataObject) -> None:
    """Lengths and axes are constants, or inputs of the model."""
    draw = data.draw
    opset, dtype = draw(st.sampled_from([17, 20])), draw(st.sampled_from(list(_UNITS)))
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    inverse, onesided = draw(st.booleans()), draw(st.booleans())
    parts = 2 if inverse and onesided else 1 if onesided else draw(st.sampled_from([1, 2]))
    axis = draw(st.integers(0, len(shape) - 1)) - draw(st.sampled_from([0, len(shape) + 1]))
    length = draw(st.none() | st.integers(1, 9))
    if length is None and inverse and onesided and shape[axis % (len(shape) + 1)] < 2:
        length = 3
    x = _noise(*shape, parts, dtype=dtype, seed=draw(st.integers(0, 99)))
    attrs: dict[str, Any] = {"inverse": int(inverse), "onesided": int(onesided)}
    inputs = [x, None if length is None else np.array(length, draw(st.sampled_from(["int32", "int64"])))]
    if opset < 20:
        attrs["axis"] = axis
    else:
        inputs.append(np.array(axis))
    constants = draw(st.sampled_from([(), (1,), (2,), (1, 2)]))
    model = build_node_model("DFT", opset, Case(inputs, attrs, constants))
    given_arrays = [array for k, array in enumerate(inputs) if array is not None and k not in constants]
    result = np.asarray(VirtualMachine(build(from_onnx(model), []))["main"](*given_arrays))
    wanted = _reference(x, attrs, axis, length)
    assert (result.dtype, result.shape) == (np.dtype(dtype), wanted.shape)
    np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=4 * _UNITS[dtype], atol=60 * _UNITS[dtype])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_determinants_of_other_dtypes(dtype: str) -> None:
    x = _noise(3, 4, 4, dtype=dtype)
    result = np.asarray(VirtualMachine(build(from_onnx(build_node_model("Det", 22, Case([x]))), []))["main"](x))
    assert result.dtype == dtype
    wanted = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=0, atol=64 * _UNITS[dtype])


@pytest.mark.parametrize(
    ("window", "step", "length", "is_convolution"),
    [
        (True, True, True, True),
        (True, True, False, True),
        (False, True, True, False),
        (True, False, True, False),
    ],
)
def test_known_windows_and_steps_give_convolutions(
    window: bool, step: bool, length: bool, is_convolution: bool
) -> None:
    """Signals of any length and batch are transformed, with the numbers of ONNX Runtime."""
    waves = np.hamming(16).astype(np.float32)
    inputs = [_noise(1, 64, 1), np.array(4), waves, np.array(16) if length else None]
    constants = [k for k, is_known in ((1, step), (2, window), (3, length)) if is_known]
    model = build_node_model("STFT", 17, Case(inputs, {}, constants), dynamic=True)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    module = from_onnx(model)
    ops = {binding.op.name for binding in module["main"].walk()}
    assert ("nn.conv1d" in ops, "dft" in ops) == (is_convolution, not is_convolution)
    run = VirtualMachine(build(module, []))["main"]
    names = module["main"].input_names
    for shape in ((1, 64, 1), (3, 100, 1), (2, 16, 1)):
        feeds = {f"i{k}": array for k, array in enumerate([_noise(*shape), *inputs[1:]]) if array is not None}
        feeds = {name: feeds[name] for name in names}
        (wanted,) = run_onnxruntime(model, feeds)
        np.testing.assert_allclose(np.asarray(run(*feeds.values())), wanted, rtol=0, atol=2e-5)


def test_long_frames_are_transformed_fast() -> None:
    signal = _noise(2, 12000, 1)
    model = build_node_model("STFT", 17, Case([signal, np.array(1000), None, np.array(4096)], {}, (1, 3)))
    module = from_onnx(model)
    assert {"dft", "arange"} <= {binding.op.name for binding in module["main"].walk()}
    result = np.asarray(VirtualMachine(build(module, []))["main"](signal))
    frames = np.lib.stride_tricks.sliding_window_view(signal[..., 0], 4096, axis=1)[:, ::1000]
    wanted = np.fft.rfft(frames.astype(np.float64))
    np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], wanted, rtol=0, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_frames_of_other_dtypes(dtype: str) -> None:
    signal, window = _noise(2, 40, 1, dtype=dtype), np.hanning(8).astype(dtype)
    model = build_node_model("STFT", 17, Case([signal, np.array(5), window], {}, (1, 2)))
    result = np.asarray(VirtualMachine(build(from_onnx(model), []))["main"](signal))
    frames = np.lib.stride_tricks.sliding_window_view(signal[..., 0].astype(np.float64), 8, axis=1)[:, ::5]
    wanted = np.fft.rfft(frames * window.astype(np.float64))
    assert result.dtype == dtype
    sums = result[..., 0].astype(np.float64) + 1j * result[..., 1].astype(np.float64)
    np.testing.assert_allclose(sums, wanted, rtol=0, atol=16 * _UNITS[dtype])


def test_frames_as_long_as_the_signal() -> None:
    signal = _noise(2, 12, 1)
    result = np.asarray(
        VirtualMachine(build(from_onnx(build_node_model("STFT", 17, Case([signal, np.array(3)]))), []))["main"](
            signal, np.array(3)
        )
    )
    wanted = np.fft.rfft(signal[..., 0])[:, np.newaxis]
    np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], wanted, rtol=0, atol=1e-5)


def test_mel_weights_of_constants_are_a_constant() -> None:
    (case, *_) = _mel_weight_matrix(17)
    module = FoldConstants()(from_onnx(build_node_model("MelWeightMatrix", 17, Case(**case))))
    assert isinstance(module["main"].results[0], Constant)


_SIGNAL, _PAIRS = _noise(2, 10, 1), _noise(2, 10, 2)
_ERRORS: list[tuple[str, int, Sequence[Any], dict[str, Any], str]] = [
    ("DFT", 17, [_SIGNAL], {"axis": 2}, "transforms the axis of real and imaginary parts; got 2"),
    ("DFT", 17, [_SIGNAL], {"axis": 3}, "names no axis of a tensor of rank 3; got 3"),
    ("DFT", 20, [_SIGNAL, np.array([1, 2])], {}, "input 1 is not a single number; got 2, expected 1"),
    ("DFT", 20, [_SIGNAL, np.array(0)], {}, "has a length below 1; got 0"),
    ("DFT", 20, [_noise(2, 10, 3)], {}, "axis 2 has size 3; expected 1 (real) or 2 (complex)"),
    ("DFT", 20, [_PAIRS], {"onesided": 1}, "is complex, and the transform one-sided; expected a real signal"),
    ("STFT", 17, [_noise(10), np.array(1)], {}, "has an input of a wrong shape; got (10,), expected (batch, length"),
    ("STFT", 17, [_PAIRS, np.array(1)], {}, "is one-sided with a complex signal; expected attribute `onesided` 0"),
    ("STFT", 17, [_SIGNAL, np.array(0)], {}, "input `frame_step` is too small; got 0, expected 1 or more"),
    ("STFT", 17, [_SIGNAL, np.array(1), _noise(4, 1)], {}, "input `window` is no vector; got rank 2, expected rank 1"),
    (
        "STFT",
        17,
        [_SIGNAL, np.array(1), _noise(4), np.array(5)],
        {},
        "input `window` has another length than a frame; got 4, expected 5",
    ),
    ("Det", 11, [_noise(3)], {}, "is no matrix; got rank 1, expected rank 2 or more"),
    ("Det", 11, [_noise(2, 3)], {}, "axis 1 has size 3; got (2, 3), expected 2 as the axis before"),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attrs", "problem"), _ERRORS)
def test_errors(op_type: str, opset: int, inputs: Sequence[Any], attrs: dict[str, Any], problem: str) -> None:
    model = build_node_model(op_type, opset, Case(inputs, attrs, range(1, len(inputs))))
    with pytest.raises(ByocError) as caught:
        from_onnx(model)
    assert isinstance(caught.value, FrontendError)
    assert problem in str(caught.value)


def test_errors_of_a_call() -> None:
    model: onnx.ModelProto = build_node_model("DFT", 20, Case([_SIGNAL], {"onesided": 1}), dynamic=True)
    run = VirtualMachine(build(from_onnx(model), []))["main"]
    with pytest.raises(ExecutionError, match="is one-sided with a complex signal"):
        run(_PAIRS)
    with pytest.raises(ExecutionError, match="has a last axis of a wrong size; got 3"):
        run(_noise(2, 10, 3))
    with pytest.raises(ExecutionError, match="has a length below 1; got 0"):
        run(_SIGNAL[:, :0])
