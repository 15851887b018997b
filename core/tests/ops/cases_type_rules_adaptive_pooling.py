"""Type rules of adaptive pooling and of axes of size 1 against their kernels, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_SIZES = st.integers(1, 5)


def _pool(rank: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        letters = "DHW"[-rank:]
        layout = draw(st.sampled_from([f"NC{letters}", f"N{letters}C"]))
        shape = tuple(draw(_SIZES) for _ in layout)
        return [(shape, "float32")], {"output_size": tuple(draw(_SIZES) for _ in letters), "layout": layout}

    return case


def _squeeze(draw: Draw) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=5)))
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    chosen = tuple(draw(st.sets(st.sampled_from(ones)))) if ones else ()
    return [(shape, "int8")], {"axis": tuple(axis - draw(st.sampled_from([0, len(shape)])) for axis in chosen)}


def _expand_dims(draw: Draw) -> Case:
    shape, count = tuple(draw(st.lists(_SIZES, max_size=3))), draw(st.integers(0, 3))
    places = st.lists(st.integers(0, len(shape) + count - 1), min_size=count, max_size=count, unique=True)
    return [(shape, "bool")], {"axis": tuple(draw(places)) if count else ()}


_CASES: dict[str, Callable[[Draw], Case]] = {
    **{f"nn.adaptive_{kind}_pool{rank}d": _pool(rank) for kind in ("avg", "max") for rank in (1, 2, 3)},
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
}
