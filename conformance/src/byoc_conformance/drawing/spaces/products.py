"""Spaces of products over several axes: Einstein sums, attention, recurrence."""

from __future__ import annotations

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, case, integers

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import Space, schema_levels

__all__ = ["attention", "einsum", "recurrence"]

_EQUATIONS = (
    *("ij,jk->ik", "ki,ij", "ij->ji", "bij,bjk->bik", "ij->", "i,j->ij", "bhid,bhjd->bhij", "ijk->kij", "ij,ij->"),
    *("abc,cd->dab", "ii->i", "bij,kj->bik", "ijk,jil->kl"),
)
_LETTERS = ((2, 3, 4, 5, 6), (17, 1, 8, 2, 3), (1, 9, 33, 3, 2))
"""Sizes of the letters of an equation, in alphabetical order."""


def einsum(op: OpDef) -> Space:
    """Return the space of ``einsum``: with and without an arrow, sums over zero, one or all axes, diagonals."""

    def build(levels: Levels) -> OpCase:
        equation = levels["equation"]
        terms = equation.partition("->")[0].split(",")
        sizes = dict(zip(sorted(set("".join(terms))), levels["sizes"], strict=False))
        return case(op.name, *(tuple(sizes[letter] for letter in term) for term in terms), equation=equation)

    return Space({"equation": _EQUATIONS, "sizes": _LETTERS}, build)


def attention(op: OpDef) -> Space:
    """Return the space of attention: groups of heads, one step and many keys, masks of all kinds, causal offsets."""

    def build(levels: Levels) -> OpCase:
        (batch, heads, groups), (steps, keys), (size, width) = levels["heads"], levels["steps"], levels["sizes"]
        masks: dict[str, list[tuple[int, ...]]] = {
            "none": [],
            "of keys": [(keys,)],
            "of steps": [(steps, keys)],
            "of heads": [(heads, steps, keys)],
            "of all": [(batch, heads, steps, keys)],
        }
        attrs = {name: level for name, level in levels.items() if name not in {"heads", "steps", "sizes", "mask"}}
        key, value = (batch, groups, keys, size), (batch, groups, keys, width)
        return case(op.name, (batch, heads, steps, size), key, value, *masks[levels["mask"]], **attrs)

    factors = {
        "heads": ((2, 3, 3), (1, 6, 2)),
        "steps": ((5, 7), (1, 9), (16, 16), (3, 600)),
        "sizes": ((4, 6), (8, 8), (24, 3)),
        "mask": ("none", "of steps", "of heads", "of keys", "of all"),
        "offset": (0, 1, -1, 600),
        **schema_levels(op),
        # Most uses ask for no scores, and are computed in other ways than uses with scores.
        "scores": (None, None, None, "products", "capped", "masked", "weights"),
    }
    return Space(factors, build)


_GATES = {"nn.rnn": (1, 1), "nn.gru": (3, 1), "nn.lstm": (4, 2)}
"""The gates and the states of each layer."""


def recurrence(op: OpDef) -> Space:
    """Return the space of a recurrent layer: one step and many, narrow and wide states, items of other lengths."""

    def build(levels: Levels) -> OpCase:
        steps, batch, inputs, hidden = levels["sizes"]
        num_gates, num_states = _GATES[op.name]
        directions, width = 2 if levels["direction"] == "bidirectional" else 1, num_gates * hidden
        weights = [(directions, width, inputs), (directions, width, hidden), (directions, 2 * width)]
        lengths = [integers((batch,), 1, steps, "int32")] if levels["lengths"] else []
        attrs = {name: level for name, level in levels.items() if name not in {"sizes", "lengths"}}
        states = [(directions, batch, hidden)] * num_states
        return case(op.name, (steps, batch, inputs), *weights, *states, *lengths, **attrs)

    sizes = ((5, 2, 3, 4), (1, 1, 8, 33), (7, 3, 17, 9), (3, 5, 2, 1))
    return Space({"sizes": sizes, "lengths": (False, True), **schema_levels(op)}, build)
