"""The two outer layers of a generated function: checks over ``DLTensor*``, and the packed export of the TVM FFI ABI.

The raw function inside does not check sizes. Some sizes must agree, although symbols hide this from the type rules:
:class:`FunctionScope` collects these conditions as ``checks``, and the wrapper evaluates the checks before the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.authoring.csource_scope import FunctionScope, SizeCheck
from byoc_core.authoring.csource_shared import tensor_type
from byoc_core.authoring.csource_types import c_symbol
from byoc_core.authoring.size_names import SizeNames
from byoc_core.dims import Dim, DimExpr, broadcast_pairs, symbols_of
from byoc_core.dtypes import DLCode, dtype_info
from byoc_core.errors import CodegenError

__all__ = ["packed_export", "size_checks", "wrapper_function"]

_CODES = {
    DLCode.FLOAT: "kDLFloat",
    DLCode.BFLOAT: "kDLBfloat",
    DLCode.INT: "kDLInt",
    DLCode.UINT: "kDLUInt",
    DLCode.BOOL: "kDLBool",
}


def wrapper_function(scope: FunctionScope) -> str:
    """Return ``<symbol>_wrapper_``, which checks every tensor, finds the symbolic sizes and calls the raw function.

    Raises:
        CodegenError: a symbolic size cannot be found from the shapes of the arguments.
    """
    arguments = [
        *zip(scope.function.params, scope.inputs, strict=True),
        *zip(scope.function.results, scope.outputs, strict=True),
    ]
    names = [name for _, name in arguments]
    if scope.workspace_nbytes != 0:
        names.append("workspace")
    parameters = ", ".join(f"const DLTensor *{name}" for name in names)
    lines = [f"  int64_t {c_symbol(symbol)} = 0;" for symbol in scope.symbols]
    axes: list[tuple[str, int, Dim]] = []
    for index, (value, name) in enumerate(arguments):
        shape, dtype = tensor_type(value, scope.where)
        info = dtype_info(dtype)
        expected = f"{name}, {_CODES[info.dl_code]}, {info.bits}, {len(shape)}"
        check = f"byoc_check_tensor({_quoted(scope.symbol)}, {_quoted(name)}, {expected})"
        if any(isinstance(dim, int) for dim in shape):  # C compilers take longer for a call for each axis
            table = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in shape)
            lines.append(f"  static const int64_t byoc_shape_{index}[] = {{{table}}};")
            expected = f"{expected}, byoc_shape_{index}"
            check = f"byoc_check_shape({_quoted(scope.symbol)}, {_quoted(name)}, {expected})"
        lines.append(f"  if ({check}) return -1;")
        axes += [(name, axis, dim) for axis, dim in enumerate(shape) if not isinstance(dim, int)]
    solved = _solve(scope, axes, lines)
    names_of_sizes = SizeNames(scope.symbols)
    unsolved = [(name, axis, dim) for name, axis, dim in axes if (name, axis) not in solved]
    lines += _check_lines(
        [
            *_broadcast_checks(scope),
            *(
                SizeCheck(f"byoc_check_size({_quoted(scope.symbol)}, {_quoted(name)}, {name}, {axis}", (dim,))
                for name, axis, dim in unsolved
            ),
        ],
        names_of_sizes,
    )
    if scope.checks:
        lines.append(f"  if ({scope.symbol}_sizes_({', '.join(_size_names(scope))})) return -1;")
    params = list(zip(scope.function.params, scope.inputs, strict=True))
    bools = [name for param, name in params if tensor_type(param, scope.where)[1] == "bool"]
    data = [f"byoc_bools_{bools.index(name)}" if name in bools else f"byoc_data({name})" for _, name in arguments]
    sizes = _size_names(scope)
    if scope.workspace_nbytes != 0:
        nbytes_check = SizeCheck(f"byoc_check_workspace({_quoted(scope.symbol)}, workspace", (scope.workspace_nbytes,))
        lines += _check_lines([nbytes_check], names_of_sizes, "workspace && ")
        sizes.append("workspace ? byoc_data(workspace) : NULL")
    head = f"BYOC_EXPORT int32_t {scope.symbol}_wrapper_({parameters or 'void'})"
    call = f"{scope.symbol}_({', '.join([*data, *sizes])})"
    lines += _bool_lines(scope, bools, call) if bools else [f"  return {call};"]
    return "\n".join([f"{head} {{", *lines, "}"])


def size_checks(scope: FunctionScope) -> str:
    """Return ``<symbol>_sizes_``, which compares symbolic sizes; an empty text if there is nothing to compare."""
    pairs = _broadcast_checks(scope)
    if not scope.checks and not pairs:
        return ""
    names = _size_names(scope)
    lines = [f"  (void){name};" for name in names] + _check_lines([*pairs, *scope.checks], SizeNames(scope.symbols))
    parameters = ", ".join(f"int64_t {name}" for name in names)
    head = f"BYOC_EXPORT int32_t {scope.symbol}_sizes_({parameters})"
    return "\n".join([f"{head} {{", *lines, "  return 0;", "}"])


def _size_names(scope: FunctionScope) -> list[str]:
    return list(map(c_symbol, scope.symbols))


def _check_lines(checks: Iterable[SizeCheck], names: SizeNames, condition: str = "") -> list[str]:
    """Return the lines to run checks in order, each behind the definitions of the C variables first used by the check.

    A failing check may protect later sizes from an overflow.
    """
    lines: list[str] = []
    for check in checks:
        num_known = len(names.definitions)
        text = check.text(names)
        lines += (f"  {line}" for line in names.definitions[num_known:])
        lines.append(f"  if ({condition}{text}) return -1;")
    return lines


def _broadcast_checks(scope: FunctionScope) -> list[SizeCheck]:
    """Return the checks of broadcasting pairs of sizes in the signature, each once."""
    values = (*scope.function.params, *scope.function.results)
    dims = [dim for value in values for dim in tensor_type(value, scope.where)[0]]
    pairs = dict.fromkeys(pair for dim in dims for pair in broadcast_pairs(dim))
    return [SizeCheck(f"byoc_check_broadcast({_quoted(scope.symbol)}", pair) for pair in pairs]


def _bool_lines(scope: FunctionScope, bools: Sequence[str], call: str) -> list[str]:
    """Return the lines to call the raw function on bools with bytes 0 or 1: the caller's memory, or a copy."""
    lines = ["  int32_t byoc_status = -1;"]
    for index in range(len(bools)):
        lines += [f"  uint8_t *byoc_own_{index} = NULL;", f"  const uint8_t *byoc_bools_{index} = NULL;"]
    checks = [
        f"byoc_read_bools({_quoted(scope.symbol)}, {_quoted(name)}, {name}, &byoc_bools_{index}, &byoc_own_{index})"
        for index, name in enumerate(bools)
    ]
    lines.append(f"  if (!({' || '.join(checks)})) byoc_status = {call};")
    lines += [f"  free(byoc_own_{index});" for index in range(len(bools))]
    return [*lines, "  return byoc_status;"]


def _solve(scope: FunctionScope, axes: list[tuple[str, int, Dim]], lines: list[str]) -> set[tuple[str, int]]:
    """Add lines to compute every symbol from an axis with a size linear in the symbol; return the used axes."""
    missing = set(scope.symbols)
    used: set[tuple[str, int]] = set()
    for name, axis, dim in axes:
        linear = _linear(dim)
        if linear is None or linear[0] not in missing:
            continue
        symbol, factor, offset = linear
        missing.discard(symbol)
        used.add((name, axis))
        axis_arguments = f"{_quoted(scope.symbol)}, {_quoted(name)}, {name}, {axis}"
        target = f"&{c_symbol(symbol)}"
        lines.append(f"  if (byoc_solve_size({axis_arguments}, {factor}, {offset}, {target})) return -1;")
    if missing:
        raise CodegenError(
            scope.where, f"the size of {', '.join(sorted(missing))} cannot be computed from the shapes of the arguments"
        )
    return used


def _linear(dim: Dim) -> tuple[str, int, int] | None:
    """Return (symbol, factor, offset) of ``factor * symbol + offset``, or ``None`` for another form."""
    names = symbols_of(dim)
    if not isinstance(dim, DimExpr) or len(names) != 1:
        return None
    symbol, factor, offset = next(iter(names)), 0, 0
    for monomial, coefficient in dim.terms:
        if not monomial:
            offset = coefficient
        elif len(monomial) == 1 and monomial[0][1] == 1 and not monomial[0][0].op:
            factor = coefficient
        else:
            return None
    return symbol, factor, offset


def packed_export(scope: FunctionScope) -> str:
    """Return ``__tvm_ffi_<symbol>``, which unpacks the tensors from the arguments and calls the wrapper."""
    names = [*scope.inputs, *scope.outputs]
    head = (
        f"BYOC_EXPORT int32_t __tvm_ffi_{scope.symbol}(void *handle, const TVMFFIAny *args, int32_t num_args, "
        "TVMFFIAny *result)"
    )
    lines = ["  (void)handle;", "  (void)args;", "  (void)result;"]
    count, has_workspace = len(names), scope.workspace_nbytes != 0
    if has_workspace:
        names.append("workspace")
    tensors = ", ".join(f"tensors[{index}]" for index in range(len(names)))
    if names:
        quoted = ", ".join(map(_quoted, names))
        arguments = f"{_quoted(scope.symbol)}, names, {count}, {int(has_workspace)}, args, num_args, tensors"
        lines.append(f"  static const char *const names[] = {{{quoted}}};")
        lines.append(f"  const DLTensor *tensors[{len(names)}];")
        lines.append(f"  if (byoc_read_tensors({arguments})) return -1;")
    else:
        lines.append(f"  if (byoc_check_count({_quoted(scope.symbol)}, num_args, 0)) return -1;")
    lines.append(f"  return {scope.symbol}_wrapper_({tensors});")
    return "\n".join([f"{head} {{", *lines, "}"])


def _quoted(text: str) -> str:
    return f'"{text}"'
