"""Ten thousand calls and a thousand loads of a network by dnnl, with constant memory use.

The network is two convolutions, pooling and a product, on images of a fixed size, or of symbolic sizes. Memory in use
is compared as in :mod:`benchmarks.soak`. Loads, and calls with shapes without a cached program, are a tenth of the
calls, but enough to meet each shape twice.

    python -m benchmarks.run soak-dnnl
    python -m benchmarks.run soak-dnnl --sizes 1000
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
from byoc_core.ir import FunctionBuilder, IRModule, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray

from benchmarks.soak import Memory, Work, allowed_growth, from_threads, read_memory, soak

__all__ = ["allow", "build_network", "list_work", "run"]

BACKEND = "dnnl"
NUM_THREADS = 8
SIDE = 12
MOST_IMAGES = 80
"""The number of different image counts: more than the programs cached by a region."""
NUM_ROUNDINGS = 2 * (27 + 432 + 36 + 16)
"""Roundings behind any single result: of products and sums, in two convolutions, the mean and the product."""
SLACK = Memory(250, 2 << 20, 0)
"""Additional growth allowed, independent of the number of calls: 8 threads meeting for the first time make frames of
some 100 KB, and the interpreter's table of strings, of 1 MB, is rebuilt once, because numpy adds and removes strings.
"""
Case = tuple[NDArray, NDArray, NDArray]
"""An input, the host's result, and the largest distance from this result for any order of summation."""


def build_network(backends: Sequence[str], num_images: int | str, *, sizes: bool = False) -> byoc_core.Executable:
    """Build the network for a number of images, or for any number under a name.

    Args:
        backends: the backends; the host if empty.
        num_images: the number, or a name.
        sizes: whether weights are replaced by their magnitudes: for magnitudes of images, the network then returns the
            magnitudes of the sums.
    """
    rng = np.random.default_rng(0)
    builder = FunctionBuilder("main", ops=default_ops())

    def emit(op: str, value: Var, *shape: int, **attrs: object) -> Var:
        drawn = rng.standard_normal(shape).astype(np.float32)
        weights = [builder.const(np.abs(drawn) if sizes else drawn)] if shape else []
        result = builder.emit(op, value, *weights, **attrs)  # type: ignore[arg-type]
        assert isinstance(result, Var)
        return result

    value = builder.param("x", tensor((num_images, 3, SIDE, SIDE)))
    value = emit("nn.conv2d", value, 48, 3, 3, 3, padding=(1, 1, 1, 1))
    value = emit("nn.conv2d", value, 16, 48, 3, 3, padding=(1, 1, 1, 1))
    value = emit("abs", value)  # with the ops before it, a primitive; oneDNN 3.2 would not free the code
    value = emit("nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    value = emit("mean", value, axis=(2, 3), keepdims=False)
    value = emit("nn.dense", value, 10, 16)
    module = IRModule({"main": builder.finish(value)}, builder.constants)
    return byoc_core.build(module, backends=[*backends], fallback="error" if backends else "allow")


def allow(num_calls: int) -> Memory:
    """Return the allowed growth after a number of calls of a kind."""
    most = allowed_growth(num_calls)
    return Memory(*(more + slack for more, slack in zip(most, SLACK, strict=True)))


def draw_cases(numbers: Sequence[int]) -> list[Case]:
    """Return a case for each number of images."""
    rng = np.random.default_rng(1)
    main, magnitude = (byoc_core.VirtualMachine(build_network([], "n", sizes=sizes))["main"] for sizes in (False, True))
    images = [rng.standard_normal((number, 3, SIDE, SIDE)).astype(np.float32) for number in numbers]
    # The largest distance of two sums in any order (Higham, section 4.2).
    bound = 2 * NUM_ROUNDINGS * 2.0**-24 / (1 - NUM_ROUNDINGS * 2.0**-24)
    return [(x, np.asarray(main(x)), bound * np.asarray(magnitude(np.abs(x)))) for x in images]


def list_work(folder: Path) -> dict[str, Work]:
    """Return the kinds of work, by name; write artifacts to a folder."""
    fixed, symbolic = (build_network([BACKEND], number) for number in (2, "n"))
    for name, executable in (("fixed", fixed), ("symbolic", symbolic)):
        assert [module.type_key for module in executable.modules] == [BACKEND]
        executable.save(folder / f"{name}.byoc")
    single_case, few_cases, many_cases = draw_cases([2]), draw_cases([1, 2, 5, 0]), draw_cases(range(MOST_IMAGES))
    mains = [byoc_core.VirtualMachine(each)["main"] for each in (fixed, symbolic)]
    machines = [byoc_core.VirtualMachine(fixed, num_threads=number)["main"] for number in (1, 2)]
    slow = byoc_core.VirtualMachine(symbolic, native=False)["main"]
    return {
        "one shape": _call_in_turn([mains[0]], single_case),
        "a few shapes": _call_in_turn([mains[1]], few_cases),
        "without the extension of the core": _call_in_turn([slow], few_cases),
        "more shapes than are kept": _tenth_of(_call_in_turn([mains[1]], many_cases)),
        "one thread and two": _call_in_turn(machines, single_case),
        "threads, one shape": from_threads(NUM_THREADS, _call_in_turn([mains[0]], single_case)),
        "threads, a few shapes": from_threads(NUM_THREADS, _call_in_turn([mains[1]], few_cases)),
        "loads, one shape": _tenth_of(_load_anew(folder / "fixed.byoc", single_case)),
        "loads, a few shapes": _tenth_of(_load_anew(folder / "symbolic.byoc", few_cases)),
    }


def _call_in_turn(mains: Sequence[Callable[..., object]], cases: Sequence[Case]) -> Work:
    def work(num_calls: int) -> None:
        for number in range(num_calls):
            case = cases[number % len(cases)]
            result = mains[number % len(mains)](case[0])
            if number < len(cases) or number == num_calls - 1:
                _check(result, case)

    return work


def _load_anew(artifact: Path, cases: Sequence[Case]) -> Work:
    def work(num_loads: int) -> None:
        for number in range(num_loads):
            case = cases[number % len(cases)]
            _check(byoc_core.VirtualMachine(byoc_core.load(artifact))["main"](case[0]), case)

    return work


def _check(result: object, case: Case) -> None:
    _, expected, bound = case
    if not (np.abs(np.asarray(result) - expected) <= bound).all():
        raise RuntimeError("a result is wrong")


def _tenth_of(kind: Work) -> Work:
    return lambda num_calls: kind(max(num_calls // 10, 2 * MOST_IMAGES))


def run(num_rounds: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the growth of memory for each kind of work and number of calls; print a mark at too much growth."""
    figures: dict[str, Any] = {"units": Memory._fields}
    for num_calls in sizes:
        allowed = allow(num_calls)
        print(f"  {num_calls:,} calls of each kind; allowed: {tuple(allowed)}")
        with tempfile.TemporaryDirectory() as folder:
            works, start = list_work(Path(folder)), read_memory()
            grown = soak(works, num_calls)
        for name, found in grown.items():
            state = "steady" if found.is_within(allowed) else "GROWS"
            print(f"  {name:34} {found.blocks:8} blocks {found.heap:10} heap {found.resident:10} resident  {state}")
        print(f"  resident: {start.resident:,} before, {read_memory().resident:,} after")
        figures[str(num_calls)] = {"allowed": allowed, "grown": grown, "start": start}
    return figures
