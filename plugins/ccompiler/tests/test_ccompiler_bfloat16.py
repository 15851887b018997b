"""Products of operands rounded to bfloat16: against float64 oracles of the rounded and of the given operands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.kernels.bfloat16 import STEP_DEPTH as DEPTH
from byoc_ccompiler.kernels.bfloat16 import STEP_ROWS as ROWS
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core import FunctionBuilder
from byoc_core.artifact import Executable
from byoc_core.debugging import debug_model
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Function, IRModule, tensor
from byoc_core.native.cpu import machine_features
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import MEANING, WARNINGS, Bench, assert_sum
from plugins.ccompiler.tests.emulated_instructions import TILE_FLAGS, emulate, need_processor, tiles_answer

ROUNDOFF = 2.0**-8
"""The unit roundoff of bfloat16: half a unit of 8 bits."""

MARCHES = {"generic": (), "x86-64-v3": ("avx2", "fma"), "cooperlake": ("avx512_bf16", "avx512_vnni"), "native": ()}
"""By the target of the C: the machine's requirements for running. The third has ``vdpbf16ps`` and no tiles."""

Options = dict[str, Any]
EMULATED_TILES, NEON_SHAPES = "emulated tiles", "shapes of NEON"


@pytest.fixture(params=[*MARCHES, EMULATED_TILES, NEON_SHAPES])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Options]:
    """Return the options for compiling for a processor: this machine's, or an emulated processor."""
    name: str = request.param
    if name == EMULATED_TILES:
        with emulate(TILE_FLAGS):
            yield _with_tiles(tiles_answer(tmp_path, granted=True))
    elif name == NEON_SHAPES:
        monkeypatch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: cls(16, 32)))
        yield {"march": "generic"}
    else:
        need_processor(*MARCHES[name])
        yield {"march": name}


def _with_tiles(answer: tuple[str, ...]) -> Options:
    """Return the options for a processor with tiles and AVX2, and a system granting tiles."""
    return {"march": "x86-64-v3", "extra_flags": (*WARNINGS, *TILE_FLAGS, *answer)}


def _random(shape: int | Sequence[int], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _rounded(array: NDArray) -> Any:
    return array.astype(to_numpy("bfloat16")).astype("float32")


def _reference(function: Function, *operands: NDArray) -> Any:
    """Return the float64 result of the op of a function."""
    (binding,) = function.bindings
    kernel = binding.op.kernel
    assert kernel is not None
    return kernel(*(array.astype("float64") for array in operands), **binding.attrs)


def _check(function: Function, actual: NDArray, operands: tuple[Any, Any], length: int) -> None:
    """Check a result against the sums of the rounded operands, and of the given operands.

    Products of rounded operands are exact, so the first bound is the bound of any float32 sum. Each given operand
    differs by a relative error of at most ``ROUNDOFF``.
    """
    rounded = [_rounded(array) for array in operands]
    assert_sum(actual, _reference(function, *rounded), _reference(function, *map(np.abs, rounded)), length)
    terms = length + 2
    gamma = terms * 2.0**-24 / (1 - terms * 2.0**-24)
    bound = ((1 + ROUNDOFF) ** 2 * (1 + gamma) - 1) * _reference(function, *map(np.abs, operands))
    error = np.abs(actual - _reference(function, *operands))
    assert np.all(error <= bound)


# Rows, length of the sums, columns: below, at and above the sizes of blocks and steps.
SIZES = [
    (1, 1, 3),
    (1, 100, 65),
    (17, 33, 16),
    (ROWS, DEPTH, 32),
    (ROWS + 1, DEPTH + 1, 33),
    (49, 769, 70),
    (200, 900, 37),
    (2000, 600, 5),
    (0, 5, 7),
    (20, 0, 7),
    (5, 7, 0),
]


def _is_lowered(bench: Bench) -> bool:
    return "vec_bfloat16_block" in bench.module.get_source()


def test_matrix_products(target: Options) -> None:
    bench = Bench(**target, precision="bfloat16")
    cases: list[tuple[Function, list[Any], int]] = []
    for m, k, n in SIZES:
        for op, shape in (("matmul", (k, n)), ("nn.dense", (n, k))):
            for is_constant in (True, False):
                if not is_constant and m <= 16:
                    continue
                builder, arrays = bench.builder(), [_random((m, k)), _random(shape, 1)]
                left = builder.param("x", tensor((m, k), "float32"))
                right = builder.const(arrays[1]) if is_constant else builder.param("y", tensor(shape, "float32"))
                cases.append((bench.add(builder, builder.emit(op, left, right)), arrays, k))
    for function, arrays, length in cases:
        (actual,) = bench.run(function, *arrays[: len(function.params)])
        _check(function, actual, (arrays[0], arrays[1]), length)
    assert _is_lowered(bench)


def test_batches_that_broadcast() -> None:
    bench = Bench(precision="bfloat16")
    shapes = [
        ((3, 40, 50), (3, 50, 35)),
        ((2, 1, 33, 20), (3, 20, 40)),
        ((2, 40, 20), (20, 40)),
        ((20, 30), (2, 30, 17)),
    ]
    functions = [bench.op("matmul", [tensor(shape, "float32") for shape in pair]) for pair in shapes]
    for function, pair in zip(functions, shapes, strict=True):
        arrays = [_random(shape, seed) for seed, shape in enumerate(pair)]
        (actual,) = bench.run(function, *arrays)
        _check(function, actual, (arrays[0], arrays[1]), pair[0][-1])


def test_symbolic_sizes() -> None:
    bench = Bench(precision="bfloat16")
    builder, weights = bench.builder(), _random((300, 70), 1)
    rows = bench.add(
        builder, builder.emit("matmul", builder.param("x", tensor(("m", 300), "float32")), builder.const(weights))
    )
    every = bench.op("matmul", [tensor(("m", "k"), "float32"), tensor(("k", "n"), "float32")])
    for m in (0, 1, 16, 33, 1000):
        x = _random((m, 300))
        (actual,) = bench.run(rows, x)
        _check(rows, actual, (x, weights), 300)
        for k, n in ((1, 1), (40, 33), (0, 3)):
            pair = [_random((m, k)), _random((k, n), 1)]
            (actual,) = bench.run(every, *pair)
            _check(every, actual, (pair[0], pair[1]), k)


CONVOLUTIONS: list[tuple[Any, Any, dict[str, Any]]] = [
    ((1, 9, 11, 17), (40, 17, 1, 1), {}),
    ((2, 9, 8, 5), (33, 5, 1, 1), {"strides": (2, 3)}),
    ((2, 9, 11, 32), (70, 32, 3, 3), {"padding": (1, 1)}),
    ((1, 9, 11, 33), (5, 33, 3, 2), {"padding": (0, 1, 2, 3)}),
    ((1, 15, 15, 24), (6, 24, 3, 3), {"dilation": (2, 3), "padding": (2, 2), "strides": (3, 2)}),
    ((2, 30, 29, 3), (20, 3, 7, 7), {"strides": (2, 2), "padding": (3, 3)}),
    ((2, 12, 11, 3), (6, 3, 11, 11), {}),
    ((1, 20, 21, 600), (34, 600, 3, 3), {"padding": (1, 1)}),
    ((0, 5, 5, 4), (5, 4, 3, 3), {}),
]


def test_convolutions(target: Options) -> None:
    bench = Bench(**target, precision="bfloat16")
    cases = []
    for shape, weight_shape, attrs in CONVOLUTIONS:
        builder, arrays = bench.builder(), [_random(shape), _random(weight_shape, 1)]
        image = builder.param("x", tensor(shape, "float32"))
        result = builder.emit("nn.conv2d", image, builder.const(arrays[1]), data_layout="NHWC", **attrs)
        cases.append((bench.add(builder, result), arrays))
    for function, (x, w) in cases:
        (actual,) = bench.run(function, x)
        _check(function, actual, (x, w), int(np.prod(w.shape[1:])))
    assert _is_lowered(bench)
    assert "winograd" not in bench.module.get_source()


def test_symbolic_images() -> None:
    bench = Bench(precision="bfloat16")
    builder, w = bench.builder(), _random((20, 3, 5, 5), 1)
    image = builder.param("x", tensor(("n", "h", "w", 3), "float32"))
    function = bench.add(
        builder, builder.emit("nn.conv2d", image, builder.const(w), data_layout="NHWC", padding=(2, 2))
    )
    for shape in ((1, 7, 9, 3), (2, 30, 31, 3), (0, 5, 5, 3)):
        x = _random(shape)
        (actual,) = bench.run(function, x)
        _check(function, actual, (x, w), 75)


def test_what_follows_is_float32(target: Options) -> None:
    """A bias far smaller than a unit of bfloat16 of the sums arrives whole."""
    bench = Bench(**target, precision="bfloat16")
    builder = bench.builder()
    x, w = np.ones((40, 64), "float32"), np.ones((64, 48), "float32")
    bias = np.linspace(0, 1e-3, 48, dtype="float32")
    product = builder.emit("matmul", builder.param("x", tensor(x.shape, "float32")), builder.const(w))
    function = bench.add(builder, builder.emit("add", product, builder.const(bias)))
    (actual,) = bench.run(function, x)
    np.testing.assert_array_equal(actual, np.broadcast_to(np.float32(64) + bias, (40, 48)))


def test_special_values(target: Options) -> None:
    """Infinities and NaN spread as in float32, to their own rows and columns; values out of range become infinite."""
    bench = Bench(**target, precision="bfloat16")
    x, w = np.ones((50, 40), "float32"), np.ones((40, 35), "float32")
    x[3, 5], x[4, 39], x[35, 0], x[49, 2] = np.inf, np.nan, -np.inf, np.finfo("float32").max
    w[7, 30], w[8, 31] = np.inf, np.nan
    builder = bench.builder()
    function = bench.add(
        builder, builder.emit("matmul", builder.param("x", tensor(x.shape, "float32")), builder.const(w))
    )
    (actual,) = bench.run(function, x)
    with np.errstate(invalid="ignore"):
        expected = _rounded(x) @ _rounded(w)
    np.testing.assert_array_equal(actual, expected)


def test_ties_go_to_even_on_both_sides(target: Options) -> None:
    bench = Bench(**target, precision="bfloat16")
    numbers = (1 + np.arange(64, dtype="float32") / 256) * np.where(np.arange(64) % 3, 1, -1).astype("float32")
    x = np.diag(numbers)
    functions = []
    for left, right in ((x, np.eye(64, dtype="float32")), (np.eye(64, dtype="float32"), x)):
        builder = bench.builder()
        value = builder.emit("matmul", builder.param("x", tensor(left.shape, "float32")), builder.const(right))
        functions.append((bench.add(builder, value), left))
    for function, left in functions:
        (actual,) = bench.run(function, left)
        np.testing.assert_array_equal(actual, _rounded(x))
    assert not np.array_equal(_rounded(x), x)


def _is_flushed(target: Options) -> bool:
    """Return whether the instructions for pairs of bfloat16 numbers are used; these flush subnormal numbers."""
    if target["march"] == "native":
        return "avx512_bf16" in (machine_features() or ())
    return target["march"] == "cooperlake" or "extra_flags" in target


def test_subnormal_numbers(target: Options) -> None:
    """Subnormal factors and sums count after widening, and are zero for the instructions; others stay."""
    bench = Bench(**target, precision="bfloat16")
    x, w = np.zeros((40, 64), "float32"), np.zeros((64, 48), "float32")
    tiny = np.finfo("float32").tiny
    x[0, 0], w[0, 0] = tiny / 8, 2.0**100  # a subnormal factor, times a large one
    x[1, 1], w[1, 1] = 2.0**100, -tiny / 8  # the same on the other side
    x[2, 2], w[2, 2] = 2.0**-70, 2.0**-70  # a subnormal sum of factors that are none
    x[3, 3], w[3, 3] = tiny, 1.5  # nothing is subnormal here
    x[4, 4:6], w[4:6, 4] = (1.25, tiny / 2), (3.0, 1.0)  # beside the sum, a subnormal number is nothing
    exact = _rounded(x).astype("float64") @ _rounded(w).astype("float64")
    left, right = (np.where(np.abs(array) < tiny, 0, array).astype("float64") for array in (x, w))
    flushed = left @ right
    flushed[np.abs(flushed) < tiny] = 0
    both, builder = bench.op("matmul", [tensor(a.shape, "float32") for a in (x, w)]), bench.builder()
    value = builder.emit("matmul", builder.param("x", tensor(x.shape, "float32")), builder.const(w))
    weighted = bench.add(builder, value)
    expected = (flushed if _is_flushed(target) else exact).astype("float32")
    assert np.count_nonzero(exact) == 5
    assert np.count_nonzero(flushed) == 2
    np.testing.assert_array_equal(bench.run(weighted, x)[0], expected)
    np.testing.assert_array_equal(bench.run(both, x, w)[0], expected)


# Operands, and which loops they take: the first two lie on the stack, the third passes, the fourth has symbols.
THREADED: dict[str, tuple[str, tuple[tuple[Any, ...], ...]]] = {
    "rows": ("matmul", ((2 * ROWS + 3, 70), (70, 133))),
    "pixels": ("nn.conv2d", ((1, 9, 31, 19), (70, 19, 3, 3))),
    "passes": ("matmul", ((5 * ROWS + 3, 2100), (2100, 150))),
    "symbols": ("matmul", (("m", 70), (70, 133))),
}


def _product(name: str, dtype: str = "float32") -> tuple[IRModule, Any, Any]:
    """Return a module with a product by constant weights, arguments of a call, and the weights."""
    op, (shape, weight_shape) = THREADED[name]
    attrs = {"data_layout": "NHWC", "padding": (1, 1)} if op == "nn.conv2d" else {}
    weights = _random(weight_shape, 1).astype(to_numpy(dtype))
    builder: Any = FunctionBuilder("main", ops=default_ops())
    left = builder.param("x", tensor(shape, dtype))
    value = builder.emit(op, left, builder.const(weights), **attrs)
    module = IRModule({"main": builder.finish(value)}, builder.constants)
    return module, _random([3 * ROWS + 5 if size == "m" else size for size in shape]).astype(to_numpy(dtype)), weights


def _sum_length(weights: NDArray) -> int:
    return int(np.prod(weights.shape[1:])) if weights.ndim > 2 else len(weights)


def _built(module: IRModule, **options: object) -> Executable:
    options = {"precision": "bfloat16", "opt_level": MEANING, **options}
    return byoc_core.build(module, ["ccompiler"], fallback="error", options={"ccompiler": options})


def _run(executable: Executable, num_threads: int, *arrays: NDArray) -> Any:
    return np.asarray(byoc_core.VirtualMachine(executable, num_threads=num_threads)["main"](*arrays))


@pytest.mark.parametrize("name", THREADED)
def test_the_bits_do_not_depend_on_the_number_of_threads(
    name: str, target: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = "byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS"
    module, x, weights = _product(name)
    monkeypatch.setattr(work, 10**18)
    alone = _run(_built(module, **target), 1, x)
    monkeypatch.setattr(work, 1)
    executable = _built(module, **target)
    source = executable.modules[0].get_source("c")
    assert "byoc_parallel_for(" in source
    assert "vec_bfloat16_block" in source
    for number in (1, 2, 3, 7):
        assert _run(executable, number, x).tobytes() == alone.tobytes(), number
    _check(module["main"], alone, (x, weights), _sum_length(weights))


ASKING = """
import ctypes, sys

class Stack(ctypes.Structure):
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("nbytes", ctypes.c_size_t)]

system, memory = ctypes.CDLL(None), ctypes.create_string_buffer(4096)
artifact, operand, result, is_small = sys.argv[1:]
if is_small == "small":
    assert system.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, len(memory))), None) == 0
import byoc_core
import numpy as np
machine = byoc_core.VirtualMachine(byoc_core.load(artifact, allow_native=True), num_threads=2)
np.save(result, machine["main"](np.load(operand)))
print(system.syscall(158, 0x1023, 18))
"""
"""A script running a model, and asking for the registers of matrix tiles. Their size exceeds a signal stack of 4096
bytes, so Linux refuses tiles to a process with this stack size.
"""


@pytest.mark.parametrize("name", THREADED)
def test_tiles_may_be_refused(name: str, tmp_path: Path) -> None:
    """If the system refuses the tiles, the other form of the same library gives the results without tiles."""
    if sys.platform != "linux" or "avx512_bf16" not in (machine_features() or ()):
        pytest.skip("this machine has no tiles")
    module, x, _ = _product(name)
    np.save(tmp_path / "x.npy", x)
    _built(module).save(tmp_path / "model.byoc")
    results, answers = {}, {}
    for stack in ("ample", "small"):
        paths = [str(tmp_path / file) for file in ("model.byoc", "x.npy", f"{stack}.npy")]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ASKING, *paths, stack],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        results[stack], answers[stack] = np.load(paths[-1]), done.stdout
    if answers["ample"] != "0\n":
        pytest.skip("this machine has no tiles")
    assert answers["small"] == "-1\n"
    without = _run(_built(module, march="cooperlake"), 1, x)
    assert results["small"].tobytes() == without.tobytes()
    assert results["ample"].tobytes() != without.tobytes()  # tiles add in another order


@pytest.mark.parametrize("name", THREADED)
def test_emulated_tiles_are_asked_for(name: str, tmp_path: Path) -> None:
    """If a system refuses tiles, no tile is touched, and the results equal a processor without tiles."""
    module, x, weights = _product(name)
    need_processor(*MARCHES["x86-64-v3"])
    without = _run(_built(module, march="x86-64-v3", extra_flags=WARNINGS), 1, x)
    with emulate(TILE_FLAGS):
        granted = _run(_built(module, **_with_tiles(tiles_answer(tmp_path, granted=True))), 2, x)
    refused = _run(_built(module, **_with_tiles(tiles_answer(tmp_path, granted=False))), 2, x)
    assert refused.tobytes() == without.tobytes()
    assert granted.tobytes() != without.tobytes()  # tiles add in another order
    _check(module["main"], granted, (x, weights), _sum_length(weights))


@pytest.mark.parametrize("name", ["rows", "pixels"])
def test_models_of_bfloat16_tensors_lose_nothing(name: str, target: Options) -> None:
    """Their factors are bfloat16 already: products are exact, sums are in float32, rounded once at the end."""
    module, x, weights = _product(name, "bfloat16")
    executable = _built(module, **target)
    assert "vec_bfloat16_block" in executable.modules[0].get_source("c")
    actual = _run(executable, 2, x)
    assert actual.dtype == x.dtype
    terms = _sum_length(weights) + 2
    gamma = terms * 2.0**-24 / (1 - terms * 2.0**-24)
    exact = _reference(module["main"], x, weights)
    magnitude = _reference(module["main"], np.abs(x), np.abs(weights))
    bound = gamma * magnitude * (1 + ROUNDOFF) + ROUNDOFF * np.abs(exact)
    assert np.all(np.abs(actual.astype("float64") - exact) <= bound)


def test_weights_take_half() -> None:
    weights = _random((256, 256))
    sizes = {}
    for precision in ("float32", "bfloat16"):
        bench = Bench(precision=precision)
        builder = bench.builder()
        bench.add(
            builder, builder.emit("matmul", builder.param("x", tensor((64, 256), "float32")), builder.const(weights))
        )
        sizes[precision] = sum(array.nbytes for array in bench.module.constants.values())
    assert sizes == {"float32": weights.nbytes, "bfloat16": weights.nbytes // 2}


def test_other_dtypes_keep_theirs() -> None:
    """The option affects float32 only: products of float64 and integers are unchanged."""
    sources = []
    for precision in ("float32", "bfloat16"):
        bench = Bench(precision=precision)
        for dtype in ("float64", "int32"):
            bench.op("matmul", [tensor((40, 40), dtype), tensor((40, 40), dtype)])
        sources.append(bench.module.get_source())
    assert sources[0] == sources[1]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_report_and_the_judges_know(dtype: str) -> None:
    """The loss of precision is in the report, and known to the judges of the numbers."""
    module, x, _ = _product("rows", dtype)
    texts = {}
    for precision in ("float32", "bfloat16"):
        options = {"ccompiler": {"precision": precision}}
        texts[precision] = byoc_core.explain(module, ["ccompiler"], options=options).report()
        assert debug_model(module, ["ccompiler"], [x], options=options).is_right
    note = ", computes float16 within 0.0039 and float32 within 0.0039 (unit roundoff)"
    assert note in texts["bfloat16"]
    assert texts["bfloat16"].replace(note, "") == texts["float32"]
