"""Every kernel in C on the canonical cases and on drawn cases, judged like a backend by the bounds of the op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_conformance.drawing import Trial, draw_operands, drawn_trials, generator_of
from byoc_conformance.judging import judge
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import IRModule, Trait
from byoc_core.ops import default_ops
from byoc_core.opset.families import FAMILIES, ops_of
from byoc_core.transform import evaluate_function
from hypothesis import settings
from onnx import TensorProto, helper

from rt.tests.kernel_programs import canonical_trials, executable_of, is_covered, module_of_trials, trials_by_name
from rt.tests.kernel_table import KERNELS
from rt.tests.runner import NativeError, NativeLibrary, NativeProgram, Status
from rt.tests.saved import load_saved

NDArray = npt.NDArray[Any]

OPS = default_ops()
CORE_OPS = {name for family in FAMILIES for name in ops_of(family)}
WITHOUT_KERNEL = set(ops_of("strings"))
"""The ops without a kernel in C: letters and regular expressions are those of Python."""
REGIMES = ("normal", "halves", "zeros", "large", "nonfinite")
REGIMES_BY_ELEMENT = ("normal", "halves", "zeros", "thresholds", "special")
FREE_ORDER = {"det", "dft"}
"""The ops without nonfinite values: the order of the sums decides whether infinities meet and give NaN."""
NEVER_DRAWN = {"as_size"}
DRAWN = 12


def test_the_table_names_all_other_ops_of_the_core() -> None:
    assert KERNELS.keys() == CORE_OPS - WITHOUT_KERNEL


@pytest.mark.parametrize("op", KERNELS)
def test_each_signature_has_the_operands_of_the_op(op: str) -> None:
    operands, _, results = KERNELS[op].signature.partition(":")
    assert results
    letters = operands.rstrip("*")
    assert len(letters) == len(OPS[op].operands)
    assert operands.endswith("*") == any(operand.variadic for operand in OPS[op].operands)


@pytest.mark.parametrize("op", KERNELS)
def test_canonical_cases(native: NativeLibrary, tmp_path: Path, op: str) -> None:
    trials = trials_by_name(canonical_trials(op), "case")
    assert trials, "the op has no canonical case in a dtype with a kernel"
    assert problems_of(native, tmp_path, trials, reversed_axes=False) == []


@pytest.mark.parametrize("op", KERNELS)
def test_drawn_cases(native: NativeLibrary, tmp_path: Path, op: str) -> None:
    count = max(DRAWN, settings().max_examples // 8)
    drawn = [trial for trial in drawn_trials(OPS[op], count, 0, is_dynamic=True) if is_covered(trial)]
    assert bool(drawn) == (op not in NEVER_DRAWN)
    if drawn:
        assert problems_of(native, tmp_path, trials_by_name(drawn, "drawn"), reversed_axes=False) == []


# Functions returning their results take compact tensors.
@pytest.mark.parametrize("op", [op for op in KERNELS if Trait.DATA_DEPENDENT not in OPS[op].traits])
def test_strided_operands_and_results(native: NativeLibrary, tmp_path: Path, op: str) -> None:
    trials = trials_by_name(canonical_trials(op)[:3], "case")
    assert problems_of(native, tmp_path, trials, reversed_axes=True) == []


def problems_of(native: NativeLibrary, folder: Path, trials: dict[str, Trial], *, reversed_axes: bool) -> list[str]:
    """Return the faults of the C runtime in calls of trials, in several regimes of values."""
    module = module_of_trials(trials)
    program = load_saved(executable_of(module, reversed_axes=reversed_axes), native, folder)
    return [
        text
        for name, trial in trials.items()
        for text in _problems_of_trial(module, program, name, trial, reversed_axes=reversed_axes)
    ]


def _problems_of_trial(
    module: IRModule, program: NativeProgram, name: str, trial: Trial, *, reversed_axes: bool
) -> Iterator[str]:
    regimes: Sequence[str] = REGIMES_BY_ELEMENT if Trait.ELEMENTWISE in trial.op.traits else REGIMES
    if trial.op.name in FREE_ORDER:
        regimes = tuple(regime for regime in regimes if regime != "nonfinite")
    other = trial.other_case(generator_of(0, trial.op.name, name, "other sizes"))
    for number, regime in enumerate(regimes):
        case = other if other is not None and number % 2 else trial.case
        operands = draw_operands(trial.op, case, trial.dtype, regime, generator_of(0, trial.op.name, name, regime))
        inputs = [array for index, array in enumerate(operands) if index not in trial.constants]
        label = f"{trial}, {regime} values of {[array.shape for array in inputs]}"
        try:
            found = _call(program, name, inputs, reversed_axes=reversed_axes)
        except NativeError as error:
            if not _is_refused_by_op(module, name, inputs):
                yield f"{label}: {error}"
            continue
        try:
            verdict = judge(module, name, inputs, found, {})
        except ByocError as error:
            yield f"{label}: the op refuses the values: {error}"
            continue
        if not verdict.is_right:
            yield f"{label}: {verdict.text}"


def _call(program: NativeProgram, name: str, inputs: Sequence[NDArray], *, reversed_axes: bool) -> Sequence[NDArray]:
    if not reversed_axes:
        return program[name](*inputs)
    results = program[name](*(np.array(array.transpose(), order="C") for array in inputs))
    return [np.array(array.transpose(), order="C") for array in results]


def _is_refused_by_op(module: IRModule, name: str, inputs: Sequence[NDArray]) -> bool:
    try:
        evaluate_function(module, name, inputs)
    except ByocError:
        return True
    return False


def test_an_op_without_kernel_is_refused_while_loading(native: NativeLibrary, tmp_path: Path) -> None:
    """An op delegated to the reference evaluator of ONNX needs Python."""
    uint8 = TensorProto.UINT8
    graph = helper.make_graph(
        [helper.make_node("ImageDecoder", ["data"], ["image"], pixel_format="RGB")],
        "model",
        [helper.make_tensor_value_info("data", uint8, ["n"])],
        [helper.make_tensor_value_info("image", uint8, ["h", "w", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=[])
    with pytest.raises(
        NativeError, match=r"node 0 \(`onnx.ImageDecoder`\): the op has no kernel in this runtime"
    ) as error:
        load_saved(executable, native, tmp_path)
    assert error.value.status is Status.UNSUPPORTED


def test_a_dtype_without_kernel_is_refused_while_loading(native: NativeLibrary, tmp_path: Path) -> None:
    case = OPS["cast"].canonical_cases[0]
    trial = Trial(OPS["cast"], case, "float8_e8m0fnu")
    with pytest.raises(NativeError) as e:
        load_saved(executable_of(module_of_trials({"main": trial.named("main")})), native, tmp_path)
    assert (e.value.status, str(e.value).partition(": ")[2]) == (
        Status.UNSUPPORTED,
        "has no kernel for float8_e8m0fnu to float16 in this runtime",
    )


def test_the_covered_dtypes_of_an_op_are_taken(native: NativeLibrary, tmp_path: Path) -> None:
    """Each dtype of the table beyond the computing dtypes runs at least once: storage types in moves and casts."""
    trials = {}
    for op in ("cast", "add", "concat", "where", "take"):
        definition, case = OPS[op], OPS[op].canonical_cases[0]
        for dtype in sorted(KERNELS[op].dtypes):
            if dtype.startswith("complex") and op == "where":
                continue
            name = f"{op}_{dtype}"
            trial = Trial(definition, case, dtype, name=name)
            try:
                trial.binding()
            except IRTypeError:
                continue
            trials[name] = trial
    assert len(trials) > 80
    load_saved(executable_of(module_of_trials(trials)), native, tmp_path)
