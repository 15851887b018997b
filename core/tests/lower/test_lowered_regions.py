"""Lowered regions in a build: hooks, refusals, programs, memory plans, artifacts, libraries, reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, LoweringBuilder, Rejection, hookimpl
from byoc_core.debugging import debug_model
from byoc_core.errors import CodegenError, ExecutionError, HookError
from byoc_core.ir import Function, tensor
from byoc_core.native.toolchain import BuildOptions, Toolchain
from byoc_core.partitioning import RunCodegen
from byoc_core.runtime.plan_storage import Interval, plan
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import VMFunction

from core.tests.fresh_process import answer_of
from core.tests.lowered_toys import LoweringToy

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

F32 = np.float32
CHAIN = """
def main(x: R.Tensor((SIZE,)), y: R.Tensor((SIZE,))):
    a = R.add(x, y)
    b = R.negative(a)
    c = R.exp(b)
    d = R.nn.relu(c)
    e = R.add(d, y)
    return e
"""
X, Y = np.linspace(-2, 1, 7, dtype=F32), np.linspace(0, 3, 7, dtype=F32)
EXPECTED = np.exp(-(X + Y)) + Y


def op_by_op(function: Function, builder: LoweringBuilder) -> None:
    """Lower each op to a call, with an intermediate for each value."""
    builder.options = BuildOptions(opt_level=0, march="generic")
    builder.add_source(
        "static void toy_relu(const float *x, float *out, int64_t n) {"
        " for (int64_t i = 0; i < n; ++i) out[i] = x[i] < 0 ? 0 : x[i]; }"
    )
    names = {"add": "toy_add", "nn.relu": "toy_relu"}
    for binding in function.bindings:
        operands = [builder.buffer(operand) for operand in binding.operands]
        out = builder.buffer(binding.result)
        if binding.op.name == "negative":
            builder.call_extern("toy_scale", *operands, out.written(), out.size, -1.0)
        else:
            builder.call_extern(names[binding.op.name], *operands, out.written(), out.size)


def module_of(size: str = "7") -> Any:
    return R.parse(CHAIN.replace("SIZE", size))


def called_symbols(executable: byoc_core.Executable, function: int = 0) -> list[str]:
    program = executable.program
    calls = [code for code in program.functions[function].code if isinstance(code, Call)]
    return [program.externs[int(call.callee)] for call in calls if call.kind is CallKind.EXTERN]


def arena_nbytes(function: VMFunction) -> int:
    assert isinstance(function.arena_nbytes, int)
    return function.arena_nbytes


@pytest.mark.parametrize("size", ["7", '"n"'])
def test_the_program_calls_the_steps(size: str) -> None:
    executable = byoc_core.build(module_of(size), [LoweringToy(op_by_op)], strict=True)
    executable.require_offload(0.8)
    assert called_symbols(executable) == [
        "toy_main_0_step0",
        "toy_main_0_step1",
        "host_main_0",
        "toy_main_1_step0",
        "toy_main_1_step1",
    ]
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X, Y), EXPECTED, rtol=1e-6)


@pytest.mark.parametrize("size", ["7", '"n"'])
def test_saved_and_loaded_without_the_backend(size: str, tmp_path: Path) -> None:
    executable = byoc_core.build(module_of(size), [LoweringToy(op_by_op)], strict=True)
    executable.require_offload(0.8)
    executable.save(tmp_path / "model.byoc")
    script = (
        "import json, sys\nimport numpy as np, byoc_core\n"
        "executable = byoc_core.load(sys.argv[1], allow_native=True)\n"
        "x, y = np.array(json.loads(sys.argv[2]), np.float32)\n"
        "result = byoc_core.VirtualMachine(executable)['main'](x, y)\n"
        "compilers = ('byoc_core.backend', 'byoc_core.lower', 'byoc_core.authoring')\n"
        "compile_side = [name for name in sys.modules if name.startswith(compilers)]\n"
        "print(json.dumps([result.tolist(), compile_side]))\n"
    )
    result, compile_side = answer_of(script, str(tmp_path / "model.byoc"), json.dumps([X.tolist(), Y.tolist()]))
    np.testing.assert_allclose(result, EXPECTED, rtol=1e-6)
    assert compile_side == []


@pytest.mark.parametrize("size", ["7", '"n"'])
def test_exported_library(size: str, tmp_path: Path) -> None:
    text = CHAIN.replace("SIZE", size).replace("R.exp(b)", "R.negative(b)")
    executable = byoc_core.build(R.parse(text), [LoweringToy(op_by_op)], strict=True)
    assert [module.type_key for module in executable.modules] == ["csource"]
    executable.export_library(tmp_path / "model.so")
    out = np.full_like(X, np.nan)
    byoc_core.load_module(tmp_path / "model.so").get_function("main")(X, Y, out)
    np.testing.assert_array_equal(out, np.maximum(X + Y, 0) + Y)


def test_the_module_has_the_whole_function_for_direct_callers() -> None:
    executable = byoc_core.build(module_of('"n"'), [LoweringToy(op_by_op)], strict=True)
    (module,) = (module for module in executable.modules if module.type_key == "csource")
    out = np.full_like(X, np.nan)
    module.get_function("toy_main_0")(X, Y, out)
    np.testing.assert_array_equal(out, -(X + Y))


def test_reports_and_the_debugger_know_the_region() -> None:
    backend = LoweringToy(op_by_op)
    executable = byoc_core.build(module_of(), [backend], strict=True)
    by_name = {item["name"]: item for item in executable.report_data["backends"]}
    assert (by_name["toy"]["ops"], by_name["toy"]["regions"]) == (4, 2)
    assert "toy: no code for `exp` [op]" in str(executable.report())
    assert "4 ops in 2 regions" in str(byoc_core.explain(module_of(), [backend]))
    report = debug_model(module_of(), [backend], [X, Y])
    assert [(region.backend, region.verdict) for region in report.regions] == [("toy", "right"), ("toy", "right")]


def test_the_debugger_finds_a_wrong_lowering() -> None:
    def wrong(function: Function, builder: LoweringBuilder) -> None:
        op_by_op(function, builder)
        builder.call_extern("toy_fill", builder.outputs[0].part(3, 1).written(), 1, 42.0)

    report = debug_model(module_of(), [LoweringToy(wrong)], [X, Y])
    assert "right" not in {region.verdict for region in report.regions}
    assert {region.backend for region in report.regions if region.checks} == {"toy"}


class TestRefusals:
    def build(self, lower: Any, *others: object, strict: bool = False) -> byoc_core.Executable:
        return byoc_core.build(module_of(), [LoweringToy(lower), *others], strict=strict)

    def check(self, executable: byoc_core.Executable, text: str) -> None:
        assert text in str(executable.report())
        np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X, Y), EXPECTED, rtol=1e-6)

    def test_a_refused_function_goes_to_the_next_backend(self) -> None:
        def refuse(function: Function, builder: LoweringBuilder) -> Rejection | None:
            if len(builder.inputs) == 2 and function.bindings[0].op.name == "add":
                return Rejection("mood", "not today")
            op_by_op(function, builder)
            return None

        other = LoweringToy(op_by_op, "other")
        executable = self.build(refuse, other, strict=True)
        regions = {item["name"]: item["regions"] for item in executable.report_data["backends"]}
        assert regions == {"toy": 1, "other": 1, "host": 1}
        assert len(other.lowered) == 1
        self.check(executable, "other   40.0%")

    def test_refused_by_all_means_the_host(self) -> None:
        executable = self.build(lambda *_: Rejection("mood", "not today"), strict=True)
        assert {module.type_key for module in executable.modules} == {"graph"}
        self.check(executable, "not today [mood]")

    @pytest.mark.parametrize(
        ("lower", "text"),
        [
            (lambda *_: 1 % 0, "raised ZeroDivisionError"),
            (lambda *_: 3, "returned a value of the wrong type; got int, expected Rejection"),
            (lambda *_: None, "neither lowered nor rejected function `toy_main_0`"),
            (
                lambda _, b: b.call_extern("toy_fill", b.outputs[0].part(0, 3).written(), 3, 0.0),
                "output `b` is not written completely",
            ),
            (
                lambda _, b: b.call_extern("gone", b.outputs[0].written()),
                "function `toy_main_0`: calls `gone`, defined by no library",
            ),
        ],
        ids=["raises", "type", "nothing", "law", "symbol"],
    )
    def test_faults_are_refusals_unless_strict(self, lower: Any, text: str) -> None:
        def first(function: Function, builder: LoweringBuilder) -> Any:
            return lower(function, builder) if function.name == "toy_main_0" else op_by_op(function, builder)

        with pytest.raises((HookError, CodegenError)) as caught:
            self.build(first, strict=True)
        assert text in str(caught.value)
        with pytest.warns(UserWarning, match="hook `byoc_lower`"):
            executable = self.build(first)
        (failure,) = executable.report_data["hook_failures"]
        assert (failure["hook"], failure["ops"]) == ("byoc_lower", ["toy_main_0"])
        assert any(name.startswith("toy_main_1_step") for name in called_symbols(executable))  # the other is offloaded
        self.check(executable, "hook byoc_lower")

    @pytest.mark.parametrize("strict", [False, True])
    def test_clashing_sources_are_compiled_apart(self, strict: bool) -> None:
        def lower(function: Function, builder: LoweringBuilder) -> None:
            builder.add_source(f"static const int OWN = {len(function.name)}; /* {function.name} */")
            op_by_op(function, builder)

        executable = self.build(lower, strict=strict)
        assert [module.type_key for module in executable.modules].count("csource") == 2
        self.check(executable, "4 ops in 2 regions")

    def test_run_codegen_alone_names_function_and_backend(self) -> None:
        text = (
            "@R.ir_module\nclass M:\n    @R.function\n    def f(x: R.Tensor((3,))):\n"
            '        R.func_attr({"Codegen": "toy", "global_symbol": "f"})\n        a = R.tanh(x)\n        return a\n'
        )
        for lower, message in {
            (lambda *_: Rejection("mood", "not today")): "op `tanh` in function `f`: backend `toy` refuses the "
            "compilation (op): no code for `tanh`",
            (lambda *_: 1 % 0): "plugin `LoweringToy`, hook `byoc_lower`: raised ZeroDivisionError",
        }.items():
            with pytest.raises((CodegenError, HookError)) as caught:
                RunCodegen(backends=[LoweringToy(lower)])(R.parse(text))
            assert str(caught.value).startswith(message.replace("LoweringToy", "toy"))


class Both(LoweringToy):
    """A backend lowering functions with two ops, and leaving the others to codegen."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(lambda f, b: op_by_op(f, b) if f.bindings[0].op.name == "add" else None)
        self.compiled: list[str] = []
        self._fails = fails

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        self.compiled += [function.name for function in functions]
        if self._fails:
            return CodegenResult(None, lowered=(GraphCodegen().compile(functions, context).module,))  # type: ignore[arg-type]
        return GraphCodegen().compile(functions, context)


class TestBothHooks:
    def test_functions_without_statements_go_to_codegen(self) -> None:
        backend = Both()
        executable = byoc_core.build(module_of(), [backend], strict=True)
        assert (backend.lowered, backend.compiled) == (["toy_main_0", "toy_main_1"], ["toy_main_1"])
        assert sorted(module.type_key for module in executable.modules) == ["csource", "graph", "graph"]
        np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X, Y), EXPECTED, rtol=1e-6)

    def test_codegen_returns_no_lowered_modules(self) -> None:
        with pytest.raises(HookError) as caught:
            byoc_core.build(module_of(), [Both(fails=True)], strict=True)
        assert "hook `byoc_codegen`: returned `lowered` modules. Implement `byoc_lower`." in str(caught.value)

    def test_codegen_is_not_asked_if_all_functions_are_lowered(self) -> None:
        backend = Both()
        text = "def main(x: R.Tensor((7,)), y: R.Tensor((7,))):\n    a = R.add(x, y)\n    return a\n"
        executable = byoc_core.build(R.parse(text), [backend], strict=True)
        assert (called_symbols(executable), backend.compiled) == (["toy_main_0_step0"], [])


class TestStaticBackend:
    def test_functions_are_lowered_for_each_set_of_sizes(self) -> None:
        backend = LoweringToy(op_by_op, dynamic_shapes=False)
        executable = byoc_core.build(module_of('"n"'), [backend], strict=True, specialize=[{"n": 7}, {"n": 3}])
        assert [module.type_key for module in executable.modules].count("specialised") == 1
        machine = byoc_core.VirtualMachine(executable)
        for size in (7, 3):
            result = machine["main"](X[:size], Y[:size])
            np.testing.assert_allclose(result, EXPECTED[:size], rtol=1e-6)

    def test_functions_are_lowered_at_first_use(self) -> None:
        backend = LoweringToy(op_by_op, dynamic_shapes=False)
        executable = byoc_core.build(module_of('"n"'), [backend], strict=True)
        backend.lowered.clear()
        result = byoc_core.VirtualMachine(executable)["main"](X[:5], Y[:5])
        assert backend.lowered == ["toy_main_0", "toy_main_1"]  # this call compiled
        np.testing.assert_allclose(result, EXPECTED[:5], rtol=1e-6)


def test_two_backends_and_an_accumulation_over_steps() -> None:
    def accumulate(function: Function, builder: LoweringBuilder) -> None:
        """Compute ``x + y`` with the result as accumulator."""
        x, y = builder.inputs
        (out,) = builder.outputs
        builder.options = BuildOptions(opt_level=1, march="generic")
        builder.copy(y, out)
        with builder.loop(x.size) as index:
            builder.call_extern("toy_accumulate", x.part(index, 1), out.part(index, 1).updated(), 1)

    text = """
def main(x: R.Tensor(("n",)), y: R.Tensor(("n",))):
    a = R.add(x, y)
    b = R.nn.relu(a)
    c = R.add(b, y)
    return c
"""
    backends = [LoweringToy(op_by_op, "one", ops=("nn.relu",)), LoweringToy(accumulate, "two", ops=("add",))]
    executable = byoc_core.build(R.parse(text), backends, strict=True)
    executable.require_offload(1.0)
    assert [name.split("_")[0] for name in called_symbols(executable)] == ["two", "two", "one", "two", "two"]
    assert len(executable.modules) == 2
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](X, Y), np.maximum(X + Y, 0) + Y)


def test_an_error_in_a_step_names_the_region_and_the_function() -> None:
    def lower(function: Function, builder: LoweringBuilder) -> None:
        (x,), (out,) = builder.inputs, builder.outputs
        builder.call_extern("toy_refuse_large", x, out.written(), x.size, returns_status=True)

    text = 'def main(x: R.Tensor(("n",))):\n    y = R.nn.relu(x)\n    return y\n'
    executable = byoc_core.build(R.parse(text), [LoweringToy(lower)], strict=True)
    machine = byoc_core.VirtualMachine(executable)
    np.testing.assert_array_equal(machine["main"](np.ones(3, F32)), np.ones(3))
    with pytest.raises(ExecutionError) as caught:
        machine["main"](np.ones(4, F32))
    assert str(caught.value).endswith("function `toy_main_0`: `toy_refuse_large` returned 7")


class TestControlFlow:
    def test_a_region_in_a_loop_keeps_values_of_a_round_apart(self) -> None:
        """The carried value is the operand of the region and the target of its result."""

        def lower(function: Function, builder: LoweringBuilder) -> None:
            (x, *_), (out,) = builder.inputs, builder.outputs
            builder.call_extern("toy_scale", x, out.written(), x.size, 2.0)
            builder.call_extern("toy_accumulate", x, out.updated(), x.size)

        text = """
def main(trips: R.Tensor((), "int64"), x: R.Tensor((7,))):
    def body(i: R.Tensor((), "int64"), v: R.Tensor((7,))):
        w = R.nn.relu(v)
        return R.const(True, "bool"), w
    r = R.loop(trips, R.const(True, "bool"), x, regions=[body])
    return r
"""
        executable = byoc_core.build(R.parse(text), [LoweringToy(lower)], strict=True)
        assert any(module.type_key == "csource" for module in executable.modules)
        for trips in range(4):
            result = byoc_core.VirtualMachine(executable)["main"](np.int64(trips), X)
            np.testing.assert_array_equal(result, X * 3**trips)


class TestMemoryPlans:
    """Intermediates of lowered regions, and values between regions, share a single plan."""

    def lower(self, function: Function, builder: LoweringBuilder) -> None:
        """Lower a function to steps with intermediates: first large, then small, or the other way round."""
        (x,), (out,) = builder.inputs, builder.outputs
        sizes = (1024, 64) if function.name == "toy_main_0" else (64, 1024)
        previous, length = x, 16
        for size in sizes:
            t = builder.allocate(tensor((size,)), "t")
            builder.call_extern("toy_fill", t.written(), size, 0.0)
            builder.call_extern("toy_accumulate", previous, t.part(0, length).updated(), length)
            previous = t
        builder.copy(previous.part(0, length), out)

    TEXT = """
def main(x: R.Tensor((16,))):
    a = R.nn.relu(x)
    b = R.exp(a)
    c = R.nn.relu(b)
    return c
"""

    def test_the_arena_is_the_plan_over_all_buffers(self) -> None:
        executable = byoc_core.build(R.parse(self.TEXT), [LoweringToy(self.lower)], strict=True)
        (module,) = (module for module in executable.modules if module.type_key == "csource")
        steps = {name: module.call_steps(name) for name in ("toy_main_0", "toy_main_1")}
        assert all(found is not None and len(found.buffers) == 2 for found in steps.values())
        # Each region runs 5 steps; the host runs between. Numbers are positions in the program.
        intervals = [
            Interval(4 * 1024, 0, 3),
            Interval(4 * 64, 2, 4),
            Interval(4 * 16, 4, 5),  # a
            Interval(4 * 16, 5, 7),  # b
            Interval(4 * 64, 6, 9),
            Interval(4 * 1024, 8, 10),
        ]
        assert called_symbols(executable) == [
            *(f"toy_main_0_step{number}" for number in range(5)),
            "host_main_0",
            *(f"toy_main_1_step{number}" for number in range(5)),
        ]
        assert arena_nbytes(executable.program.functions[0]) == plan(intervals).total == 4 * (1024 + 64)
        result = byoc_core.VirtualMachine(executable)["main"](np.ones(16, F32))
        np.testing.assert_allclose(result, np.full(16, np.e), rtol=1e-6)

    def test_joint_planning_needs_less_than_workspaces_of_regions(self) -> None:
        """A value between regions lies in a hole of a region's plan; a workspace would lie beside the value."""

        def lower(function: Function, builder: LoweringBuilder) -> None:
            (x,), (out,) = builder.inputs, builder.outputs
            large, small = builder.allocate(tensor((4096,)), "large"), builder.allocate(tensor((4096,)), "small")
            builder.call_extern("toy_scale", x, large.written(), 4096, 2.0)
            builder.call_extern("toy_scale", large, small.written(), 4096, 2.0)
            builder.call_extern("toy_scale", small, out.written(), 4096, 2.0)

        text = self.TEXT.replace("16", "4096")
        executable = byoc_core.build(R.parse(text), [LoweringToy(lower)], strict=True)
        (module,) = (module for module in executable.modules if module.type_key == "csource")
        nbytes = 4 * 4096
        workspace = module.call_traits("toy_main_0").workspace_nbytes
        assert workspace == 2 * nbytes
        by_regions = plan(
            [Interval(2 * nbytes, 0, 0), Interval(nbytes, 0, 1), Interval(nbytes, 1, 2), Interval(2 * nbytes, 2, 2)]
        )
        assert by_regions.total == 3 * nbytes
        assert arena_nbytes(executable.program.functions[0]) == 2 * nbytes
        result = byoc_core.VirtualMachine(executable)["main"](np.zeros(4096, F32))
        np.testing.assert_array_equal(result, np.full(4096, 8))


def test_the_info_of_the_backend_is_checked_like_any_other() -> None:
    handle = byoc_core.backends.get(LoweringToy(op_by_op))
    assert handle.info() == BackendInfo("toy", dynamic_shapes=True, native=True)
    assert handle.codegen([], handle.context()) == CodegenResult(None)
