"""Random numbers: the C runtime gives the bits of numpy's RandomState; seeds differ from run to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byoc_core.ir import ConstantStore, IRModule, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import function_of
from byoc_core.transform import evaluate_function

from rt.tests.kernel_programs import executable_of
from rt.tests.runner import NativeLibrary
from rt.tests.saved import assert_same_bits, load_saved

OPS = default_ops()
SEEDS = ([0], [1], [2**32 - 1], [0, 0], [7, 8, 9, 10], list(range(700)))
PARAMETERS = {"random.uniform": ("low", "high"), "random.normal": ("mean", "scale")}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{len(seed)}-{seed[0]}")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", PARAMETERS)
def test_numbers_have_the_bits_of_numpy(
    native: NativeLibrary, tmp_path: Path, op: str, dtype: str, seed: list[int]
) -> None:
    first, second = PARAMETERS[op]
    functions = {}
    for name, attrs in (
        ("plain", {}),
        ("scaled", {first: -2.5, second: 3.25}),
        ("single", {first: 1.5, second: 1.5}),
        ("narrow", {first: 1.0, second: 1.0 + 2.0**-6}),
    ):
        given = {"shape": (3, 333), "dtype": dtype, **attrs}
        functions[name] = function_of(OPS[op], [Var("seed", tensor((len(seed),), "int64"))], given, name)[0]
    module = IRModule(functions, ConstantStore())
    program = load_saved(executable_of(module), native, tmp_path)
    for name in functions:
        words = np.array(seed, np.int64)
        assert_same_bits(program[name](words), evaluate_function(module, name, [words]))


def test_a_seed_is_new_in_each_run(native: NativeLibrary, tmp_path: Path) -> None:
    function = function_of(OPS["random.seed"], [], {}, "main")[0]
    program = load_saved(executable_of(IRModule({"main": function}, ConstantStore())), native, tmp_path)
    seeds = [program["main"]()[0] for _ in range(4)]
    assert all(seed.dtype == np.int64 and seed.min() >= 0 and seed.max() < 2**32 for seed in seeds)
    assert len({seed.tobytes() for seed in seeds}) == 4
