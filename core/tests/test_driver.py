"""``build()``: from a module and backends to an executable, with messages."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import Rejection, Status
from byoc_core.driver import carve_regions, pass_names
from byoc_core.errors import BackendNotFoundError, CodegenError, OptionsError, PartitionError, PluginError, VerifyError
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionRequest
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime import NDArray
from byoc_core.transform import PassRun, default_passes
from pydantic import BaseModel

from core.tests.conftest import FakeBackend

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

MODULE = R.parse("""
def main(x: R.Tensor((2, 4)), w: R.Tensor((3, 4))):
    a = R.nn.dense(x, w)
    b = R.nn.relu(a)
    c = R.tanh(b)
    return c
""")
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
W = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
EXPECTED = np.tanh(np.maximum(X @ W.T, 0))
NO_TANH = Rejection("op", "no `tanh` here")


def run(executable: byoc_core.Executable) -> Any:
    return byoc_core.VirtualMachine(executable)["main"](X, W)


def outcomes(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["op"]: row["outcome"] for row in executable.report_data["ops"]}


def backends_of(executable: byoc_core.Executable) -> list[str]:
    return sorted(getattr(module, "backend", "host") for module in executable.modules)


@pytest.fixture
def fake(fake_backend: type[FakeBackend]) -> type[FakeBackend]:
    return fake_backend


def test_without_backends_everything_runs_on_the_host() -> None:
    executable = byoc_core.build(MODULE, [])
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)
    assert set(outcomes(executable).values()) == {"host"}


def test_two_backends_and_the_host_share_a_module(fake: type[FakeBackend]) -> None:
    pattern = CompositePattern("aone.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))
    executable = byoc_core.build(MODULE, [fake("aone", [], [pattern]), fake("btwo", ["exp"])])
    assert backends_of(executable) == ["aone", "host"]
    assert outcomes(executable) == {"nn.dense": "aone", "nn.relu": "aone", "tanh": "host"}
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)


def test_the_input_module_is_left_alone(fake: type[FakeBackend]) -> None:
    before = str(MODULE)
    byoc_core.build(MODULE, [fake("aone", None)])
    assert str(MODULE) == before


def test_the_report_says_who_took_what_and_why_not(fake: type[FakeBackend]) -> None:
    executable = byoc_core.build(MODULE, [fake("aone", ["nn.dense"]), fake("btwo", ["nn.relu"])])
    report = executable.report_data
    assert report["total_flops"] == 60
    assert report["backends"] == [
        {"name": "aone", "regions": 1, "ops": 1, "flops": 48, "share": 0.8},
        {"name": "btwo", "regions": 1, "ops": 1, "flops": 6, "share": 0.1},
        {"name": "host", "regions": 1, "ops": 1, "flops": 6, "share": 0.1},
    ]
    assert report["offloaded_share"] == 0.9
    assert sorted((row["name"], row["region"], row["code"], row["text"]) for row in report["ops"]) == [
        ("a", "aone_main_0", "", ""),
        ("b", "btwo_main_0", "", ""),
        ("c", "host_main_0", "op", "aone: no `tanh` here; btwo: no `tanh` here"),
    ]
    assert "tanh" in executable.report()


def test_fallback_allow_logs(fake: type[FakeBackend], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="byoc_core"):
        byoc_core.build(MODULE, [fake("aone", ["nn.dense", "nn.relu"])])
    (record,) = caplog.records
    share, line = record.getMessage().splitlines()
    assert share.startswith("1 ops with ")
    assert share.endswith("% of the FLOPs stay on the host")
    assert line == "  c = tanh: aone: no `tanh` here"


def test_fallback_warn(fake: type[FakeBackend]) -> None:
    with pytest.warns(UserWarning, match=r"(?s)stay on the host\n  c = tanh: aone: no `tanh` here$") as caught:
        byoc_core.build(MODULE, [fake("aone", ["nn.dense", "nn.relu"])], fallback="warn")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        byoc_core.build(MODULE, [fake("aone", None)], fallback="warn")


def test_fallback_error(fake: type[FakeBackend]) -> None:
    backend = fake("aone", ["nn.dense", "nn.relu"])
    with pytest.raises(PartitionError) as caught:
        byoc_core.build(MODULE, [backend], fallback="error")
    assert caught.value.where == 'fallback="error"'
    assert caught.value.detail == "  c = tanh: aone: no `tanh` here"
    assert backends_of(byoc_core.build(MODULE, [backend, "host"], fallback="error")) == ["aone", "host"]
    assert backends_of(byoc_core.build(MODULE, [fake("aone", None)], fallback="error")) == ["aone"]


def test_fallback_of_another_name() -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [], fallback="never")  # type: ignore[arg-type]
    assert str(caught.value) == "fallback: has an unknown value; got 'never', expected allow or warn or error"


def test_backends_given_as_a_string() -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, "host")
    assert str(caught.value) == "backends: is a single string; got 'host', expected ['host']"


def test_a_backend_that_is_not_installed() -> None:
    with pytest.raises(BackendNotFoundError, match=r"backend `hots` is not installed; installed: .*host") as caught:
        byoc_core.build(MODULE, ["hots"])
    assert caught.value.hint == "Did you mean 'host'?"


def test_two_backends_of_one_name(fake: type[FakeBackend]) -> None:
    with pytest.raises(PluginError, match="backend `aone`: is listed twice, for different plugins"):
        byoc_core.build(MODULE, [fake("aone"), fake("aone")])


class Options(BaseModel):
    level: int = 1


def test_options_reach_their_backend(fake: type[FakeBackend]) -> None:
    backend = fake("aone", None, options=Options)
    byoc_core.build(MODULE, [backend], options={"aone": {"level": 3}})
    assert backend.contexts[-1].options == Options(level=3)


def test_options_errors(fake: type[FakeBackend]) -> None:
    backend = fake("aone", None, options=Options)
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [backend], options={"anoe": {}})
    assert str(caught.value) == (
        "options.anoe: no backend of this name takes part; expected aone, host. Did you mean 'aone'?"
    )
    with pytest.raises(OptionsError, match="level"):
        byoc_core.build(MODULE, [backend], options={"aone": {"lvel": 3}})


def test_a_refused_region_goes_to_the_next_backend_that_takes_it(fake: type[FakeBackend]) -> None:
    refusing = fake("aone", None, rejects={"*": Rejection("too-large", "does not fit")})
    partly, wholly = fake("btwo", ["tanh"]), fake("cthree", None)
    executable = byoc_core.build(MODULE, [refusing, partly, wholly], fallback="error")
    assert backends_of(executable) == ["cthree"]
    assert set(outcomes(executable).values()) == {"cthree"}
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)


def test_a_refused_region_goes_to_the_host_in_the_end(fake: type[FakeBackend]) -> None:
    pattern = CompositePattern("aone.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))
    refusing = fake("aone", [], [pattern], rejects={"*": Rejection("too-large", "does not fit")})
    executable = byoc_core.build(MODULE, [refusing])
    assert set(outcomes(executable).values()) == {"host"}
    texts = {row["op"]: row["text"] for row in executable.report_data["ops"]}
    assert texts["nn.dense"].endswith("aone: does not fit")
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)
    with pytest.raises(PartitionError, match=r"3 ops with 100\.0% of the FLOPs stay on the host"):
        byoc_core.build(MODULE, [refusing], fallback="error")


HAND = """
class M:
    def part(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "part_lib"})
        y = R.tanh(x)
        return y
    def main(x: R.Tensor((4,))):
        y = part(x)
        z = R.exp(y)
        return z
"""


def test_annotations_by_hand_are_kept(fake: type[FakeBackend]) -> None:
    executable = byoc_core.build(R.parse(HAND), [fake("aone", ["tanh"])])
    assert outcomes(executable) == {"tanh": "aone", "exp": "host"}
    x = np.zeros(4, np.float32)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), np.ones(4))


def test_annotations_by_hand_that_the_backend_refuses_are_errors(fake: type[FakeBackend]) -> None:
    with pytest.raises(CodegenError, match="op `tanh` in function `part`: backend `aone` refuses the compilation"):
        byoc_core.build(R.parse(HAND), [fake("aone", ["exp"])])
    with pytest.raises(
        CodegenError, match=r"function `part`: backend `aone` refuses the compilation \(size\): too big"
    ):
        byoc_core.build(R.parse(HAND), [fake("aone", None, rejects={"part_lib": Rejection("size", "too big")})])


def test_s000_3_a_backend_that_cannot_compile_here_takes_nothing(fake: type[FakeBackend]) -> None:
    backend = fake("aone", None, status=Status(False, "npucc is missing", "Install npucc."))
    with pytest.warns(UserWarning, match="backend `aone` cannot compile here: npucc is missing. Install npucc"):
        executable = byoc_core.build(MODULE, [backend])
    assert set(outcomes(executable).values()) == {"host"}
    assert {(row["code"], row["text"]) for row in executable.report_data["ops"]} == {
        ("unavailable", "aone: cannot compile here: npucc is missing. Install npucc")
    }
    assert backend.contexts == []
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)
    with pytest.raises(CodegenError) as caught, pytest.warns(UserWarning, match="backend `aone`"):
        byoc_core.build(R.parse(HAND), [backend])
    assert str(caught.value) == "backend `aone`: cannot compile here: npucc is missing. Install npucc."


def test_preparations_run_first_in_backend_order(fake: type[FakeBackend]) -> None:
    seen: list[str] = []

    def preparation(name: str) -> Callable[[IRModule], IRModule]:
        def prepare(module: IRModule) -> IRModule:
            seen.append(name)
            return module

        return prepare

    byoc_core.build(MODULE, [fake(name, None, prepare=preparation(name)) for name in ("aone", "btwo")])
    assert seen == ["aone", "btwo"]


def test_the_policy_may_be_replaced(fake: type[FakeBackend]) -> None:
    def nothing(module: IRModule, request: PartitionRequest, /) -> IRModule:
        assert [handle.name for handle in request.backends] == ["aone"]
        return module

    executable = byoc_core.build(MODULE, [fake("aone", None)], policy=nothing)
    assert set(outcomes(executable).values()) == {"host"}


def test_regions_can_be_had_before_they_are_compiled(fake: type[FakeBackend]) -> None:
    first, second = fake("first", ops=["nn.dense", "nn.relu"]), fake("second", ops=["tanh"])
    carved = carve_regions(MODULE, [first, second])
    report = byoc_core.build(MODULE, [first, second]).report_data
    regions = {name: f.attrs["Codegen"] for name, f in carved.functions.items() if "Codegen" in f.attrs}
    assert regions == {row["region"]: row["outcome"] for row in report["ops"]}
    assert list(regions.values()) == ["first", "second"]
    left = carve_regions(MODULE, [first])
    assert [f.attrs.get("Codegen") for f in left.functions.values()] == ["first", None], "the host's ops stay"
    assert [binding.op.name for binding in left["main"].bindings] == ["call", "tanh"]


def test_dump_and_progress(fake: type[FakeBackend], tmp_path: Path) -> None:
    stages: list[str] = []
    byoc_core.build(MODULE, [fake("aone", None)], dump=tmp_path, progress=stages.append)
    assert stages == ["prepare", "partition", "compile", "lower"]
    passes = [type(default).__name__ for default in default_passes()]
    steps = ["input", *passes, "prepare_aone", "UniqueNames"]
    names: Sequence[str] = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py"))
    assert names == [
        "compile/00_input.py",
        "compile/01_RunCodegen.py",
        "layouts/00_input.py",
        "layouts/01_PlanLayouts.py",
        "peel/00_input.py",
        "peel/01_PeelViews.py",
        *(f"prepare/{number:02}_{name}.py" for number, name in enumerate(steps)),
    ]


@pytest.mark.parametrize("with_backends", [True, False])
def test_every_pass_is_observed(fake: type[FakeBackend], *, with_backends: bool) -> None:
    chosen = [fake("aone", ["nn.dense"]), fake("btwo", ["tanh"])] if with_backends else []
    runs: list[PassRun] = []
    executable = byoc_core.build(MODULE, chosen, on_pass=runs.append)
    names = [observed.name for observed in runs]
    assert names == list(pass_names(chosen))
    assert all(observed.seconds > 0 for observed in runs)
    preparations = [f"prepare_{backend.name}" for backend in chosen]
    assert [name for name in names if name.startswith("prepare_")] == preparations
    assert names[-4:] == ["partition_host", "PlanLayouts", "PeelViews", "RunCodegen"]
    assert len(runs[-1].module.functions) < len(runs[-2].module.functions)
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)


def test_a_module_compiled_before_is_built(fake: type[FakeBackend]) -> None:
    backend = fake("aone", ["tanh"])
    compiled = byoc_core.partitioning.RunCodegen(backends=[backend])(R.parse(HAND))
    executable = byoc_core.build(compiled, [])
    assert backends_of(executable) == ["aone", "host"]


def test_an_invalid_module_is_refused() -> None:
    broken = MODULE.with_function(replace(MODULE["main"], bindings=()))
    with pytest.raises(VerifyError, match="function `main`"):
        byoc_core.build(broken, [])


def test_impure_calls_run_in_order_and_each_once(fake: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor((2,))):
    a = R.call_packed("first", (x,), out_types=[R.Tensor((2,))])
    b = R.nn.relu(x)
    c = R.call_packed("second", (b,), out_types=[R.Tensor((2,))])
    d = R.add(b, x)
    return d
""")
    calls: list[str] = []

    def recorder(name: str) -> Callable[[NDArray], NDArray]:
        def record(x: NDArray) -> NDArray:
            calls.append(name)
            return x

        return record

    executable = byoc_core.build(module, [fake("aone", None)])
    externs = {name: recorder(name) for name in ("first", "second")}
    vm = byoc_core.VirtualMachine(executable, externs=externs)
    np.testing.assert_array_equal(vm["main"](np.array([-1.0, 2.0], np.float32)), [-1.0, 4.0])
    assert calls == ["first", "second"]


def test_explanations_print_as_reports_and_have_short_reprs() -> None:
    explanation = byoc_core.explain(R.parse("def main(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    return y"), [])
    assert str(explanation) == explanation.report()
    assert repr(explanation) == "<explanation of main>"


def test_what_build_compiles_is_its_own(tmp_path: Path) -> None:
    made = byoc_core.build(R.parse("def main(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    return y"), [])
    assert made.is_own
    made.save(tmp_path / "m.byoc")
    assert not byoc_core.inspect(tmp_path / "m.byoc").is_trusted, "without native code there is nothing to trust"
    said = byoc_core.inspect(tmp_path / "m.byoc")
    assert str(said).endswith(said.report())
    assert "main(x: float32[2]) -> (y: float32[2])" in str(said)
    assert repr(said) == f"<inspection of {tmp_path / 'm.byoc'}: main>"
