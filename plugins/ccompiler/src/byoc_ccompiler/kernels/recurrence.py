"""Recurrent layers: each sequence of a batch by itself, in each direction, one step after another."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import FunctionScope, c_dim, c_suffix

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.kernels.dots import dot_function
from byoc_ccompiler.kernels.index_checks import range_check
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_PRODUCT_PS = 100
"""Estimated picoseconds of one product and its addition."""

_GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
_STATES = {"nn.rnn": 1, "nn.gru": 1, "nn.lstm": 2}


def _lstm(suffix: str, step: Step, size: str) -> list[str]:
    return [
        f"for (int64_t k = 0; k < {size}; ++k) {{",
        f"  const T enter = byoc_sigmoid_{suffix}(gates[k] + shift[k]);",
        f"  const T leave = byoc_sigmoid_{suffix}(gates[{size} + k] + shift[{size} + k]);",
        f"  const T keep = byoc_sigmoid_{suffix}(gates[2 * {size} + k] + shift[2 * {size} + k]);",
        f"  const T new = byoc_tanh_{suffix}(gates[3 * {size} + k] + shift[3 * {size} + k]);",
        f"  state[{size} + k] = keep * state[{size} + k] + enter * new;",
        f"  state[k] = leave * byoc_tanh_{suffix}(state[{size} + k]);",
        "}",
    ]


def _rnn(suffix: str, step: Step, size: str) -> list[str]:
    total = "gates[k] + shift[k]"
    is_tanh = step.binding.attrs["activation"] == "tanh"
    made = f"byoc_tanh_{suffix}({total})" if is_tanh else f"byoc_maximum_{suffix}({total}, 0)"
    return [f"for (int64_t k = 0; k < {size}; ++k) state[k] = {made};"]


def _gru(suffix: str, step: Step, size: str) -> list[str]:
    """Gives the update; of the last gate ``gates`` holds the input's part: the state's part hangs on the reset."""
    inner = f"inner + k * {size}, {{operand}}, {size}"
    lines = [
        f"for (int64_t k = 0; k < 2 * {size}; ++k) gates[k] = byoc_sigmoid_{suffix}(gates[k] + shift[k]);",
        f"const T *const inner = matrix + 2 * {size} * {size};",
    ]
    if flag_of(step.binding, "linear_before_reset"):
        reached = f"gates[{size} + k] * ({{name}}_dot({inner.format(operand='state')}) + shift[2 * {size} + k])"
    else:
        lines.append(f"for (int64_t k = 0; k < {size}; ++k) reset[k] = gates[{size} + k] * state[k];")
        reached = f"({{name}}_dot({inner.format(operand='reset')}) + shift[2 * {size} + k])"
    return [
        *lines,
        f"for (int64_t k = 0; k < {size}; ++k) {{",
        f"  next[k] = byoc_tanh_{suffix}(gates[2 * {size} + k] + {reached});",
        "}",
        f"for (int64_t k = 0; k < {size}; ++k) state[k] = (1 - gates[k]) * next[k] + gates[k] * state[k];",
    ]


_UPDATES: dict[str, Callable[[str, Step, str], list[str]]] = {"nn.rnn": _rnn, "nn.gru": _gru, "nn.lstm": _lstm}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: a line is a sequence in one direction, its states and the sums of its gates in scratch."""
    (step,) = kernel.group.steps
    names = (
        "worker mine line way item time turn steps state gates reset next matrix inner shift enter leave keep new row"
    )
    reserve_locals(kernel, *names.split(), *(f"last{index}" for index in range(2)))
    x, weight, recurrence, bias = step.operands[:4]
    initial = step.operands[4 : 4 + _STATES[step.op]]
    lengths = step.operands[4 + len(initial) :]
    num_steps, batch, inputs = shape_of(x)
    hidden, ways = shape_of(recurrence)[2], shape_of(step.binding.results[1])[0]
    width = hidden * _GATES[step.op]
    num_states = len(initial)
    ctype, dtype, size = kernel.ctype(x), dtype_of(x), c_dim(hidden)
    source = kernel.input(x)
    roles = zip((weight, recurrence, bias), ("weight", "recurrence", "bias"), strict=True)
    weights, matrices, biases = (kernel.input(value, role) for value, role in roles)
    checks: list[str] = []
    steps = c_dim(num_steps)
    if lengths:
        ends = kernel.input(lengths[0], "lengths")
        checks = range_check(kernel, step.op, "a length does not fit the steps", ends, lengths[0], "0", steps)
        steps = f"(int64_t){ends}[item]"
    backwards = {"forward": "0", "reverse": "1", "bidirectional": "way"}[str(step.binding.attrs["direction"])]
    gated = f"2 * {size}" if step.op == "nn.gru" else c_dim(width)
    lines = [
        f"const int64_t way = line / {c_dim(batch)}, item = line % {c_dim(batch)};",
        f"const {ctype} *const matrix = {matrices} + way * {c_dim(width * hidden)};",
        f"const {ctype} *const shift = {biases} + way * {c_dim(2 * width)} + {c_dim(width)};",
        f"{ctype} *const state = mine, *const gates = state + {c_dim(hidden * num_states)};",
    ]
    if step.op == "nn.gru":
        spare = f"*const next = gates + {c_dim(width)}"
        if not flag_of(step.binding, "linear_before_reset"):
            spare += f", *const reset = next + {size}"
        lines.append(f"{ctype} {spare};")
    for number, value in enumerate(initial):
        start = f"{kernel.input(value, f'initial{number}')} + line * {size}"
        lines.append(f"memcpy(state + {c_dim(hidden * number)}, {start}, (size_t){size} * sizeof(*state));")
    every = step.binding.results[0]
    to = f"(({{turn}}) * {c_dim(ways)} + way) * {c_dim(batch * hidden)} + item * {size}"
    lines += [
        f"const int64_t steps = {steps};",
        "for (int64_t time = 0; time < steps; ++time) {",
        f"  const int64_t turn = {backwards} ? steps - 1 - time : time;",
        f"  const {ctype} *const from = {source} + (turn * {c_dim(batch)} + item) * {c_dim(inputs)};",
        f"  for (int64_t row = 0; row < {c_dim(width)}; ++row) {{",
        (
            f"    gates[row] = {{name}}_dot({weights} + (way * {c_dim(width)} + row) * {c_dim(inputs)}, from, "
            f"{c_dim(inputs)}) + {biases}[way * {c_dim(2 * width)} + row];"
        ),
        "  }",
        (
            f"  for (int64_t row = 0; row < {gated}; ++row) gates[row] += "
            f"{{name}}_dot(matrix + row * {size}, state, {size});"
        ),
        *(f"  {line}" for line in _UPDATES[step.op](c_suffix(dtype), step, size)),
    ]
    if every in kernel.stored:
        place = f"{kernel.output(every)} + {to.format(turn='turn')}"
        lines.append(f"  memcpy({place}, state, (size_t){size} * sizeof(*state));")
    lines.append("}")
    if lengths and every in kernel.stored:
        place = f"{kernel.output(every)} + {to.format(turn='turn')}"
        lines.append(f"for (int64_t turn = steps; turn < {c_dim(num_steps)}; ++turn) memset({place}, 0, ")
        lines[-1] += f"(size_t){size} * sizeof(*state));"
    for number, last in enumerate(step.binding.results[1:]):
        if last in kernel.stored:
            come = f"state + {c_dim(hidden * number)}"
            lines.append(f"memcpy({kernel.output(last)} + line * {size}, {come}, (size_t){size} * sizeof(*state));")
    lines = [line.replace("const T ", f"const {ctype} ") for line in lines]
    line_ps = num_steps * width * (inputs + hidden) * _PRODUCT_PS
    scratch = width + hidden * (num_states + 2)
    loop = line_loop(kernel, lines, batch * ways, line_ps, scratch=scratch, dtype=dtype)
    kernel.finish([*checks, loop], dot_function(ctype))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shapes = [shape_of(operand) for operand in step.operands]
    _, batch, inputs = shapes[0]
    hidden, ways = shapes[2][2], shape_of(step.binding.results[1])[0]
    width, states = hidden * _GATES[step.op], _STATES[step.op]
    wanted = [(ways, width, inputs), (ways, width, hidden), (ways, 2 * width), *[(ways, batch, hidden)] * states]
    if len(shapes) > len(wanted) + 1:
        wanted.append((batch,))
    for index, sizes in enumerate(wanted):
        require_equal_sizes(scope, step, index + 1, shapes[index + 1], sizes)


FAMILY = KernelFamily(frozenset(_GATES), reject_nothing, _write, require=_require)
"""Recurrent layers."""
