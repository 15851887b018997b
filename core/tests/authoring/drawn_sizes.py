"""Random sizes with calls, and the values of C expressions over sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim, broadcast_dim, dim_max, dim_min, symbol
from hypothesis import strategies as st

__all__ = ["CALL", "SYMBOLS", "sizes", "value_of_c"]

SYMBOLS = ("n", "m", "size_1")
"""Names of symbols; the last is also a name of a variable for a size."""

CALL = re.compile(r"byoc_(?:floordiv|mod|min|max|broadcast)\(")

_FUNCTIONS = {
    "byoc_floordiv": lambda left, right: left // right,
    "byoc_mod": lambda left, right: left % right,
    "byoc_min": min,
    "byoc_max": max,
    "byoc_broadcast": lambda left, right: right if left == 1 else left,
}


def value_of_c(definitions: Sequence[str], text: str, values: Mapping[str, int]) -> int:
    """Return the value of a C expression behind definitions of C variables."""
    known: dict[str, object] = {**_FUNCTIONS, **{f"dim_{name}": value for name, value in values.items()}}
    for line in definitions:
        head, _, value = line.rstrip(";").partition(" = ")
        name = head.removeprefix("const int64_t ")
        assert name not in known, f"{name} is defined twice"
        known[name] = eval(value, {"__builtins__": {}}, known)
    return int(eval(text, {"__builtins__": {}}, known))


def _combined(dims: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pairs = st.tuples(dims, dims)
    return st.one_of(
        pairs.map(lambda pair: pair[0] + pair[1]),
        pairs.map(lambda pair: pair[0] - pair[1]),
        pairs.map(lambda pair: pair[0] * pair[1]),
        pairs.map(lambda pair: dim_min(*pair)),
        pairs.map(lambda pair: dim_max(*pair)),
        st.tuples(dims, st.integers(1, 7)).map(lambda pair: pair[0] // pair[1]),
        st.tuples(dims, st.integers(1, 7)).map(lambda pair: pair[0] % pair[1]),
        st.tuples(dims, st.sampled_from(SYMBOLS)).map(lambda pair: pair[0] // (symbol(pair[1]) + 1)),
        st.sampled_from(SYMBOLS).map(lambda name: broadcast_dim(symbol(name) // 2, symbol("n") // 2)),
    )


sizes: st.SearchStrategy[Dim] = st.recursive(
    st.integers(-4, 9) | st.sampled_from(SYMBOLS).map(symbol), _combined, max_leaves=7
)
"""Sizes with quotients, remainders, extrema and broadcasts; no divisor is 0."""
