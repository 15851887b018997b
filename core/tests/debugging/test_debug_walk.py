"""Places of regions: in bodies and called functions, with symbolic and unknown sizes, constants, several results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core import debug_model, parse
from byoc_core.debugging import DebugReport
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule
from byoc_core.runtime.module import NDArray

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
TENSOR = 'R.Tensor((3, 4), "float32")'


def module_of(body: str, params: str = f"x: {TENSOR}", before: str = "") -> IRModule:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return parse(f"class M:\n{before}\n    @R.function\n    def main({params}):\n{lines}\n")


def debug(
    backend: object, module: IRModule, *inputs: NDArray, session: Mapping[str, Any] | None = None, **options: object
) -> DebugReport:
    return debug_model(module, [backend], inputs, options={"faulty": options}, **(session or {}))


BRANCHES = module_of(
    f"""
@R.region
def yes(v: {TENSOR}):
    a = R.multiply(v, v)
    return a
@R.region
def no(v: {TENSOR}):
    a = R.subtract(v, v)
    return a
b = inner(x)
w = R.if_(c, b, regions=[yes, no])
return w
""",
    f'x: {TENSOR}, c: R.Tensor((), "bool")',
    f"    @R.function\n    def inner(v: {TENSOR}):\n        a = R.add(v, v)\n        return a\n",
)


@pytest.mark.parametrize("condition", [True, False])
def test_only_the_branch_that_runs_is_checked(faulty: Callable[..., object], condition: bool) -> None:
    report = debug(faulty("add", "multiply", "subtract"), BRANCHES, X, np.array(condition))
    verdicts = {region.ops: region.verdict for region in report.regions}
    taken, other = (("multiply",), ("subtract",)) if condition else (("subtract",), ("multiply",))
    assert verdicts == {("add",): "right", taken: "right", other: "not-reached"}
    assert report.is_right


def test_a_fault_in_a_called_function_and_one_in_a_branch_are_found(faulty: Callable[..., object]) -> None:
    backend = faulty("add", "multiply", "subtract")
    report = debug(backend, BRANCHES, X, np.array(True), fault="lane", op="add")
    assert [check.verdict for check in report.checks] == ["wrong-values", "right"]
    report = debug(backend, BRANCHES, X, np.array(True), fault="lane", op="multiply")
    assert [check.verdict for check in report.checks] == ["right", "wrong-values"]


LOOP = module_of(
    f"""
@R.region
def body(i: R.Tensor((), "int64"), v: {TENSOR}):
    a = R.add(v, v)
    return R.const(True, "bool"), a
w = R.loop(m, R.const(True, "bool"), x, regions=[body])
return w
""",
    f'x: {TENSOR}, m: R.Tensor((), "int64")',
)


def test_every_round_of_a_loop_is_a_call(faulty: Callable[..., object]) -> None:
    report = debug(faulty("add"), LOOP, X, np.array(5), fault="lane", op="add")
    assert [check.call for check in report.checks] == [0, 1, 2, 3, 4]
    assert not any(check.is_right for check in report.checks)
    (case,) = report.cases
    assert case.verdict.call == 0
    np.testing.assert_array_equal(case.inputs[0], X)
    (region,) = report.to_data()["regions"]
    assert (region["calls"], region["diverging_calls"]) == (5, 5)


def test_a_loop_without_rounds_tests_nothing_and_says_so(faulty: Callable[..., object]) -> None:
    with pytest.raises(ByocError) as caught:
        debug(faulty("add"), LOOP, X, np.array(0))
    assert str(caught.value) == "debug: the run reaches no region, so nothing can be compared"


def test_where_nothing_is_claimed_nothing_is_tested(faulty: Callable[..., object]) -> None:
    with pytest.raises(ByocError) as caught:
        debug(faulty("exp"), LOOP, X, np.array(1))
    expected = "debug: no backend claims a computing op, so nothing can be compared. `byoc explain` lists the reasons."
    assert str(caught.value) == expected


THREE = module_of("a = R.add(x, x)\nb = R.exp(a)\nc = R.multiply(b, b)\nreturn c")


def test_each_region_is_judged_by_itself(faulty: Callable[..., object]) -> None:
    report = debug(faulty("add", "multiply"), THREE, X, fault="lane", op="add")
    assert [check.verdict for check in report.checks] == ["wrong-values", "right"]
    assert (report.results, report.findings) == ((), ())


def test_errors_go_on_where_wished_and_the_end_is_judged(faulty: Callable[..., object]) -> None:
    backend = faulty("add", "multiply")
    report = debug(backend, THREE, X, session={"accumulate": True}, fault="lane", op="add")
    assert [check.verdict for check in report.checks] == ["wrong-values", "right"]
    assert [finding.code for finding in report.findings] == ["wrong-values"]
    exact = np.exp(2 * X.astype(np.float64)) ** 2
    (result,) = report.results
    assert result.max_abs_error == pytest.approx(exact[-1, -1] * (np.exp(6) - 1), rel=1e-5)
    assert "whole run: wrong-values: output `c`: error " in str(report)

    right = debug(backend, THREE, X, session={"accumulate": True})
    assert right.is_right
    assert right.results[0].relative_error <= right.results[0].allowed_relative_error


def test_a_region_without_results_leaves_the_reference_to_go_on(faulty: Callable[..., object]) -> None:
    report = debug(faulty("add", "multiply"), THREE, X, session={"accumulate": True}, fault="raise", op="add")
    assert [check.verdict for check in report.checks] == ["run-error", "right"]
    assert report.findings == ()


@pytest.mark.parametrize("constants", ["embedded", "lifted"])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_symbolic_sizes_constants_and_several_results(faulty: Callable[..., object], constants: str, size: int) -> None:
    params = 'x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")'
    module = module_of(
        'a = R.add(x, R.const([1.5, 2.0, 3.0, 4.0], "float32"))\nb = R.multiply(a, y)\nreturn a, b', params
    )
    x, y = np.random.default_rng(1).standard_normal((2, size, 4)).astype(np.float32)
    right = debug(faulty(constants=constants), module, x, y)
    assert right.is_right
    assert [output.name for output in right.checks[0].outputs] == ["a", "b"]
    if size:
        wrong = debug(faulty(constants=constants), module, x, y, fault="lane", op="multiply")
        assert [finding.output for finding in wrong.checks[0].findings] == [1]
        both = debug(faulty(constants=constants), module, x, y, fault="lane", op="add")
        assert [finding.output for finding in both.checks[0].findings] == [0, 1]


def test_sizes_that_only_the_data_tells(faulty: Callable[..., object]) -> None:
    module = module_of(
        """
i = R.nonzero(x, out_types=[R.Tensor((2, "k"), "int64")])
s = R.add(i, i)
return s
"""
    )
    x = np.eye(3, 4, dtype=np.float32)
    report = debug(faulty(), module, x)
    assert report.is_right, str(report)
    assert [region.ops for region in report.regions] == [("nonzero",), ("add",)]
    assert codes(debug(faulty(), module, x, fault="lane", op="add")) == ["wrong-values"]
    assert codes(debug(faulty(), module, x, fault="longer", op="nonzero")) == ["wrong-shape"]


def codes(report: DebugReport) -> list[str]:
    return [finding.code for check in report.checks for finding in check.findings]


def test_inputs_by_name_and_what_does_not_fit(faulty: Callable[..., object]) -> None:
    assert debug_model(THREE, [faulty()], {"x": X}).is_right

    def problem(inputs: Any) -> str:
        with pytest.raises(ByocError) as caught:
            debug_model(THREE, [faulty()], inputs)
        return str(caught.value)

    assert problem({"X": X}) == "function `main`: has no input `X`; expected x. Did you mean 'x'?"
    assert problem({}) == "function `main`: input `x` is missing"
    assert problem([]) == "function `main`: wrong number of inputs; got 0, expected 1: x"
    assert problem([X[:2]]) == ("function `main`, input 0 `x`: axis 0 has the wrong size; got [2, 4], expected [3, 4]")
    with pytest.raises(ByocError) as caught:
        debug_model(THREE, "faulty", [X])
    assert str(caught.value) == "backends: is a single string; got 'faulty', expected ['faulty']"


def test_functions_annotated_by_hand_are_regions(faulty: Callable[..., object]) -> None:
    before = f"""
    @R.function
    def mine(v: {TENSOR}):
        R.func_attr({{"Codegen": "faulty", "global_symbol": "mine_lib"}})
        a = R.add(v, v)
        return a
"""
    module = module_of("a = mine(x)\nreturn a", before=before)
    report = debug(faulty("exp"), module, X, fault="lane", op="add")
    assert [(check.region, check.verdict) for check in report.checks] == [("mine", "wrong-values")]
    with_unknown = parse(str(module).replace('"faulty"', '"nobody"'))
    (check,) = debug(faulty("exp"), with_unknown, X).checks
    assert check.verdict == "compile-error"
    assert "backend `nobody` is not installed" in check.findings[0].text
