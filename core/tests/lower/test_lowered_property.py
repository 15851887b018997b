"""Random lowered functions: accepted functions are right for all sizes, and every way of running them agrees."""

from __future__ import annotations

from pathlib import Path
from random import Random

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import LoweringBuilder
from byoc_core.errors import CodegenError
from byoc_core.ir import Function
from byoc_core.native.toolchain import BuildOptions, Toolchain
from byoc_core.partitioning import RunCodegen
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.lower.lowered_programs import Program, add_to, interpret, random_program, text_of, unrolled
from core.tests.lowered_toys import LoweringToy, builder_of

SIZES = (0, 1, 2, 3, 7)
NUM_COMPILED = 200


def inputs_of(program: Program, n: int) -> tuple[NDArray, NDArray]:
    x, y = (int(size) for size in unrolled(program, n).sizes[:2])  # type: ignore[arg-type]
    return np.arange(x, dtype=np.float32) + 1, -np.arange(y, dtype=np.float32)


def refusal_of(program: Program) -> str | None:
    """Return the refusal of a program; ``None`` if accepted."""
    builder = builder_of(text_of(program, "f"))
    add_to(builder, program)
    try:
        builder.finish()
    except CodegenError as error:
        return str(error)
    return None


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200)
def test_accepted_functions_are_right_for_all_sizes(random: Random, is_symbolic: bool) -> None:
    program = random_program(random, is_symbolic=is_symbolic)
    if refusal_of(program) is None:
        for n in SIZES:
            outcome = interpret(unrolled(program, n), *inputs_of(program, n))
            assert not isinstance(outcome, str), (outcome, n, program)


@given(st.randoms(use_true_random=False), st.booleans(), st.sampled_from(SIZES))
@settings(max_examples=200)
def test_without_loops_and_symbols_exactly_right_functions_are_accepted(
    random: Random, is_symbolic: bool, n: int
) -> None:
    """Functions with loops or symbols may be refused although right: only intervals of whole loops are tracked."""
    program = unrolled(random_program(random, is_symbolic=is_symbolic), n)
    if program.statements:
        outcome = interpret(program, *inputs_of(program, n))
        assert (refusal_of(program) is None) is not isinstance(outcome, str), (outcome, program)


def accepted_programs() -> list[Program]:
    found = []
    for seed in range(10 * NUM_COMPILED):
        random = Random(seed)
        program = random_program(random, is_symbolic=seed % 2 == 0)
        if program.statements and refusal_of(program) is None:
            found.append(program)
        if len(found) == NUM_COMPILED:
            break
    return found


def test_most_random_functions_are_accepted_and_some_of_each_kind() -> None:
    programs = accepted_programs()
    assert len(programs) == NUM_COMPILED
    kinds = {statement.kind for program in programs for statement in program.statements}
    assert kinds == {"fill", "scale", "add", "accumulate", "copy", "loop"}
    assert sum(len(program.sizes) > 4 for program in programs) > NUM_COMPILED // 4  # intermediates
    refused = [random_program(Random(seed), is_symbolic=False) for seed in range(100)]
    outcomes = [interpret(unrolled(p, 0), *inputs_of(p, 0)) for p in refused if refusal_of(p) is not None]
    assert {law for law in outcomes if isinstance(law, str)} == {"outside", "unwritten", "overlap", "incomplete"}


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_machine_direct_calls_and_exported_library_compute_what_the_interpreter_computes(tmp_path: Path) -> None:
    programs = {f"f{number}": program for number, program in enumerate(accepted_programs())}

    def lower(function: Function, builder: LoweringBuilder) -> None:
        builder.options = BuildOptions(opt_level=0, march="generic")
        add_to(builder, programs[function.name])

    functions, calls = [], []
    for name, program in programs.items():
        head, *body = text_of(program, name).splitlines()
        attrs = f'    R.func_attr({{"Codegen": "toy", "global_symbol": "{name}"}})'
        functions.append("\n".join([head, attrs, *body]))
        calls.append(f"{head.replace(name, f'main_{name}', 1)}\n    o, p = {name}(x, y)\n    return o, p")
    text = "\n".join([*functions, *calls])
    module = R.parse("@R.ir_module\nclass M:\n" + "\n".join(f"    {line}" for line in text.splitlines()))
    executable = byoc_core.build(RunCodegen(backends=[LoweringToy(lower)])(module), [])
    (compiled,) = executable.modules
    assert set(programs) <= set(compiled.function_names)  # all were offloaded, in one module
    executable.export_library(tmp_path / "all.so")
    library = byoc_core.load_module(tmp_path / "all.so")
    machine = byoc_core.VirtualMachine(executable)
    for name, program in programs.items():
        for n in (0, 1, 5):
            inputs = inputs_of(program, n)
            expected = interpret(unrolled(program, n), *inputs)
            assert not isinstance(expected, str)
            results = {"machine": machine[f"main_{name}"](*inputs)}
            for way, function in {
                "direct": compiled.get_function(name),
                "library": library.get_function(f"main_{name}"),
            }.items():
                results[way] = tuple(np.full_like(array, np.nan) for array in inputs)
                function(*inputs, *results[way])
            for way, outputs in results.items():
                for got, wanted in zip(outputs, expected, strict=True):
                    np.testing.assert_array_equal(got, wanted, err_msg=f"{way}, n={n}, {program}")
