"""Type rules of the ops of neural networks against their kernels, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_FLOATS = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
_SIZES = st.integers(1, 5)


def _shape(draw: Draw, low: int = 0, high: int = 4) -> Shape:
    return tuple(draw(st.lists(_SIZES, min_size=low, max_size=high)))


def _rms_norm(draw: Draw) -> Case:
    shape, dtype = _shape(draw, 1), draw(_FLOATS)
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    return [(shape, dtype), (tuple(shape[axis] for axis in axes), dtype)], {"axes": axes}


def _per_channel(draw: Draw) -> Case:
    shape, dtype = _shape(draw, 2), draw(_FLOATS)
    return [(shape, dtype), ((shape[1],), dtype), ((shape[1],), dtype)], {}


def _group_norm(draw: Draw) -> Case:
    groups = draw(st.integers(1, 3))
    channels, dtype = groups * draw(st.integers(1, 2)), draw(_FLOATS)
    shape = (draw(_SIZES), channels, *_shape(draw, high=2))
    return [(shape, dtype), ((channels,), dtype), ((channels,), dtype)], {"groups": groups}


def _lrn(draw: Draw) -> Case:
    shape = _shape(draw, 2)
    attrs = {"size": draw(st.integers(1, 6)), "axis": draw(st.integers(-len(shape), len(shape) - 1))}
    return [(shape, draw(_FLOATS))], attrs


def _log_softmax(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    return [(shape, draw(_FLOATS))], {"axis": draw(st.integers(-len(shape), len(shape) - 1))}


def _windows(draw: Draw, kernel: Shape) -> dict[str, Any]:
    return {
        "strides": tuple(draw(st.integers(1, 3)) for _ in kernel),
        "dilation": tuple(draw(st.integers(1, 2)) for _ in kernel),
        "padding": tuple(draw(st.integers(0, size - 1)) for size in kernel * 2),
    }


def _kernel(draw: Draw, rank: int) -> Shape:
    return tuple(draw(st.integers(1, 3)) for _ in range(rank))


def _conv(rank: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        groups, per_group, out = (draw(st.integers(1, 3)) for _ in range(3))
        letters, kernel = "DHW"[-rank:], _kernel(draw, rank)
        data_layout = draw(st.sampled_from([f"NC{letters}", f"N{letters}C"]))
        kernel_layout = draw(st.sampled_from([f"OI{letters}", f"IO{letters}", f"{letters}IO"]))
        sizes = {"N": draw(_SIZES), "C": groups * per_group, **{axis: draw(st.integers(5, 7)) for axis in letters}}
        weights = {"O": groups * out, "I": per_group, **dict(zip(letters, kernel, strict=True))}
        operands = [
            (tuple(sizes[a] for a in data_layout), "float32"),
            (tuple(weights[a] for a in kernel_layout), "float32"),
        ]
        attrs = {"groups": groups, "data_layout": data_layout, "kernel_layout": kernel_layout}
        return operands, {**_windows(draw, kernel), **attrs}

    return case


def _conv_transpose(rank: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        groups, per_group, out = (draw(st.integers(1, 3)) for _ in range(3))
        letters, kernel = "DHW"[-rank:], _kernel(draw, rank)
        data_layout = draw(st.sampled_from([f"NC{letters}", f"N{letters}C"]))
        kernel_layout = draw(st.sampled_from([f"IO{letters}", f"OI{letters}", f"{letters}IO"]))
        sizes = {"N": draw(_SIZES), "C": groups * per_group, **{axis: draw(st.integers(4, 6)) for axis in letters}}
        weights = {"O": out, "I": groups * per_group, **dict(zip(letters, kernel, strict=True))}
        dtype = draw(_FLOATS)
        operands = [(tuple(sizes[a] for a in data_layout), dtype), (tuple(weights[a] for a in kernel_layout), dtype)]
        extra = tuple(draw(st.integers(0, 2)) for _ in kernel)
        attrs = {"groups": groups, "data_layout": data_layout, "kernel_layout": kernel_layout, "output_padding": extra}
        return operands, {**_windows(draw, kernel), **attrs}

    return case


def _pool(kind: str, rank: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        kernel, letters = _kernel(draw, rank), "DHW"[-rank:]
        attrs = {
            **_windows(draw, kernel),
            "pool_size": kernel,
            "ceil_mode": draw(st.booleans()),
            "layout": draw(st.sampled_from([f"NC{letters}", f"N{letters}C"])),
        }
        if kind == "avg":
            attrs["count_include_pad"] = draw(st.booleans())
        if kind == "lp":
            attrs["p"] = draw(st.integers(1, 3))
        shape = (draw(_SIZES), *(draw(st.integers(5, 7)) for _ in range(rank + 1)))
        return [(shape, draw(_FLOATS))], attrs

    return case


def _resize(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1)))))
    method = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    modes = ["half_pixel", "half_pixel_symmetric", "half_pixel_or_first", "align_corners", "asymmetric"]
    return [(shape, "int8" if method == "nearest" else draw(_FLOATS))], {
        "axes": axes,
        "sizes": tuple(draw(st.integers(1, 9)) for _ in axes),
        "scales": draw(st.sampled_from([None, tuple(draw(st.sampled_from([0.5, 1.0, 1.5])) for _ in axes)])),
        "method": method,
        "coordinates": draw(st.sampled_from(modes)),
        "rounding": draw(st.sampled_from(["half_down", "half_up", "floor", "ceil"])),
        "exclude_outside": draw(st.booleans()),
    }


def _recurrence(num_gates: int, num_states: int, **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
        directions = 2 if direction == "bidirectional" else 1
        steps, batch, inputs, hidden = (draw(_SIZES) for _ in range(4))
        shapes = [
            (steps, batch, inputs),
            (directions, num_gates * hidden, inputs),
            (directions, num_gates * hidden, hidden),
            (directions, 2 * num_gates * hidden),
            *[(directions, batch, hidden)] * num_states,
        ]
        dtype = draw(_FLOATS)
        more = {name: draw(values) for name, values in attrs.items()}
        lengths = [((batch,), "int32")] if draw(st.booleans()) else []
        return [*((shape, dtype) for shape in shapes), *lengths], {"direction": direction, **more}

    return case


def _einsum(draw: Draw) -> Case:
    equation = draw(
        st.sampled_from(
            ["ij,jk->ik", "ij,jk", "ii->i", "ii", "bij,bjk,bkl->bil", "i,j->ij", "...ij,...jk->...ik", "ij->ji", "i->"]
        )
    )
    sizes = {letter: draw(_SIZES) for letter in "bijkl"}
    batch = _shape(draw, high=2)
    operands = []
    for term in equation.partition("->")[0].split(","):
        hidden = _shape_end(draw, batch) if "..." in term else ()
        operands.append(((*hidden, *(sizes[letter] for letter in term.replace("...", ""))), "float32"))
    return operands, {"equation": equation}


def _shape_end(draw: Draw, shape: Shape) -> Shape:
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else size for size in kept)


def _quantized(draw: Draw, *, back: bool) -> Case:
    shape = _shape(draw, 1)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    inner = (shape[axis],) if draw(st.booleans()) else ()
    wide, narrow = draw(_FLOATS), draw(st.sampled_from(["int4", "int8", "uint8", "int16", "uint16"]))
    if draw(st.booleans()):
        block_size = draw(st.integers(1, 3))
        blocks = list(shape)
        blocks[axis] = -(-shape[axis] // block_size)
        attrs = {"axis": axis, "block_size": block_size}
        return [(shape, narrow if back else wide), (tuple(blocks), wide), (tuple(blocks), narrow)], attrs
    return [(shape, narrow if back else wide), (inner, wide), (inner, narrow)], {"axis": axis}


def _attention(draw: Draw) -> Case:
    batch, groups, shared, steps, length, size, out = (draw(st.integers(1, 3)) for _ in range(7))
    shapes = [(batch, groups * shared, steps, size), (batch, groups, length, size), (batch, groups, length, out)]
    if draw(st.booleans()):
        shapes.append(draw(st.sampled_from([(steps, length), (batch, 1, 1, length)])))
    dtype = draw(_FLOATS)
    causal = draw(st.booleans())
    attrs: dict[str, Any] = {"causal": causal, "softcap": draw(st.sampled_from([0.0, 1.5]))}
    attrs["offset"] = draw(st.integers(-2, 3)) if causal else 0
    attrs["zero_unseen"] = draw(st.booleans())
    attrs["scores"] = draw(st.sampled_from([None, "products", "capped", "masked", "weights"]))
    return [(shape, dtype) for shape in shapes], attrs


def _rotary(draw: Draw) -> Case:
    batch, heads, steps, half, rest = (draw(st.integers(1, 3)) for _ in range(5))
    dtype, angles = draw(_FLOATS), (batch, steps, half)
    shapes = [(batch, heads, steps, 2 * half + rest - 1), angles, angles]
    return [(shape, dtype) for shape in shapes], {"interleaved": draw(st.booleans())}


_CASES: dict[str, Callable[[Draw], Case]] = {
    **{f"nn.conv{rank}d": _conv(rank) for rank in (1, 3)},
    **{f"nn.conv{rank}d_transpose": _conv_transpose(rank) for rank in (1, 2, 3)},
    **{f"nn.{kind}_pool{rank}d": _pool(kind, rank) for kind in ("max", "avg") for rank in (1, 3)},
    **{f"nn.lp_pool{rank}d": _pool("lp", rank) for rank in (1, 2, 3)},
    "dequantize": lambda draw: _quantized(draw, back=True),
    "quantize": lambda draw: _quantized(draw, back=False),
    "nn.attention": _attention,
    "nn.rotary_embedding": _rotary,
    "einsum": _einsum,
    "nn.gru": _recurrence(3, 1, linear_before_reset=st.booleans()),
    "nn.lstm": _recurrence(4, 2),
    "nn.rnn": _recurrence(1, 1, activation=st.sampled_from(["tanh", "relu"])),
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _per_channel,
    "nn.log_softmax": _log_softmax,
    "nn.stepwise_softmax": _log_softmax,
    "nn.lrn": _lrn,
    "nn.resize": _resize,
    "nn.rms_norm": _rms_norm,
}
