"""Backends of static shapes and models with symbolic sizes: compiled for each set of sizes, never used for another."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.errors import (
    ExecutionError,
    OptionsError,
)
from byoc_core.ir import Binding, Function
from byoc_core.pattern import CompositePattern, Match, is_op, wildcard
from byoc_core.runtime.specialised import SpecialisedModule
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.specialised_toys import MODULE, Toy, check, check_static, host_lines, inputs_of, shares


def test_it_can_be_turned_off() -> None:
    executable = byoc_core.build(MODULE, [Toy()], specialize=False)
    outcomes = shares(executable)
    assert {op for op, taker in outcomes.items() if taker == "toy"} == {"exp"}
    assert {outcomes[op] for op in ("add", "nn.relu", "matmul")} == {"host"}
    assert "toy: backend `toy` takes static shapes only [dynamic-shape]" in executable.report()
    with pytest.raises(byoc_core.errors.PartitionError, match="takes static shapes only"):
        byoc_core.build(MODULE, [Toy()], specialize=False, fallback="error")


@pytest.mark.parametrize("specialize", [True, [], ()])
def test_by_default_sizes_are_compiled_at_first_use(specialize: bool | Sequence[Mapping[str, int]]) -> None:
    toy = Toy()
    executable = byoc_core.build(MODULE, [toy], specialize=specialize)
    assert executable.report() == byoc_core.build(MODULE, [Toy()]).report()
    outcomes = shares(executable)
    assert {outcomes[op] for op in ("add", "nn.relu", "matmul", "exp")} == {"toy"}
    executable.require_offload(1.0)
    (row,) = executable.report_data["specialised"]
    assert (row["sizes"], row["others"]) == ([], "first-use")
    assert f"{row['region']} (toy): at first use" in executable.report()
    assert byoc_core.explain(MODULE, [Toy()]).report() == executable.report()
    toy.compiled.clear()
    main = byoc_core.VirtualMachine(executable)["main"]
    for n, m in ((2, 3), (5, 1), (2, 3), (0, 2)):
        check(main, n, m)
    assert [shapes for shapes in toy.compiled if shapes != [(3,)]] == [
        [(2, 4), (3, 2)],
        [(5, 4), (1, 5)],
        [(0, 4), (2, 0)],
    ]


def test_a_model_of_known_sizes_is_built_as_ever() -> None:
    module = R.parse("def main(x: R.Tensor((2,), 'float32')):\n    a = R.add(x, x)\n    return a\n")
    executable = byoc_core.build(module, [Toy()])
    assert not any(isinstance(item, SpecialisedModule) for item in executable.modules)
    assert "specialised" not in executable.report_data


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


def test_what_codegen_refuses_goes_to_the_host_or_is_an_error_of_the_call() -> None:
    toy = Toy()
    toy.codegen_refuses = True
    executable = byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}])
    assert set(shares(executable).values()) <= {"host", "(view)"}
    assert "with m = 2, n = 2: not today" in executable.report()


def test_sizes_that_the_backend_refuses_run_on_the_host_with_one_word_each(caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy()
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}]))["main"]
    toy.codegen_refuses = True
    toy.compiled.clear()
    check(main, 2, 2)
    assert host_lines(caplog) == []
    for n in (7, 7, 8, 7):
        check(main, n, 7)
    first, second = host_lines(caplog)
    assert first.endswith("cannot be compiled: backend `toy` refuses the sizes: not today")
    assert " of backend `toy` runs on the host for m = 7, n = 7: " in first
    assert " runs on the host for m = 7, n = 8: " in second
    assert len(toy.compiled) == 2  # what was refused is not tried again
    toy.codegen_refuses = False
    check(main, 9, 7)
    assert len(toy.compiled) == 3
    assert host_lines(caplog) == []


def test_sizes_that_the_backend_refuses_are_an_error_without_fallback() -> None:
    toy = Toy()
    executable = byoc_core.build(MODULE, [toy], specialize=[{"n": 2, "m": 2}], fallback="error")
    main = byoc_core.VirtualMachine(executable)["main"]
    toy.codegen_refuses = True
    check(main, 2, 2)
    with pytest.raises(ExecutionError, match=r"backend `toy` for .*n = 7.*cannot be compiled: .*not today"):
        main(*inputs_of(7, 7))
    toy.codegen_refuses = False
    check(main, 7, 7)


def test_sizes_stand_in_for_symbols_that_nobody_names() -> None:
    asked: list[tuple[int, ...]] = []

    def refuse(binding: Binding) -> str | None:
        shape: tuple[int, ...] = getattr(binding.results[0].type, "shape", ())
        asked.append(shape)
        return {"exp": "no exp", "nn.relu": f"{shape[0]} rows"}.get(binding.op.name)

    text = "def main(x: R.Tensor(('n',), 'float32')):\n    a = R.%s\n    return a\n"
    for op, shape, reason in (
        ("exp(x)", (8,), "toy: no exp"),  # said of any size
        ("nn.relu(x)", (8,), "toy: with n = 8: 8 rows"),
        ("negative(x)", (8,), ""),
        ("strided_slice(x, axes=(0,), begin=(20,), end=(60,), strides=(1,))", (40,), ""),  # where n is 64 or more
    ):
        asked.clear()
        explained = byoc_core.explain(R.parse(text % op), [Toy(refuse)])
        (row,) = explained.report_data["ops"]
        assert row["text"] == reason
        assert asked[0] == shape


def _no_three(binding: Binding) -> str | None:
    return "three" if 3 in getattr(binding.results[0].type, "shape", ()) and binding.op.name != "exp" else None


class Choosy(Toy):
    """A toy with a pattern refusing five rows."""

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        def check(match: Match) -> Rejection | None:
            return Rejection("rows", "five rows") if 5 in (match.tensor("sum").shape or ()) else None

        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()).named("sum"))
        return [CompositePattern("toy.add_relu", pattern, check)]


def test_rules_are_asked_about_the_sizes_of_calls_before_codegen(caplog: pytest.LogCaptureFixture) -> None:
    toy = Choosy(_no_three)
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [toy]))["main"]
    toy.compiled.clear()
    check(main, 4, 3)
    check(main, 5, 2)
    three, five = host_lines(caplog)
    assert three.endswith("cannot be compiled: backend `toy` refuses the sizes: three")
    assert five.endswith("cannot be compiled: backend `toy` refuses the sizes: five rows")
    assert toy.compiled == []
    check(main, 4, 4)
    assert len(toy.compiled) == 1


class Broken(Toy):
    """A toy with a codegen raising for seven rows."""

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        for function in functions:
            if any(7 in (param.type.shape or ()) for param in function.params):  # type: ignore[union-attr]
                raise RuntimeError("seven\x1b[31m")
        return super().byoc_codegen(functions, context)


def test_an_exception_at_a_size_is_the_host_s_work_unless_strict(caplog: pytest.LogCaptureFixture) -> None:
    executable = byoc_core.build(MODULE, [Broken()])
    main = byoc_core.VirtualMachine(executable)["main"]
    check(main, 3, 7)
    check(main, 3, 7)
    (line,) = host_lines(caplog)
    assert " runs on the host for m = 7, n = 3: " in line
    assert "raised RuntimeError: seven\N{REPLACEMENT CHARACTER}[31m" in line
    check(main, 3, 3)
    assert host_lines(caplog) == []
    main = byoc_core.VirtualMachine(byoc_core.build(MODULE, [Broken()], strict=True))["main"]
    for _ in range(2):
        with pytest.raises(ExecutionError, match="raised RuntimeError: seven"):
            main(*inputs_of(3, 7))
    check(main, 3, 3)
    # Told in advance, it is the backend's refusal of the whole region.
    with pytest.warns(UserWarning, match="hook `byoc_codegen`: raised RuntimeError: seven"):
        executable = byoc_core.build(MODULE, [Broken()], specialize=[{"n": 3, "m": 7}])
    assert shares(executable)["matmul"] == "host"


class Other(Toy):
    """Another backend of static shapes, claiming only products."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("other")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        check_static(binding)
        return Support() if binding.op.name == "matmul" else Rejection("op", "products only")

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        return ()


def test_two_backends_of_static_shapes_share_a_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other, broken = Other(), Broken()
    executable = byoc_core.build(MODULE, [other, broken], specialize=[{"n": 2, "m": 3}])
    assert (shares(executable)["matmul"], shares(executable)["add"]) == ("other", "toy")
    main = byoc_core.VirtualMachine(executable)["main"]
    for n, m in ((2, 3), (7, 1), (1, 2), (7, 1)):
        check(main, n, m)
    (line,) = host_lines(caplog)
    assert "of backend `toy` runs on the host for n = 7" in line
    executable.save(tmp_path / "model.byoc")
    main = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc"))["main"]
    for n, m in ((2, 3), (1, 2)):
        check(main, n, m)
    assert sorted(line.partition(" runs on")[0].partition("backend ")[2] for line in host_lines(caplog)) == [
        "`other`",
        "`toy`",
    ]


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([{"k": 2}], "specialize: the model has no symbolic size `k`; expected m, n"),
        ([{"n": -1}], "specialize, size `n`: is not a valid size; got -1, expected an integer from 0"),
        ([{"n": True}], "specialize, size `n`: is not a valid size; got True, expected an integer from 0"),
        ([{"n": 1.0}], "specialize, size `n`: is not a valid size; got 1.0, expected an integer from 0"),
        (
            [{"n": 2**62 + 1}],
            "specialize, size `n`: is not a valid size; got an integer of 63 bits, expected an integer from 0 to",
        ),
        (
            [{"n": 10**5000}],
            "specialize, size `n`: is not a valid size; got an integer of 16610 bits, expected an integer",
        ),
        ({"n": 1}, """specialize: is not a list of sets of sizes; got {'n': 1}, expected [{"n": 1}, {"n": 8}]"""),
        ([3], """specialize: a set of sizes is not a mapping; got 3, expected {"n": 8}"""),
    ],
)
def test_bad_sets_of_sizes(sizes: Any, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [Toy()], specialize=sizes)
    assert str(caught.value).startswith(text)


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


def test_what_is_held_for_later_calls_is_the_region_and_not_the_model() -> None:
    seen: list[CompileContext] = []

    class Curious(Toy):
        @hookimpl
        def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            seen.append(context)
            return super().byoc_codegen(functions, context)

    executable = byoc_core.build(MODULE, [Curious()])
    seen.clear()
    check(byoc_core.VirtualMachine(executable)["main"], 3, 3)
    (context,) = seen
    assert context.module is not None
    (specialised,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    symbols = [str(function.attrs["global_symbol"]) for function in context.module.functions.values()]
    assert symbols == list(specialised.function_names)
