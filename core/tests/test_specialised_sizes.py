"""Backends of static shapes and models with symbolic sizes: compiled for each set of sizes, and never for another."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.errors import ArtifactError, ByocError, CallError, ExecutionError, OptionsError, UntrustedCodeError
from byoc_core.ir import Binding, Function, IRModule, TensorType
from byoc_core.pattern import CompositePattern, Match, is_op, wildcard
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.specialised import SpecialisedModule
from byoc_core.runtime.specialised_plugin import byoc_load_module, byoc_save_module
from byoc_core.transform import evaluate_function
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = """
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", "n"), "float32"), z: R.Tensor((3,), "float32")):
    a = R.add(x, x)
    b = R.nn.relu(a)
    c = R.matmul(y, b)
    d = R.reshape(c, shape=("2*m", 2))
    e = R.exp(z)
    return d, e
"""
MODULE = R.parse(TEXT)


class Toy:
    """A backend of static shapes that notes for which shapes it compiles; it takes all ops but those refused."""

    def __init__(self, refuse: Callable[[Binding], str | None] = lambda _: None) -> None:
        self.compiled: list[list[tuple[Any, ...]]] = []
        self.refuse = refuse
        self.codegen_refuses = False

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("toy")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        _check_static(binding)
        reason = self.refuse(binding)
        return Support() if reason is None else Rejection("shape", reason)

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        def check(match: Match) -> None:
            for binding in match.bindings:
                _check_static(binding)
            assert match.tensor("sum").shape is not None
            assert match.binding("sum").op.name == "add"
            assert [user.op.name for user in match.users("sum")] == ["nn.relu"]

        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()).named("sum"))
        return [CompositePattern("toy.add_relu", pattern, check)]

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        for function in functions:
            for binding in function.walk():
                _check_static(binding)
            self.compiled.append([param.type.shape or () for param in function.params])  # type: ignore[union-attr]
        if self.codegen_refuses:
            return CodegenResult(None, rejections={f.name: Rejection("mood", "not today") for f in functions})
        return GraphCodegen().compile(functions, context)


def _check_static(binding: Binding) -> None:
    for value in (*binding.operands, *binding.results):
        assert isinstance(value.type, TensorType)
        assert value.type.shape is not None
        assert all(type(dim) is int for dim in value.type.shape), binding


def inputs_of(n: int, m: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n * 100 + m)
    return tuple(rng.standard_normal(shape, np.float32) for shape in ((n, 4), (m, n), (3,)))


def check(main: Any, n: int, m: int, module: IRModule = MODULE) -> None:
    inputs = inputs_of(n, m)
    for found, expected in zip(main(*inputs), evaluate_function(module, "main", inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def shares(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["op"]: row["outcome"] for row in executable.report_data["ops"]}


def test_without_it_the_report_says_static_shapes_only() -> None:
    executable = byoc_core.build(MODULE, [Toy()])
    outcomes = shares(executable)
    assert {op for op, taker in outcomes.items() if taker == "toy"} == {"exp"}
    assert {outcomes[op] for op in ("add", "nn.relu", "matmul")} == {"host"}
    assert "toy: backend `toy` takes static shapes only [dynamic-shape]" in executable.report()
    with pytest.raises(byoc_core.errors.PartitionError, match="takes static shapes only"):
        byoc_core.build(MODULE, [Toy()], fallback="error")


def test_sizes_given_are_compiled_once_and_others_at_first_use() -> None:
    toy = Toy()
    executable = byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 3}, {"n": 1, "m": 1}])
    outcomes = shares(executable)
    assert {outcomes[op] for op in ("add", "nn.relu", "matmul", "exp")} == {"toy"}
    given_shapes = [shapes for shapes in toy.compiled if shapes != [(3,)]]
    assert len(given_shapes) == 2
    main = byoc_core.VirtualMachine(executable)["main"]
    for n, m in ((2, 3), (1, 1), (2, 3)):
        check(main, n, m)
    assert len(toy.compiled) == 3  # the function of known sizes is compiled once
    for n, m in ((5, 2), (2, 5), (5, 2)):
        check(main, n, m)
    assert len(toy.compiled) == 5
    assert executable.report_data["specialised"][0]["sizes"] == [{"m": 3, "n": 2}, {"m": 1, "n": 1}]
    assert "m = 3, n = 2; m = 1, n = 1" in executable.report()
    explained = byoc_core.explain(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    assert explained.report_data["specialised"][0]["sizes"] == [{"m": 3, "n": 2}]


@settings(max_examples=15)
@given(
    calls=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8),
    first=st.integers(0, 3),
)
def test_any_order_of_sizes_gives_what_the_reference_gives(calls: list[tuple[int, int]], first: int) -> None:
    sets = [{"n": n, "m": m} for n, m in calls[:first]]
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [Toy()], specialize=sets))["main"]
    for n, m in calls:
        check(main, n, m)


def test_an_op_that_is_refused_for_one_set_stays_on_the_host() -> None:
    def refuse(binding: Binding) -> str | None:
        shape: tuple[int, ...] = getattr(binding.results[0].type, "shape", ())
        return "rows must be even" if binding.op.name == "matmul" and shape[0] % 2 else None

    toy = Toy(refuse)
    executable = byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}, {"n": 2, "m": 3}])
    assert shares(executable)["matmul"] == "host"
    assert "toy: with m = 3, n = 2: rows must be even [shape]" in executable.report()
    assert shares(executable)["add"] == "toy"
    check(byoc_core.VirtualMachine(executable)["main"], 4, 3)
    # Nobody said which sizes come: sizes that no rule is asked about may be refused when they come.
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [Toy(_no_three)], specialize=[]))["main"]
    check(main, 4, 4)


def _no_three(binding: Binding) -> str | None:
    return "three" if 3 in getattr(binding.results[0].type, "shape", ()) and binding.op.name != "exp" else None


def test_what_codegen_refuses_goes_to_the_host_or_is_an_error_of_the_call() -> None:
    toy = Toy()
    toy.codegen_refuses = True
    executable = byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}])
    assert set(shares(executable).values()) <= {"host", "(view)"}
    assert "with m = 2, n = 2: not today" in executable.report()
    toy = Toy()
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}]))["main"]
    toy.codegen_refuses = True
    check(main, 2, 2)
    with pytest.raises(ExecutionError, match=r"backend `toy` for .*n = 7.*cannot be compiled: .*not today"):
        main(*inputs_of(7, 7))
    toy.codegen_refuses = False
    check(main, 7, 7)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([{"k": 2}], "specialize: the model has no size `k`; expected m, n"),
        ([{"n": -1}], "specialize, size `n`: is no size; got -1, expected an integer from 0"),
        ([{"n": True}], "specialize, size `n`: is no size; got True, expected an integer from 0"),
        ([{"n": 1.0}], "specialize, size `n`: is no size; got 1.0, expected an integer from 0"),
        ({"n": 1}, """specialize: is no list of sets of sizes; got {'n': 1}, expected [{"n": 1}, {"n": 8}]"""),
        ([3], """specialize: a set of sizes is no mapping; got 3, expected {"n": 8}"""),
    ],
)
def test_bad_sets_of_sizes(sizes: Any, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [Toy()], specialize=sizes)
    assert str(caught.value).startswith(text)


def test_an_artifact_holds_the_sizes_given_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}, {"n": 4, "m": 1}])
    main = byoc_core.VirtualMachine(executable)["main"]
    before = executable.to_bytes()
    check(main, 5, 5)
    assert executable.to_bytes() == before  # what calls brought is not saved
    executable.save(path)
    for compiler in (None, byoc_core.compiler()):
        main = byoc_core.VirtualMachine(byoc_core.load(path, compiler=compiler))["main"]
        check(main, 2, 3)
        check(main, 4, 1)
        with pytest.raises(ExecutionError) as caught:
            main(*inputs_of(2, 4))
        assert isinstance(caught.value.__cause__, CallError)
        text = str(caught.value.__cause__)
        assert "of backend `toy`, which takes static shapes only: is not compiled for these sizes; got " in text
        assert "expected one of: " in text
        assert text.endswith("Give these sizes to `build(specialize=...)`.")
    again = byoc_core.load(path)
    assert again.to_bytes() == path.read_bytes()


def test_an_artifact_that_could_never_run_is_not_written(tmp_path: Path) -> None:
    for sets in ([], [{"n": 2}]):
        executable = byoc_core.build(MODULE, [Toy()], specialize=sets)
        check(byoc_core.VirtualMachine(executable)["main"], 3, 2)
        with pytest.raises(OptionsError) as caught:
            executable.save(tmp_path / "model.byoc")
        assert "is compiled for no sizes, so an artifact could not run it" in str(caught.value)
        assert "Give sets of sizes with m, n to `build(specialize=...)`" in str(caught.value)
        assert not (tmp_path / "model.byoc").exists()


def test_a_recipe_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}]).save(path, respecializable=True)
    main = byoc_core.VirtualMachine(byoc_core.load(path))["main"]
    check(main, 2, 3)
    with pytest.raises(ExecutionError, match=r"Load the artifact with `load\(path, compiler=byoc_core.compiler\(\)\)`"):
        main(*inputs_of(3, 3))


def test_threads_compile_each_set_of_sizes_once() -> None:
    toy = Toy()
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [toy], specialize=[]))["main"]
    toy.compiled.clear()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for n, m in ((2, 3), (3, 2), (2, 2), (2, 3)):
                check(main, n, m)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(toy.compiled) == 3


def made_module(max_first_uses: int) -> tuple[SpecialisedModule, list[int], dict[str, Signature]]:
    """Return a module of one function, ``f(x) = x + x``, and the sizes for which it has been compiled."""
    text = "def f(x: R.Tensor(('n',), 'float32')):\n    a = R.add(x, x)\n    return a\n"
    compiled: list[int] = []

    def compile_sizes(name: str, sizes: Mapping[str, int]) -> Any:
        compiled.append(sizes["n"])
        function = R.parse(text.replace("'n'", str(sizes["n"])))["f"]
        result = GraphCodegen().compile([function], CompileContext("toy"))
        assert result.module is not None
        return result.module

    spec = TensorSpec("x", "float32", tuple(R.parse(text)["f"].params[0].type.shape or ()))  # type: ignore[union-attr]
    signatures = {"f": Signature((spec,), (TensorSpec("a", "float32", spec.shape),))}
    return SpecialisedModule("toy", signatures, (), compile_sizes, max_first_uses=max_first_uses), compiled, signatures


def test_the_cache_is_bounded_and_the_set_used_least_recently_goes() -> None:
    module, compiled, _ = made_module(2)
    function = module.get_function("f")
    for n in (1, 2, 1, 3, 1, 2):
        x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
        function(x, out)
        assert out.tolist() == [2.0] * n
    assert compiled == [1, 2, 3, 2]
    assert module.held_sizes("f") == ((("n", 1),), (("n", 2),))


def test_options_of_strangers_reach_no_compiler(tmp_path: Path) -> None:
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    data = json.loads(byoc_save_module(module))
    data["recipe"]["options"] = {"extra_flags": ["-fplugin=evil.so"]}
    changed = json.dumps(data).encode()
    compiler = byoc_core.compiler()
    with pytest.raises(UntrustedCodeError, match="holds options of backend `toy`"):
        byoc_load_module(changed, LoadContext(compiler=compiler))
    for context in (LoadContext(), LoadContext(allow_native=True, compiler=compiler)):
        assert byoc_load_module(changed, context).function_names == module.function_names
    data["recipe"]["options"] = {}
    byoc_load_module(json.dumps(data).encode(), LoadContext(compiler=compiler))


# Payloads that somebody changed


def payload() -> dict[str, Any]:
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    data: dict[str, Any] = json.loads(byoc_save_module(module.saved_with_recipe(keep=False)))
    return data


def _second_function(data: dict[str, Any]) -> None:
    data["functions"].append(data["functions"][0])


def _widen_result(data: dict[str, Any]) -> None:
    function = next(item for item in data["functions"] if item["name"] == data["variants"][0]["function"])
    function["outputs"][0]["dtype"] = "float64"


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda d: d.update(version=2),
    "field": lambda d: d.update(more=1),
    "two functions": _second_function,
    "undeclared": lambda d: d["variants"][0].update(function="other"),
    "nested": lambda d: d["variants"][0].update(runtime="specialised"),
    "format": lambda d: d["variants"][0].update(format=77),
    "base64": lambda d: d["variants"][0].update(payload="%%%"),
    "payload": lambda d: d["variants"][0].update(payload="AAAA"),
    "sizes": lambda d: d["variants"][0].update(sizes={"n": 3, "m": 3}),
    "no sizes": lambda d: d["variants"][0].update(sizes={}),
    "negative": lambda d: d["variants"][0].update(sizes={"n": -3, "m": 3}),
    "type": _widen_result,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_payload_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    data = payload()
    byoc_load_module(json.dumps(data).encode(), LoadContext())
    change(data)
    with pytest.raises(ArtifactError):
        byoc_load_module(json.dumps(data).encode(), LoadContext())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"version": 1}'])
def test_what_is_no_payload_is_refused(data: bytes) -> None:
    with pytest.raises(ByocError):
        byoc_load_module(data, LoadContext())
