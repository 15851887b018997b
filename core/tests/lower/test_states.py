"""Lowered states: updates in place, copies where the old value is read later, and random functions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import LinkError, ProgramError
from byoc_core.ir import IRModule, states_of, verify
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.lower import lower_function as lowering
from byoc_core.runtime.module import CallTraits, NDArray
from byoc_core.transform import evaluate_function
from byoc_core.vm import Program, decode, encode
from byoc_core.vm import verify as verify_program
from byoc_core.vm.state_summary import summarise_states
from hypothesis import given, note, settings
from hypothesis import strategies as st

from core.tests.lower.view_modules import IN_PLACE, TraitModule

TRAITS = {"next": CallTraits(), "add": CallTraits(), "add_in_place": CallTraits(in_place=IN_PLACE)}


def module(params: str, body: str, states: str, outputs: tuple[str, ...] = ()) -> IRModule:
    """Return a module with states between names of values; results are named like their values by default."""
    names = [param.split(":")[0].strip() for param in params.split(",") if ":" in param]
    *lines, last = body.strip().splitlines()
    results = outputs or tuple(last.removeprefix("return ").split(", "))
    head = f'R.func_attr({{"input_names": {tuple(names)}, "output_names": {results}, "states": {states}}})'
    text = "\n".join(f"    {line}" for line in (head, *lines, last))
    parsed = verify(parse(f"@R.function\ndef main({params}):\n{text}\n"))
    return parsed.with_attrs(**{EXTERNAL_MODULES: (TraitModule(TRAITS),)})


def t(*shape: Any) -> str:
    return f'R.Tensor({shape!r}, "float32")'


def call(name: str, *operands: str, shape: tuple[Any, ...] = (4,)) -> str:
    return f'R.call_dps_packed("{name}", ({", ".join(operands)},), out_types=[{t(*shape)}])'


def program(source: IRModule) -> Program:
    lowered = lower(source)
    verify_program(lowered)
    assert decode(encode(lowered)) == lowered
    return lowered


def copies(source: IRModule) -> list[int]:
    """Return the number of copies of each state."""
    lowered = program(source)
    return [len(summary.copied_nbytes) for summary in summarise_states(lowered, lowered.functions[0])]


def run(source: IRModule, *calls: tuple[NDArray, ...], native: bool = True) -> list[Any]:
    vm = VirtualMachine(Executable(program(source), source.attrs[EXTERNAL_MODULES], source.constants), native=native)
    return [vm["main"](*inputs) for inputs in calls]


X = np.arange(4, dtype=np.float32)
PARAMS = f"x: {t(4)}, h: {t(4)}"
ONE = '(("h", "g"),)'


def test_an_extern_updates_in_place_with_permission() -> None:
    updated = module(PARAMS, f"g = {call('add_in_place', 'x', 'h')}\ny = {call('next', 'g')}\nreturn y, g", ONE)
    assert copies(updated) == [0]
    first, second = run(updated, (X,), (X,))
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, 2 * X + 1)


def test_an_extern_without_permission_needs_a_copy() -> None:
    updated = module(PARAMS, f"g = {call('add', 'x', 'h')}\ny = {call('next', 'g')}\nreturn y, g", ONE)
    assert copies(updated) == [1]
    np.testing.assert_array_equal(run(updated, (X,), (X,))[1], 2 * X + 1)


def test_a_write_after_the_last_read_is_in_place() -> None:
    updated = module(PARAMS, f"y = {call('add', 'x', 'h')}\ng = {call('next', 'x')}\nreturn y, g", ONE)
    assert copies(updated) == [0]
    np.testing.assert_array_equal(run(updated, (X,), (X,))[1], 2 * X + 1)


def test_a_read_after_the_write_needs_a_copy() -> None:
    updated = module(PARAMS, f"g = {call('next', 'x')}\ny = {call('add', 'x', 'h')}\nreturn y, g", ONE)
    assert copies(updated) == [1]
    np.testing.assert_array_equal(run(updated, (X,), (X,))[1], 2 * X + 1)


def test_an_old_value_as_result_is_copied_out_first() -> None:
    updated = module(PARAMS, f"g = {call('next', 'x')}\nreturn h, g", ONE)
    outputs = run(updated, (X,), (2 * X,), (X,))
    for output, expected in zip(outputs, (0 * X, X + 1, 2 * X + 1), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_an_unchanged_state_is_not_copied() -> None:
    updated = module(PARAMS, f"y = {call('add', 'x', 'h')}\nreturn y, h", '(("h", "h"),)')
    assert copies(updated) == [0]
    np.testing.assert_array_equal(run(updated, (X,), (X,))[1], X)


def test_states_change_places() -> None:
    params = f"x: {t(4)}, a: {t(4)}, b: {t(4)}"
    body = f"y = {call('add', 'a', 'a')}\nc = {call('add', 'b', 'x')}\nreturn y, c, a"
    swapped = module(params, body, '(("a", "c"), ("b", "a"))')
    a, b = 0 * X, 0 * X
    for native in (True, False):
        a, b = 0 * X, 0 * X
        for output in run(swapped, *[(X,)] * 5, native=native):
            np.testing.assert_array_equal(output, a + a)
            a, b = b + X, a


def test_two_states_with_one_new_value() -> None:
    params = f"x: {t(4)}, a: {t(4)}, b: {t(4)}"
    body = f"y = {call('add', 'a', 'b')}\nc = {call('add', 'x', 'x')}\nreturn y, c, c"
    twice = module(params, body, '(("a", "c"), ("b", "d"))', ("y", "c", "d"))
    np.testing.assert_array_equal(run(twice, (X,), (2 * X,))[1], 4 * X)


def test_new_rows_are_written_in_place() -> None:
    params = f"x: {t('n', 2)}, h: {t('p', 2)}"
    rows, after = (call("next", name, shape=(size, 2)) for name, size in (("x", "n"), ("g", "n+p")))
    body = f"r = {rows}\ng = R.concat(h, r, axis=0)\ny = {after}\nreturn y, g"
    appended = module(params, body, '(("h", "g", 0),)')
    assert copies(appended) == [0]
    for native in (True, False):
        log = np.empty((0, 2), np.float32)
        inputs = [np.full((count, 2), count, np.float32) for count in (1, 3, 0, 20, 1)]
        for x, output in zip(inputs, run(appended, *((x,) for x in inputs), native=native), strict=True):
            log = np.concatenate([log, x + 1])
            np.testing.assert_array_equal(output, log + 1)


def test_rows_in_front_need_a_copy() -> None:
    params = f"x: {t('n', 2)}, h: {t('p', 2)}"
    body = f"g = R.concat(x, h, axis=0)\ny = {call('next', 'g', shape=('n+p', 2))}\nreturn y, g"
    prepended = module(params, body, '(("h", "g", 0),)')
    assert copies(prepended) == [2]  # out of the buffer, behind the new rows, and back
    first, second = run(prepended, (np.ones((1, 2), np.float32),), (np.zeros((2, 2), np.float32),))
    np.testing.assert_array_equal(second, [[1, 1], [1, 1], [2, 2]])
    assert first.shape == (1, 2)


def test_a_lowering_without_copies_is_found_by_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is broken on purpose: stale reads are not asked for during lowering."""
    updated = module(PARAMS, f"g = {call('next', 'x')}\ny = {call('add', 'x', 'h')}\nreturn y, g", ONE)
    monkeypatch.setattr(lowering, "stale_states", lambda function, tables: frozenset())
    with pytest.raises(ProgramError, match="reads state `h`, overwritten by the new value"):
        verify_program(lower(updated))


# -- random functions -----------------------------------------------------------------------------------------

_OPS = ("next", "add", "add_in_place")


@st.composite
def functions(draw: st.DrawFn) -> IRModule:
    """Return a function over states of a fixed shape and of moving lengths, with random readers of all values."""
    num_fixed, num_moving = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    fixed, moving = [f"h{i}" for i in range(num_fixed)], [f"m{i}" for i in range(num_moving)]
    params = [f"x: {t(4)}", f"r: {t('n', 4)}", *(f"{h}: {t(4)}" for h in fixed), *(f"{m}: {t('p', 4)}" for m in moving)]
    vectors, tables = ["x", *fixed], ["r"]
    longs: list[str] = []
    lines: list[str] = []

    def emit(values: list[str], shape: tuple[Any, ...]) -> None:
        name = draw(st.sampled_from(_OPS))
        operands = [draw(st.sampled_from(values)) for _ in range(1 if name == "next" else 2)]
        values.append(f"v{len(lines)}")
        lines.append(f"{values[-1]} = {call(name, *operands, shape=shape)}")

    grown = {}
    pending = [*moving]
    for _ in range(draw(st.integers(2, 10))):
        match draw(st.integers(0, 3)):
            case 0 | 1:
                emit(vectors, (4,))
            case 2:
                emit(tables, ("n", 4))
            case _ if pending:
                m = pending.pop()
                parts = [m, draw(st.sampled_from(tables))]
                if draw(st.integers(0, 5)) == 0:
                    parts.reverse()
                grown[m] = f"v{len(lines)}"
                longs.append(grown[m])
                lines.append(f"{grown[m]} = R.concat({', '.join(parts)}, axis=0)")
            case _ if longs:
                emit(longs, ("n+p", 4))
            case _:
                emit(vectors, (4,))
    for m in pending:
        grown[m] = f"v{len(lines)}"
        lines.append(f"{grown[m]} = R.concat({m}, r, axis=0)")
    after = [draw(st.sampled_from(vectors)) for _ in fixed]
    seen = [draw(st.sampled_from([*vectors, *tables, *longs, *moving])) for _ in range(draw(st.integers(0, 3)))]
    results = [*after, *(grown[m] for m in moving), *seen]
    order = draw(st.permutations(range(len(results))))
    names = [f"{value}_{index}" for index, value in enumerate(results)]
    states = [
        *((h, names[i]) for i, h in enumerate(fixed)),
        *((m, names[num_fixed + i], 0) for i, m in enumerate(moving)),
    ]
    attrs = {
        "input_names": ("x", "r", *fixed, *moving),
        "output_names": tuple(names[index] for index in order),
        "states": tuple(states),
    }
    body = [f"R.func_attr({attrs!r})", *lines, f"return {', '.join(results[index] for index in order)}"]
    text = "\n".join(f"    {line}" for line in body)
    parsed = verify(parse(f"@R.function\ndef main({', '.join(params)}):\n{text}\n"))
    return parsed.with_attrs(**{EXTERNAL_MODULES: (TraitModule(TRAITS),)})


def reference(source: IRModule, inputs: list[tuple[NDArray, NDArray]]) -> list[list[NDArray]]:
    """Return the results of calls with explicit old and new values, computed by the interpreter."""
    function = source["main"]
    interpreted = plain(source)
    values: dict[str, NDArray] = {}
    for name, param in zip(function.input_names[2:], function.params[2:], strict=True):
        values[name] = np.zeros((4,) if len(param.type.shape or ()) == 1 else (0, 4), np.float32)  # type: ignore[union-attr]
    pairs = {state.output: state.input for state in states_of(function)}
    found = []
    for x, r in inputs:
        arguments = [x, r, *(values[name] for name in function.input_names[2:])]
        results = dict(zip(function.output_names, evaluate_function(interpreted, "main", arguments), strict=True))
        values.update((pairs[name], result) for name, result in results.items() if name in pairs)
        found.append([np.asarray(result) for name, result in results.items() if name not in pairs])
    return found


def plain(source: IRModule) -> IRModule:
    """Return the module with ops in place of external functions."""
    text = str(source.with_attrs(**{EXTERNAL_MODULES: ()}))
    text = re.sub(
        r'R\.call_dps_packed\("next", \((\w+),\), out_types=\[[^\]]*\]\)', r'R.add(\1, R.const(1.0, "float32"))', text
    )
    text = re.sub(r'R\.call_dps_packed\("add\w*", \((\w+), (\w+)\), out_types=\[[^\]]*\]\)', r"R.add(\1, \2)", text)
    return parse(text)


@given(functions(), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_random_functions_equal_the_interpreter(source: IRModule, lengths: list[int], native: bool) -> None:
    note(str(source))
    rng = np.random.default_rng(0)
    inputs = [
        (rng.integers(-3, 4, 4).astype(np.float32), rng.integers(-3, 4, (n, 4)).astype(np.float32)) for n in lengths
    ]
    lowered = program(source)
    vm = VirtualMachine(Executable(lowered, source.attrs[EXTERNAL_MODULES], source.constants), native=native)
    for (x, r), expected in zip(inputs, reference(source, inputs), strict=True):
        results = vm["main"](x, r)
        found = list(results) if isinstance(results, tuple) else [results]
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(left, right)


@given(functions())
@settings(max_examples=60, deadline=None)
def test_the_verifier_finds_every_write_in_place_that_needs_a_copy(source: IRModule) -> None:
    """Without the question for stale reads, programs differ in exactly the cases refused by verifier or linking."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "stale_states", lambda function, tables: frozenset())
        careless = lower(source)
    found = None
    try:
        verify_program(careless)
        VirtualMachine(Executable(careless, source.attrs[EXTERNAL_MODULES], source.constants))
    except (ProgramError, LinkError) as error:
        found = error
    assert (found is None) == (program(source) == careless), found
