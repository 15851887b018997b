"""Guarantees to a backend of static shapes: fitting types, and checked rules; and separate parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.backend.registry import Backends
from byoc_core.dims import parse_dim
from byoc_core.errors import ByocError, ExecutionError
from byoc_core.ir import Binding, Function, IRModule, Var, verify
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.specialised import SpecialisedModule
from hypothesis import given
from hypothesis import strategies as st

from core.tests.specialised_toys import Toy, host_lines, shares


class Strict(Toy):
    """A toy with a codegen checking the laws of the IR, and the absence of sizes refused by the rule."""

    @hookimpl
    def byoc_patterns(self) -> Sequence[Any]:
        return ()

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        _check_alone(binding)
        return super().byoc_supports(binding)

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        for function in functions:
            verify(IRModule({function.name: function}, context.constants))  # type: ignore[arg-type]
            for binding in function.walk():
                assert self.refuse(binding) is None, f"codegen gets what the rule refuses: {binding}"
        return super().byoc_codegen(functions, context)


def _check_alone(binding: Binding) -> None:
    """Check an op against the laws of the IR, in a separate function."""
    params = dict.fromkeys(operand for operand in binding.operands if isinstance(operand, Var))
    verify(IRModule({"f": Function("f", tuple(params), (binding,), binding.results)}))


def rows_of(binding: Binding) -> int:
    shape: Any = getattr(binding.results[0].type, "shape", ())
    return int(shape[0])


FITTING: dict[str, tuple[str, list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "matmul": ("c = R.matmul(x, y)", [(2, 3), (3, 4)], [(2, 3), (1, 4)]),
    "add": ("c = R.add(x, y)", [(2, 3), (1, 3)], [(2, 3), (2, 4)]),
    "concat": ("c = R.concat(x, y, axis=0)", [(2, 3), (4, 3)], [(2, 3), (4, 2)]),
}


@pytest.mark.parametrize("op", FITTING)
@pytest.mark.parametrize("specialize", [True, [{"n": 2, "k": 3, "l": 3, "m": 4}]])
def test_no_backend_gets_sizes_that_break_a_type_rule(
    op: str, specialize: bool | Sequence[Mapping[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Symbols defer the check of sizes to the call; machine code for integers would read beyond its operands."""
    line, fitting, misfits = FITTING[op]
    module = R.parse(f"""
def main(x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("l", "m"), "float32")):
    {line}
    return c
""")
    executable = byoc_core.build(module, [Strict()], specialize=specialize, strict=True)
    host = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"]
    main = byoc_core.VirtualMachine(executable)["main"]
    arrays = [np.ones(shape, np.float32) for shape in fitting]
    np.testing.assert_array_equal(main(*arrays), host(*arrays))
    wrong = [np.ones(shape, np.float32) for shape in misfits]
    for run in (host, main):
        with pytest.raises(ByocError):
            run(*wrong)


def test_sizes_that_agree_are_taken_where_the_user_says_so(caplog: pytest.LogCaptureFixture) -> None:
    text = """
def main(x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("l", "m"), "float32")):
    c = R.matmul(x, y)
    return c
"""
    assert shares(byoc_core.build(R.parse(text), [Strict()])) == {"matmul": "host"}
    sets = [{"n": 2, "k": 3, "l": 3, "m": 4}]
    executable = byoc_core.build(R.parse(text), [Strict()], specialize=sets)
    assert shares(executable) == {"matmul": "toy"}
    main = byoc_core.VirtualMachine(executable)["main"]
    for k in (3, 5):
        np.testing.assert_array_equal(
            main(np.ones((2, k), np.float32), np.ones((k, 4), np.float32)), np.full((2, 4), k)
        )
    assert host_lines(caplog) == []
    with pytest.raises(ExecutionError):
        main(np.ones((2, 3), np.float32), np.ones((1, 4), np.float32))
    (line,) = host_lines(caplog)
    assert "a size is impossible: op `matmul`" in line


def few_rows(binding: Binding) -> str | None:
    return "too many rows" if rows_of(binding) >= 50 and binding.op.name == "exp" else None


EXP = "def main(x: R.Tensor(('n', 3), 'float32')):\n    a = R.exp(x)\n    return a\n"
SLICED = """
def main(x: R.Tensor(("n",), "float32")):
    a = R.exp(x)
    b = R.strided_slice(a, axes=(0,), begin=(20,), end=(60,), strides=(1,))
    c = R.exp(b)
    return c
"""


def test_rules_are_asked_by_a_compiler_of_a_loaded_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even though the rule accepts only the sizes used for making the artifact."""
    toy = Strict(lambda binding: "too many rows" if rows_of(binding) > 4 else None)
    executable = byoc_core.build(R.parse(EXP), [toy], specialize=[{"n": 2}])
    assert shares(executable) == {"exp": "toy"}
    executable.save(tmp_path / "m.byoc", respecializable=True)
    own = Backends.get
    handle = byoc_core.backends.get(toy)
    monkeypatch.setattr(Backends, "get", lambda self, item: handle if item == "toy" else own(self, item))
    loaded = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "m.byoc", compiler=byoc_core.compiler()))["main"]
    for main in (byoc_core.VirtualMachine(executable)["main"], loaded):
        for n in (2, 3, 100):
            np.testing.assert_allclose(main(np.zeros((n, 3), np.float32)), np.ones((n, 3)))
        (line,) = host_lines(caplog)
        assert line.endswith("refuses the sizes: too many rows")


def test_rules_are_asked_about_the_sizes_of_the_whole_region(caplog: pytest.LogCaptureFixture) -> None:
    """The slice is empty for few rows; asked about 64 rows, the rule refuses the first op."""
    executable = byoc_core.build(R.parse(SLICED), [Strict(few_rows)], strict=True)
    executable.require_offload(1.0)
    main = byoc_core.VirtualMachine(executable)["main"]
    for n in (45, 100):
        np.testing.assert_allclose(main(np.zeros(n, np.float32)), np.full(min(n, 60) - 20, np.e), rtol=1e-6)
    (line,) = host_lines(caplog)
    assert "for n = 100: cannot be compiled: backend `toy` refuses the sizes: too many rows" in line


def test_a_function_annotated_by_hand_goes_to_codegen_without_rules() -> None:
    text = """
class M:
    @R.function
    def region(x: R.Tensor(("n", 3), "float32")):
        R.func_attr({"Codegen": "toy", "global_symbol": "region"})
        a = R.exp(x)
        return a
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        b = region(x)
        return b
"""
    toy = Toy(lambda _: "never")
    main = byoc_core.VirtualMachine(byoc_core.build(R.parse(text), [toy]))["main"]
    toy.compiled.clear()
    np.testing.assert_allclose(main(np.zeros((5, 3), np.float32)), np.ones((5, 3)))
    assert toy.compiled == [[(5, 3)]]


MIXED = """
def main(x: R.Tensor(("n", 64), "float32"), a: R.Tensor((64, 64), "float32")):
    w = R.matmul(a, a)
    v = R.matmul(x, w)
    return v
"""


@pytest.mark.parametrize("sideways", [False, True])
def test_work_of_known_sizes_stays_with_the_backend_in_an_artifact(sideways: bool) -> None:
    options = PartitionOptions(sideways=sideways)
    static = byoc_core.build(R.parse(MIXED), [Toy()], specialize=False, partition_options=options)
    executable = byoc_core.build(R.parse(MIXED), [Toy()], partition_options=options)
    executable.require_offload(1.0)
    saved = executable.as_saved()
    assert saved.report_data["offloaded_share"] == static.report_data["offloaded_share"] > 0.9
    # Where an artifact holds sets of sizes, nothing is gained by keeping them apart.
    given_ = byoc_core.build(R.parse(MIXED), [Toy()], specialize=[{"n": 4}], partition_options=options)
    assert [row["backend"] for row in given_.report_data["regions"]] == ["toy"]
    given_.as_saved().require_offload(1.0)


def test_regions_of_known_sizes_are_compiled_together_and_have_no_variants() -> None:
    text = """
def main(y: R.Tensor(("n",)), u: R.Tensor((2,)), v: R.Tensor((3,))):
    a = R.exp(u)
    b = R.nonzero(a, out_types=[R.Tensor((1, "i"), "int64")])
    c = R.exp(v)
    d = R.nonzero(c, out_types=[R.Tensor((1, "j"), "int64")])
    e = R.exp(y)
    return b, d, e
"""
    calls: list[int] = []

    class Counting(Toy):
        @hookimpl
        def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            calls.append(len(functions))
            return super().byoc_codegen(functions, context)

    executable = byoc_core.build(R.parse(text), [Counting()])
    assert calls == [2, 1]
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    assert len(module.function_names) == 1


@pytest.mark.parametrize("fallback", ["allow", "error"])
def test_the_report_of_an_artifact_with_a_recipe_is_true_without_a_compiler(
    fallback: Literal["allow", "error"],
) -> None:
    executable = byoc_core.build(R.parse(EXP), [Toy()], fallback=fallback)
    saved = executable.as_saved(respecializable=True)
    assert saved.report_data["offloaded_share"] == 0
    (row,) = saved.report_data["specialised"]
    ending = {"allow": "host", "error": "error"}[fallback]
    assert row["others"] == f"compiler-or-{ending}"
    text = {"allow": "else on the host", "error": "else an error"}[fallback]
    assert f"at first use if the artifact is loaded with a compiler, {text}" in saved.report()


def test_a_module_of_other_types_for_given_sizes_is_the_backends_fault() -> None:
    class Wrong(Toy):
        @hookimpl
        def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            result = super().byoc_codegen(functions, context)
            assert result.module is not None
            for name in result.module.function_names:
                function = result.module.get_function(name)
                assert function.signature is not None
                inputs = function.signature.inputs
                changed = Signature(inputs, tuple(TensorSpec(s.name, s.dtype, (1, 3)) for s in inputs))
                object.__setattr__(function, "signature", changed)
                result.module.get_function = lambda _, function=function: function  # type: ignore[method-assign,misc]
            return result

    with pytest.warns(UserWarning, match="hook `byoc_codegen`: raised CallError: .*has another signature"):
        executable = byoc_core.build(R.parse(EXP), [Wrong()], specialize=[{"n": 3}])
    assert shares(executable) == {"exp": "host"}


def test_a_completed_size_is_none_that_the_user_named() -> None:
    asked: list[Any] = []

    class Asked(Toy):
        @hookimpl
        def byoc_supports(self, binding: Binding) -> Support | Rejection:
            asked.append([getattr(operand.type, "shape", None) for operand in binding.operands])
            return Support()

    text = """
def main(x: R.Tensor(("n", 4)), y: R.Tensor(("k", 4))):
    a = R.concat(x, y, axis=0)
    return a
"""
    byoc_core.build(R.parse(text), [Asked()], specialize=[{"n": 8}])
    assert asked[0] == [(8, 4), (9, 4)]


# Reports of strangers


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "region": lambda d: d["ops"][0].update(region=[1]),
    "outcome": lambda d: d["ops"][0].update(outcome={"a": 1}),
    "ops": lambda d: d.update(ops=7),
    "reasons": lambda d: d["ops"][0].update(reasons=[3, {"backend": []}]),
    "flops": lambda d: d["ops"][0].update(flops=-(10**40)),
    "names": lambda d: d["regions"][0].update(name=[1]),
    "backends": lambda d: d["backends"][0].update(name={}),
    "sizes": lambda d: d.update(counted_sizes={"n": "x"}),
    "half a size": lambda d: d.update(counted_sizes={"n": 1.5}),
    "a size of many digits": lambda d: d.update(counted_sizes={"n": 10**4000}),
    "an unknown size": lambda d: d.update(counted_sizes={"q": 2}),
    "no sizes": lambda d: d.update(counted_sizes=None),
    "specialised": lambda d: d.update(specialised=[{"region": []}, 5]),
    "summary": lambda d: d.update(summary=[{"backend": [], "code": {}}, None]),
    "many terms": lambda d: d.update(
        ops=[{**d["ops"][0], "flops": "+".join(f"s{row}_{term}" for term in range(500))} for row in range(30)]
    ),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_any_report_of_a_loaded_artifact_is_saved_again(change: str) -> None:
    executable = byoc_core.build(R.parse(EXP), [Toy()])
    data = json.loads(json.dumps(dict(executable.report_data)))
    HOSTILE[change](data)
    changed = byoc_core.Executable(executable.program, executable.modules, executable.constants, data)
    for respecializable in (False, True):
        changed.as_saved(respecializable=respecializable).report()
    changed.to_bytes()


def test_sizes_that_a_report_counted_stay_counted() -> None:
    explained = byoc_core.build(R.parse(MIXED), [Toy()])
    data = json.loads(json.dumps(dict(explained.report_data)))
    data["counted_sizes"] = {"n": 1000}
    saved = byoc_core.Executable(explained.program, explained.modules, explained.constants, data).as_saved()
    assert saved.report_data["counted_sizes"] == {"n": 1000}
    static = 2 * 64**3
    assert saved.report_data["offloaded_share"] == pytest.approx(static / (static + 2 * 1000 * 64 * 64), rel=0.01)


@given(st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from(["n", "m", "3", "2*n", "n*m", "m//2"])), max_size=40))
def test_long_sums_are_read_as_they_are_added(parts: list[tuple[str, str]]) -> None:
    text, expected = "7", parse_dim("7")
    for sign, part in parts:
        text += f"{sign}{part}"
        expected = expected + parse_dim(part) if sign == "+" else expected - parse_dim(part)
    assert parse_dim(text) == expected


def test_types_are_checked_in_bodies_too() -> None:
    """Ops in a branch are claimed there; the region gets fitting sizes."""
    text = """
class M:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("l", 4), "float32")):
        @R.region
        def then(x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("l", 4), "float32")):
            a = R.matmul(x, y)
            return a
        @R.region
        def otherwise(x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("l", 4), "float32")):
            s = R.sum(x, axis=(1,), keepdims=True)
            b = R.broadcast_to(s, shape=("n", 4))
            return b
        d = R.if_(c, x, y, regions=(then, otherwise))
        return d
"""
    module = R.parse(text)
    sets = [{"n": 2, "k": 3, "l": 3}]
    for specialize in (True, sets):
        main = byoc_core.VirtualMachine(byoc_core.build(module, [Strict()], strict=True, specialize=specialize))["main"]
        for n in (2, 5):
            fitting = np.ones((n, 3), np.float32), np.ones((3, 4), np.float32)
            for chosen in (True, False):
                np.testing.assert_array_equal(main(np.asarray(chosen), *fitting), np.full((n, 4), 3))
