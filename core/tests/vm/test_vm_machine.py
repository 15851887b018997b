from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, ExecutionError, LinkError, ProgramError
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, Signature, TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VirtualMachine,
    VMFunction,
)

from core.tests.vm.native_functions import native_function
from core.tests.vm.programs import Executable, spec

pytestmark = pytest.mark.interpreter

n, m, k = parse_dim("n"), parse_dim("m"), parse_dim("k")
EXTERN, PACKED, FUNCTION, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.FUNCTION, CallKind.BUILTIN


class FakeModule(RuntimeModule):
    def __init__(self, key: str, **functions: Callable[..., object] | PackedFunction) -> None:
        self._key = key
        self._functions = {
            name: function if isinstance(function, PackedFunction) else PackedFunction(name, function)
            for name, function in functions.items()
        }

    @property
    def type_key(self) -> str:
        return self._key

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        return self._functions[name]


def function(
    params: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    code: Sequence[Any],
    *,
    name: str = "main",
    constants: Sequence[int] = (),
    storages: Sequence[Any] = (),
    tensors: Sequence[PlannedTensor] = (),
    dynamics: Sequence[DynamicTensor] = (),
) -> VMFunction:
    return VMFunction(
        name,
        tuple(params),
        tuple(results),
        tuple(constants),
        tuple(storages),
        tuple(tensors),
        tuple(dynamics),
        tuple(code),
    )


def add(x: NDArray, y: NDArray, out: NDArray) -> None:
    np.add(x, y, out=out)


def machine(*functions: VMFunction, externs: Mapping[str, Callable[..., object]] | None = None) -> VirtualMachine:
    table = externs or {"add": add}
    program = Program(functions, tuple(table))
    return VirtualMachine(Executable(program), externs=MODE.get()(program, table))


def as_they_are(program: Program, externs: Mapping[str, Callable[..., object]]) -> Mapping[str, Callable[..., object]]:
    return externs


def as_native(program: Program, externs: Mapping[str, Callable[..., object]]) -> Mapping[str, Callable[..., object]]:
    """Make every function filling buffers callable by machine code."""
    filling = {
        program.externs[call.callee]
        for function in program.functions
        for call in function.code
        if isinstance(call, Call) and call.kind is EXTERN
    }
    return {name: native_function(name, f) if name in filling else f for name, f in externs.items()}


MODE: ContextVar[Callable[..., Mapping[str, Callable[..., object]]]] = ContextVar("MODE", default=as_they_are)


@pytest.fixture(params=[as_they_are, as_native], autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with calls made by Python, and with native calls."""
    if request.param is as_native and extension() is None:
        pytest.skip(extension_status()[1])
    token = MODE.set(request.param)
    yield
    MODE.reset(token)


ADD = function([spec("x", "n", 2), spec("y", "n", 2)], [spec("z", "n", 2)], [Call(EXTERN, 0, (0, 1), (2,)), Ret((2,))])
QUADRUPLE = function(
    [spec("x", "n")],
    [spec("y", "n")],
    [Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (2, 2), (1,)), Ret((1,))],
    storages=[parse_dim("4*n")],
    tensors=[PlannedTensor(0, 0, "float32", (n,))],
)


def ones(*shape: int) -> NDArray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) + 1


def test_symbolic_sizes_are_evaluated_per_call() -> None:
    vm = machine(QUADRUPLE)
    for size in (3, 3, 1000, 0, 5, 3):
        x = ones(size)
        y = vm["main"](x)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, 4 * x)


def test_intermediates_are_aligned_and_reused() -> None:
    seen = []

    def extern(x: NDArray, y: NDArray, out: NDArray) -> None:
        np.add(x, y, out=out)
        seen.append(out.ctypes.data)

    vm = machine(QUADRUPLE, externs={"add": extern})
    for _ in range(2):
        vm["main"](ones(5))
    assert seen[0] % 64 == 0
    assert seen[0] == seen[2]
    assert seen[0] not in (seen[1], seen[3])


def test_inputs_and_constants_reach_externs_without_a_copy() -> None:
    weight = ones(3)
    seen: list[NDArray] = []
    main = function(
        [spec("x", 3)],
        [spec("y", 3)],
        [Call(EXTERN, 0, (0, 2), (1,)), Ret((1,))],
        constants=[0],
    )
    program = Program((main,), ("keep",), (ConstantRef("a" * 64, "float32", (3,)),))
    vm = VirtualMachine(
        Executable(program, constants={"a" * 64: weight}), externs={"keep": lambda *arrays: seen.extend(arrays)}
    )
    x = ones(3)
    y = vm["main"](x)
    assert seen[0].ctypes.data == x.ctypes.data
    assert not seen[0].flags.writeable
    assert np.shares_memory(seen[1], weight)
    assert not seen[1].flags.writeable
    assert seen[2] is y


def test_several_results_come_as_a_tuple() -> None:
    main = function(
        [spec("x", 2)],
        [spec("a", 2), spec("b", 2)],
        [Call(EXTERN, 0, (0, 0), (1,)), Call(BUILTIN, Builtin.COPY, (0,), (2,)), Ret((1, 2))],
    )
    a, b = machine(main)["main"](ones(2))
    np.testing.assert_array_equal(a, [2, 4])
    np.testing.assert_array_equal(b, [1, 2])


def test_if_runs_one_branch() -> None:
    main = function(
        [spec("c", dtype="bool"), spec("x", 2)],
        [spec("y", 2)],
        [If(0, 3), Call(EXTERN, 0, (1, 1), (2,)), Goto(4), Call(BUILTIN, Builtin.COPY, (1,), (2,)), Ret((2,))],
    )
    vm = machine(main)
    np.testing.assert_array_equal(vm["main"](np.array(True), ones(2)), [2, 4])
    np.testing.assert_array_equal(vm["main"](np.bool_(False), ones(2)), [1, 2])


def test_loop_runs_until_condition_or_trip_count() -> None:
    main = function(
        [spec("trips", dtype="int64"), spec("x", 1)],
        [spec("y", 1)],
        [
            Call(BUILTIN, Builtin.ZERO, (), (3,)),
            Call(BUILTIN, Builtin.COPY, (1,), (2,)),
            Call(EXTERN, 1, (2,), (4,)),
            Call(BUILTIN, Builtin.LOOP_TEST, (3, 0, 4), (5,)),
            If(5, 10),
            Call(EXTERN, 0, (2, 2), (6,)),
            Call(BUILTIN, Builtin.COPY, (6,), (2,)),
            Call(EXTERN, 1, (2,), (4,)),
            Call(BUILTIN, Builtin.INCREMENT, (), (3,)),
            Goto(3),
            Ret((2,)),
        ],
        storages=[256],
        tensors=[
            PlannedTensor(0, 0, "int64", ()),
            PlannedTensor(0, 64, "bool", ()),
            PlannedTensor(0, 128, "bool", ()),
            PlannedTensor(0, 192, "float32", (1,)),
        ],
    )

    def below_hundred(x: NDArray, out: NDArray) -> None:
        out[...] = x[0] < 100

    vm = machine(main, externs={"add": add, "below": below_hundred})
    for trips, expected in [(0, 1), (3, 8), (50, 128), (-1, 1)]:
        np.testing.assert_array_equal(vm["main"](np.int64(trips), ones(1)), [expected])


def test_results_of_unknown_size() -> None:
    """``nonzero`` returns a number of indices known only then; a buffer of this size is made afterwards."""
    main = function(
        [spec("x", "n")],
        [spec("indices", "k", dtype="int64"), spec("doubled", "k", dtype="int64")],
        [
            Call(PACKED, 0, (0,), (3,)),
            Call(BUILTIN, Builtin.ALLOCATE, (), (4,)),
            Call(EXTERN, 1, (3, 3), (4,)),
            Ret((3, 4)),
        ],
        dynamics=[DynamicTensor("int64", (k,), ("k",)), DynamicTensor("int64", (k,))],
    )
    vm = machine(main, externs={"nonzero": lambda x: np.nonzero(x)[0], "add": add})
    for x in (np.array(values, np.float32) for values in ([0, 1, 0, 2], [0, 0], [3])):
        indices, doubled = vm["main"](x)
        np.testing.assert_array_equal(indices, np.flatnonzero(x))
        np.testing.assert_array_equal(doubled, 2 * np.flatnonzero(x))
    out = np.zeros(2, np.int64)
    got, _ = vm.run("main", {"x": np.array([0, 1, 0, 2], np.float32)}, out={"doubled": out})[::-1]
    assert got is out
    np.testing.assert_array_equal(out, [2, 6])
    with pytest.raises(CallError) as caught:
        vm.run("main", {"x": np.array([1], np.float32)}, out={"doubled": out})
    assert str(caught.value) == (
        "function `main`, output 1 `doubled`: has another shape than the result; got [2], expected [1]"
    )


def test_returned_values_never_alias_arguments_or_intermediates() -> None:
    main = function(
        [spec("x", 4)],
        [spec("a", "k"), spec("b", "j")],
        [
            Call(EXTERN, 0, (0, 0), (3,)),
            Call(PACKED, 1, (3,), (4,)),
            Call(PACKED, 1, (0,), (5,)),
            Ret((4, 5)),
        ],
        storages=[16],
        tensors=[PlannedTensor(0, 0, "float32", (4,))],
        dynamics=[DynamicTensor("float32", (k,), ("k",)), DynamicTensor("float32", (parse_dim("j"),), ("j",))],
    )
    vm = machine(main, externs={"add": add, "tail": lambda x: x[1:]})
    x = ones(4)
    first, second = vm["main"](x)
    vm["main"](10 * x)
    np.testing.assert_array_equal(first, [4, 6, 8])
    np.testing.assert_array_equal(second, [2, 3, 4])
    assert not np.shares_memory(second, x)


def test_values_returned_together_never_alias_each_other() -> None:
    main = function(
        [spec("x", 4)],
        [spec("a", "k"), spec("b", "k")],
        [Call(PACKED, 0, (0,), (3, 4)), Ret((3, 4))],
        dynamics=[DynamicTensor("float32", (k,), ("k",)), DynamicTensor("float32", (k,))],
    )

    def twice(x: NDArray) -> tuple[Any, Any]:
        fresh = x + 1
        return fresh, fresh

    first, second = machine(main, externs={"twice": twice})["main"](ones(4))
    np.testing.assert_array_equal(first, second)
    assert not np.shares_memory(first, second)


def test_functions_call_functions_with_their_own_symbols() -> None:
    callee = function(
        [spec("a", "m")],
        [spec("b", "m"), spec("c", "j", dtype="int64")],
        [Call(EXTERN, 0, (0, 0), (1,)), Call(PACKED, 1, (0,), (3,)), Ret((1, 3))],
        name="callee",
        dynamics=[DynamicTensor("int64", (parse_dim("j"),), ("j",))],
    )
    main = function(
        [spec("x", "n"), spec("y", 2)],
        [spec("u", "n"), spec("v", "k", dtype="int64"), spec("w", 2), spec("z", 1, dtype="int64")],
        [Call(FUNCTION, 1, (0,), (2, 6)), Call(FUNCTION, 1, (1,), (4, 5)), Ret((2, 6, 4, 5))],
        dynamics=[DynamicTensor("int64", (k,), ("k",))],
    )
    vm = machine(main, callee, externs={"add": add, "nonzero": lambda x: np.nonzero(x)[0]})
    u, v, w, z = vm["main"](np.array([5, 0, 7], np.float32), np.array([0, 1], np.float32))
    np.testing.assert_array_equal(u, [10, 0, 14])
    np.testing.assert_array_equal(v, [0, 2])
    np.testing.assert_array_equal(w, [0, 2])
    np.testing.assert_array_equal(z, [1])
    with pytest.raises(ExecutionError) as caught:
        vm["main"](ones(3), ones(2))
    assert str(caught.value) == (
        "function `main`, instruction 1 (call `callee`): failed with CallError: copy: the shapes differ; "
        "got [2], expected [1]"
    )


def test_modules_functions_serve_both_kinds_of_call() -> None:
    signature = Signature((spec("a", "n"), spec("b", "n")), (spec("c", "n"),))
    module = FakeModule("fake", add=PackedFunction("add", add, signature))
    main = function(
        [spec("x", "n")],
        [spec("y", "n")],
        [Call(PACKED, 0, (0, 0), (2,)), Call(EXTERN, 0, (2, 2), (1,)), Ret((1,))],
        dynamics=[DynamicTensor("float32", (n,))],
    )
    vm = VirtualMachine(Executable(Program((main,), ("add",)), (module,)))
    np.testing.assert_array_equal(vm["main"](ones(3)), 4 * ones(3))


def test_linking_asks_a_module_for_its_names_once() -> None:
    asked = []

    class Counting(FakeModule):
        @property
        def function_names(self) -> tuple[str, ...]:
            asked.append(self)
            return super().function_names

    module = Counting("fake", **{f"add_{index}": add for index in range(20)})
    calls = [Call(EXTERN, index, (0, 0), (1,)) for index in range(20)]
    main = function([spec("x", 3)], [spec("y", 3)], [*calls, Ret((1,))])
    VirtualMachine(Executable(Program((main,), module.function_names), (module,)))
    assert len(asked) == 2


def test_an_extern_given_by_hand_wins_over_a_module() -> None:
    module = FakeModule("fake", add=add)
    vm = VirtualMachine(
        Executable(Program((ADD,), ("add",)), (module,)), externs={"add": lambda x, y, out: np.subtract(x, y, out=out)}
    )
    np.testing.assert_array_equal(vm["main"](ones(1, 2), ones(1, 2)), [[0, 0]])


def test_eight_threads_share_one_machine() -> None:
    vm = machine(QUADRUPLE)
    failures: list[object] = []
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(200):
            x = random.random(int(random.integers(0, 50)), np.float32)
            if not np.array_equal(vm["main"](x), 4 * x):
                failures.append(x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_frame_keeps_no_reference_to_arguments() -> None:
    import gc
    import weakref

    vm = machine(QUADRUPLE)
    x = ones(4)
    y = vm["main"](x)
    references: list[weakref.ref[object]] = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [reference() for reference in references] == [None, None]


class TestOutputBuffers:
    def test_results_are_written_into_the_given_buffer(self) -> None:
        out = np.zeros((2, 2), np.float32)
        x = ones(2, 2)
        assert machine(ADD).run("main", {"y": x, "x": x}, out={"z": out}) is out
        np.testing.assert_array_equal(out, 2 * x)

    def test_a_buffer_may_overlap_an_input(self) -> None:
        def shifted_add(x: NDArray, y: NDArray, out: NDArray) -> None:
            out[...] = 0
            out += x[::-1] + y

        vm = machine(ADD, externs={"add": shifted_add})
        memory = ones(3, 2)
        x, out = memory[:2], memory[1:]
        expected = x[::-1] + x
        vm.run("main", {"x": x, "y": x.copy()}, out={"z": out})
        np.testing.assert_array_equal(out, expected)

    def test_a_buffer_need_not_be_contiguous(self) -> None:
        out = np.zeros((2, 4), np.float32)
        x = ones(2, 2)
        machine(ADD).run("main", {"x": x, "y": x}, out={"z": out[:, ::2]})
        np.testing.assert_array_equal(out[:, ::2], 2 * x)
        np.testing.assert_array_equal(out[:, 1::2], 0)

    def test_wrong_buffers_are_named(self) -> None:
        vm = machine(ADD)
        x = ones(2, 2)
        frozen = np.zeros((2, 2), np.float32)
        frozen.flags.writeable = False
        cases: list[tuple[dict[str, object], str]] = [
            ({"z": frozen}, "function `main`, output 0 `z`: is read-only. Pass a writable array."),
            (
                {"z": np.zeros((3, 2), np.float32)},
                "function `main`, output 0 `z`: axis 0 has the wrong size; got [3, 2], expected [n, 2] with n = 2",
            ),
            ({"z": np.zeros((2, 2))}, "function `main`, output 0 `z`: wrong dtype; got float64, expected float32"),
            ({"zz": x}, "function `main`: has no output `zz`; expected z. Did you mean 'z'?"),
        ]
        for out, text in cases:
            with pytest.raises(CallError) as caught:
                vm.run("main", {"x": x, "y": x}, out=out)
            assert str(caught.value) == text


class TestInputs:
    def test_dlpack_and_strided_inputs(self) -> None:
        class Foreign:
            def __init__(self, array: NDArray) -> None:
                self._array = array

            def __dlpack__(self, **options: Any) -> Any:
                return self._array.__dlpack__(**options)

            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

        x = ones(2, 4)[:, ::2]
        np.testing.assert_array_equal(machine(ADD)["main"](x, Foreign(ones(2, 2))), x + ones(2, 2))

    def test_wrong_inputs_are_named(self) -> None:
        vm = machine(ADD)
        main = vm["main"]
        main(ones(2, 2), ones(2, 2))
        cases: list[tuple[tuple[object, ...], str]] = [
            ((ones(3, 2),), "function `main`: wrong number of inputs; got 1, expected 2 (x, y)"),
            (
                (ones(3, 2), ones(4, 2)),
                "function `main`, input 1 `y`: axis 0 has the wrong size; got [4, 2], expected [n, 2] with n = 3",
            ),
            (
                (ones(3, 2), ones(3, 3)),
                "function `main`, input 1 `y`: axis 1 has the wrong size; got [3, 3], expected [n, 2] with n = 3",
            ),
            (
                (np.zeros((3, 2)), ones(3, 2)),
                "function `main`, input 0 `x`: wrong dtype; got float64, expected float32",
            ),
            (
                (ones(6), ones(3, 2)),
                "function `main`, input 0 `x`: wrong rank; got 1, shape [6], expected 2, shape [n, 2]",
            ),
            (
                ([[1.0, 2.0]], ones(1, 2)),
                (
                    "function `main`, input 0 `x`: is not an array; got list, "
                    "expected a numpy array or an object with __dlpack__"
                ),
            ),
        ]
        for inputs, text in cases:
            with pytest.raises(CallError) as caught:
                main(*inputs)
            assert str(caught.value) == text

    def test_values_that_are_not_given_by_name(self) -> None:
        vm = machine(ADD)
        inputs = {"x": ones(1, 2), "y": ones(1, 2)}
        for given, out, text in (
            (ones(1, 2), None, "function `main`: inputs are not passed by name; got ndarray, expected a mapping"),
            ([ones(1, 2)], None, "function `main`: inputs are not passed by name; got list, expected a mapping"),
            (inputs, ones(1, 2), "function `main`: outputs are not passed by name; got ndarray, expected a mapping"),
        ):
            with pytest.raises(CallError) as caught:
                vm.run("main", given, out)  # type: ignore[arg-type]
            assert str(caught.value) == text
        np.testing.assert_array_equal(vm.run("main", inputs, {}), vm.run("main", inputs))

    def test_wrong_names(self) -> None:
        vm = machine(ADD)
        cases: list[tuple[str, dict[str, object], str]] = [
            ("mian", {}, "function `mian`: is not in the program; expected main. Did you mean 'main'?"),
            ("main", {"x": ones(1, 2)}, "function `main`: input `y` is missing; expected x, y"),
            (
                "main",
                {"x": ones(1, 2), "xx": 1},
                "function `main`: has no input `xx`; expected x, y. Did you mean 'x'?",
            ),
        ]
        for name, inputs, text in cases:
            with pytest.raises(CallError) as caught:
                vm.run(name, inputs)
            assert str(caught.value) == text
        assert vm.functions == ("main",)


class TestLinking:
    def test_all_missing_symbols_are_named_before_anything_runs(self) -> None:
        program = Program((ADD,), ("dnnl_conv_1", "other", "add"))
        module = FakeModule("dnnl", dnnl_conv_0=add)
        with pytest.raises(LinkError) as caught:
            VirtualMachine(Executable(program, (module,)), externs={"add": add})
        assert str(caught.value) == (
            "program: 2 external symbols are not defined: dnnl_conv_1, other; expected definitions in the executable's "
            "modules or in `externs` (found: dnnl_conv_0, add). dnnl_conv_1: Did you mean 'dnnl_conv_0'?"
        )

    def test_two_modules_with_one_symbol(self) -> None:
        modules = (FakeModule("first", add=add), FakeModule("second", add=add))
        with pytest.raises(LinkError) as caught:
            VirtualMachine(Executable(Program((ADD,), ("add",)), modules))
        assert str(caught.value) == (
            "symbol `add`: is defined by two modules; got <runtime module first: add> and <runtime module second: add>"
        )

    def test_a_signature_that_does_not_fit(self) -> None:
        signature = Signature((spec("a", "n", 3), spec("b", "n", 3)), (spec("c", "n", 3),))
        module = FakeModule("fake", add=PackedFunction("add", add, signature))
        with pytest.raises(LinkError) as caught:
            VirtualMachine(Executable(Program((ADD,), ("add",)), (module,)))
        assert str(caught.value) == (
            "function `main`, instruction 0: register p0 does not fit `a` of the inputs of `add`; "
            "got float32[n, 2], expected float32[n, 3]"
        )

    def test_constants(self) -> None:
        main = function([], [spec("y", 2)], [Call(BUILTIN, Builtin.COPY, (1,), (0,)), Ret((0,))], constants=[0])
        program = Program((main,), (), (ConstantRef("a" * 64, "float32", (2,)),))
        with pytest.raises(LinkError) as caught:
            VirtualMachine(Executable(program))
        assert str(caught.value) == f"program: 1 constants are missing: {'a' * 64}"
        with pytest.raises(LinkError) as caught:
            VirtualMachine(Executable(program, constants={"a" * 64: ones(3)}))
        assert str(caught.value) == "constant 0: has another type; got float32[3], expected float32[2]"
        vm = VirtualMachine(Executable(program, constants={"a" * 64: ones(2)}))
        np.testing.assert_array_equal(vm["main"](), ones(2))

    def test_programs_are_verified_first(self) -> None:
        with pytest.raises(ProgramError):
            machine(function([], [], []))


@pytest.mark.parametrize("mode", [as_they_are], indirect=True)  # texts of native failures: test_call_list.py
class TestFailures:
    def test_a_failing_extern_is_named_and_chained(self) -> None:
        def fail(*arrays: NDArray) -> None:
            raise ZeroDivisionError("no")

        vm = machine(ADD, externs={"add": fail})
        with pytest.raises(ExecutionError) as caught:
            vm["main"](ones(1, 2), ones(1, 2))
        assert str(caught.value) == (
            "function `main`, instruction 0 (call_dps_packed `add`): failed with ZeroDivisionError: no"
        )
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_byoc_errors_of_an_extern_are_chained_too(self) -> None:
        def fail(*arrays: NDArray) -> None:
            raise CallError("kernel", "bad argument")

        vm = machine(ADD, externs={"add": fail})
        with pytest.raises(ExecutionError) as caught:
            vm["main"](ones(1, 2), ones(1, 2))
        assert str(caught.value) == (
            "function `main`, instruction 0 (call_dps_packed `add`): failed with CallError: kernel: bad argument"
        )
        assert isinstance(caught.value.__cause__, CallError)
        good = machine(ADD)
        np.testing.assert_array_equal(good["main"](ones(1, 2), ones(1, 2)), [[2, 4]])

    def test_an_inner_function_is_the_one_named(self) -> None:
        inner = function([spec("a", 2)], [spec("b", 2)], [Call(EXTERN, 0, (0, 0), (1,)), Ret((1,))], name="inner")
        outer = function([spec("a", 2)], [spec("b", 2)], [Call(FUNCTION, 1, (0,), (1,)), Ret((1,))])

        def fail(*arrays: NDArray) -> None:
            raise ValueError("no")

        with pytest.raises(ExecutionError) as caught:
            machine(outer, inner, externs={"add": fail})["main"](ones(2))
        assert str(caught.value) == (
            "function `inner`, instruction 0 (call_dps_packed `add`): failed with ValueError: no"
        )

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ((1, 2), "CallError: function `main`, returned values: wrong number of values; got 2, expected 1"),
            (
                np.zeros((2, 2), np.int64),
                (
                    "CallError: function `main`, returned value 0 `v0`: wrong rank; got 2, shape [2, 2], "
                    "expected 1, shape [k]"
                ),
            ),
            (
                "text",
                (
                    "CallError: function `main`, returned value 0 `v0`: is not an array; got str, "
                    "expected a numpy array or an object with __dlpack__"
                ),
            ),
        ],
    )
    def test_wrong_returned_values(self, value: object, text: str) -> None:
        main = function(
            [spec("x", 2)],
            [spec("y", "k", dtype="int64")],
            [Call(PACKED, 0, (0,), (2,)), Ret((2,))],
            dynamics=[DynamicTensor("int64", (k,), ("k",))],
        )
        with pytest.raises(ExecutionError) as caught:
            machine(main, externs={"f": lambda x: value})["main"](ones(2))
        assert str(caught.value) == f"function `main`, instruction 0 (call_packed `f`): failed with {text}"

    def test_sizes_that_do_not_fit_into_memory(self) -> None:
        huge = function(
            [spec("x", "n")],
            [spec("y", "n")],
            [Call(EXTERN, 0, (0, 0), (1,)), Ret((1,))],
            storages=[2**70],
        )
        with pytest.raises(ExecutionError) as caught:
            machine(huge)["main"](ones(2))
        assert str(caught.value) == f"function `main`: {2**70} bytes for intermediates cannot be allocated"

    def test_negative_sizes(self) -> None:
        main = function([spec("x", "n")], [spec("y", "n-4")], [Call(EXTERN, 0, (0, 0), (1,)), Ret((1,))])
        with pytest.raises(CallError) as caught:
            machine(main)["main"](ones(2))
        assert str(caught.value) == "function `main`, result `y`: size n-4 is negative; got -2"
