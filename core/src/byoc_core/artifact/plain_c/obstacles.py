"""Everything that keeps a program from being plain C, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from byoc_core.artifact.native_program import NativeProgram
from byoc_core.dims import match_symbols, symbols_of
from byoc_core.dtypes import complex_dtypes
from byoc_core.errors import CodegenError
from byoc_core.native.plain_c import has_raw_functions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import VMFunction

__all__ = ["check_plain"]


def check_plain(native: NativeProgram) -> None:
    """Check that all functions of a program have a form in plain C.

    Raises:
        CodegenError: lists each function with all calls, ops and sizes without such a form.
    """
    found = {
        function.name: tuple(dict.fromkeys((*native.obstacles(function), *_own_obstacles(native, function))))
        for function in native.program.functions
    }
    lines = [f"function `{name}`: {text}" for name, texts in found.items() for text in texts]
    if lines:
        names = [f"`{name}`" for name, texts in found.items() if texts]
        raise CodegenError(
            f"function {', '.join(names)}",
            f"has no form in plain C because of {len(lines)} {'part' if len(lines) == 1 else 'parts'}",
            detail="\n".join(lines),
            hint="Compile the model with backends that generate C for all ops; "
            "`byoc explain` shows the reason for each op on the host.",
        )


def _own_obstacles(native: NativeProgram, function: VMFunction) -> Iterator[str]:
    registers = native.program.registers(function)
    for dtype in sorted({register.dtype for register in registers if register.dtype in complex_dtypes()}):
        yield f"tensors of {dtype}"
    for call in function.code:
        if not isinstance(call, Call) or call.kind is not CallKind.EXTERN:
            continue
        symbol = native.program.externs[call.callee]
        module = native.owner(symbol)
        if not isinstance(module, CSourceModule):
            continue
        source = module.get_source("c")
        if not has_raw_functions(source):
            yield f"`{symbol}`, from a source without functions over plain pointers (compile the model again)"
            continue
        if module.not_held:
            yield f"`{symbol}`, built with files missing in the artifact: {', '.join(module.not_held)}"
        if re.search(r"\b(malloc|calloc|realloc|aligned_alloc)\(", source):
            yield f"`{symbol}`, from a source with memory on the heap"
        signature = module.signatures[symbol]
        numbers = (*call.args, *call.results)
        count = len(signature.inputs) + len(signature.outputs)
        declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
        sizes = match_symbols(declared, [dim for number in numbers[:count] for dim in registers[number].shape])
        unmatched = sorted({name for dim in declared for name in symbols_of(dim)} - sizes.keys())
        if unmatched:
            yield f"`{symbol}`, with sizes not determined by the shapes of the call: {', '.join(unmatched)}"
        if module.call_traits(symbol).workspace_nbytes != 0 and len(numbers) == count:
            yield f"`{symbol}`, with scratch memory of a size unknown when the function begins"
