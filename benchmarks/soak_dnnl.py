"""Ten thousand calls and a thousand loads of a network by dnnl, with memory that stays as it is.

The network is two convolutions, pooling and a product, on images of one size, or of symbolic sizes. What is in use is
compared as in :mod:`benchmarks.soak`. Calls with shapes that no program is kept for, and loads, are a tenth of the
calls, but never so few that a shape is not met twice.

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
"""More numbers of images than a region keeps programs for."""
NUM_ROUNDINGS = 2 * (27 + 432 + 36 + 16)
"""Behind any one result: of products and sums, in two convolutions, the mean and the product."""
SLACK = Memory(250, 2 << 20, 0)
"""What may grow more than elsewhere, whatever the number of calls: 8 threads that never met before make frames of some
100 KB, and the interpreter's table of strings, of 1 MB, is made anew once: numpy adds to it and takes away from it."""
Case = tuple[NDArray, NDArray, NDArray]
"""An input, what the host computes from it, and how far from that any order of summation may be."""


def build_network(backends: Sequence[str], num_images: int | str, *, sizes: bool = False) -> byoc_core.Executable:
    """Builds the network for a number of images, or for any that a name stands for.

    Args:
        backends: who computes it; the host where nobody is named.
        num_images: the number, or its name.
        sizes: whether it has the magnitudes of its weights: it then gives those of the sums, of an image's magnitudes.
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
    value = emit("abs", value)  # with what is before it a primitive whose code oneDNN 3.2 would not give back
    value = emit("nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    value = emit("mean", value, axis=(2, 3), keepdims=False)
    value = emit("nn.dense", value, 10, 16)
    module = IRModule({"main": builder.finish(value)}, builder.constants)
    return byoc_core.build(module, backends=[*backends], fallback="error" if backends else "allow")


def allow(num_calls: int) -> Memory:
    """Gives what may be more in use after so many calls of one kind."""
    most = allowed_growth(num_calls)
    return Memory(*(more + slack for more, slack in zip(most, SLACK, strict=True)))


def draw_cases(numbers: Sequence[int]) -> list[Case]:
    """Gives inputs of so many images, with what is right for each."""
    rng = np.random.default_rng(1)
    main, magnitude = (byoc_core.VirtualMachine(build_network([], "n", sizes=sizes))["main"] for sizes in (False, True))
    images = [rng.standard_normal((number, 3, SIDE, SIDE)).astype(np.float32) for number in numbers]
    # Two sums in any order are at most so far apart (Higham, section 4.2).
    bound = 2 * NUM_ROUNDINGS * 2.0**-24 / (1 - NUM_ROUNDINGS * 2.0**-24)
    return [(x, np.asarray(main(x)), bound * np.asarray(magnitude(np.abs(x)))) for x in images]


def list_work(folder: Path) -> dict[str, Work]:
    """Gives the kinds of work, by name; artifacts are written to a folder."""
    fixed, symbolic = (build_network([BACKEND], number) for number in (2, "n"))
    for name, executable in (("fixed", fixed), ("symbolic", symbolic)):
        assert [module.type_key for module in executable.modules] == [BACKEND]
        executable.save(folder / f"{name}.byoc")
    one, few, many = draw_cases([2]), draw_cases([1, 2, 5, 0]), draw_cases(range(MOST_IMAGES))
    mains = [byoc_core.VirtualMachine(each)["main"] for each in (fixed, symbolic)]
    machines = [byoc_core.VirtualMachine(fixed, num_threads=number)["main"] for number in (1, 2)]
    slow = byoc_core.VirtualMachine(symbolic, native=False)["main"]
    return {
        "one shape": _call_in_turn([mains[0]], one),
        "a few shapes": _call_in_turn([mains[1]], few),
        "without the extension of the core": _call_in_turn([slow], few),
        "more shapes than are kept": _tenth_of(_call_in_turn([mains[1]], many)),
        "one thread and two": _call_in_turn(machines, one),
        "threads, one shape": from_threads(NUM_THREADS, _call_in_turn([mains[0]], one)),
        "threads, a few shapes": from_threads(NUM_THREADS, _call_in_turn([mains[1]], few)),
        "loads, one shape": _tenth_of(_load_anew(folder / "fixed.byoc", one)),
        "loads, a few shapes": _tenth_of(_load_anew(folder / "symbolic.byoc", few)),
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
    """Gives what memory grew by, for each kind of work and number of calls; says where it is more than allowed."""
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
