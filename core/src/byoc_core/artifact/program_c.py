"""Programs of the virtual machine as C, for exported libraries that run functions without Python.

If all calls of a function are machine code, the function becomes a C function with the calls in order, as in exported C
(:mod:`byoc_core.artifact.plain_c`), and a C function for checking arguments and computing sizes; ``byoc_program.c``
calls both. For any other function the library states the reason for needing Python if no Python is found
(``byoc_python.c``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from byoc_core.artifact.native_program import NativeProgram, has_c_name, ops_text, solve_sizes
from byoc_core.artifact.plain_c.function_text import FunctionText
from byoc_core.artifact.plain_c.layout import lay_out_workspaces
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.artifact.plain_c.raw_functions import RawFunctions
from byoc_core.dims import Dim, broadcast_pairs, is_nonnegative
from byoc_core.dtypes import dtype_info
from byoc_core.native.bundle import ARTIFACT_SYMBOL
from byoc_core.native.c_text import c_string
from byoc_core.native.plain_c import has_raw_functions
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import Program, VMFunction

__all__ = ["program_source"]


def program_source(native: NativeProgram, constant_offsets: Mapping[str, int], artifact_nbytes: int) -> str:
    """Return C code exporting ``__tvm_ffi_<name>`` for each function of a program, if the name is a C identifier.

    Args:
        native: the program.
        constant_offsets: positions of constants in the library's artifact, by digest.
        artifact_nbytes: the artifact's size.
    """
    functions = native.program.functions
    exported = list(filter(has_c_name, functions))
    regions = [(name, owner, owner.find_signature(name)) for name, owner in native.python_regions()]
    used = {native.is_native(function) for function in exported} | {False for *_, signature in regions if signature}
    headers = [name for name, is_native in (("byoc_program.h", True), ("byoc_python.h", False)) if is_native in used]
    parts = [
        "/* The functions of the executable. */",
        *(f'#include "{name}"' for name in ("byoc_ffi.h", *headers)),
        f"BYOC_EXPORT extern const unsigned char {ARTIFACT_SYMBOL}[];",
    ]
    bodies = _Bodies(native, [function for function in exported if native.is_native(function)], constant_offsets)
    parts += bodies.declarations()
    for index, function in enumerate(exported):
        if native.is_native(function):
            parts += bodies.lines(function, index)
        else:
            specs = (*function.params, *function.results)
            parts += _python_lines(function.name, specs, native.reason(function), index, artifact_nbytes)
    for index, (name, owner, signature) in enumerate(regions, start=len(exported)):
        if signature is not None:
            specs = (*signature.inputs, *signature.outputs)
            reason = f"needs Python for runtime `{owner.type_key}`{ops_text(owner, name)}"
            parts += _python_lines(name, specs, reason, index, artifact_nbytes)
    return "\n".join(parts) + "\n"


def _export(name: str, call: str) -> list[str]:
    head = f"BYOC_EXPORT int32_t __tvm_ffi_{name}(void *handle, const TVMFFIAny *args, int32_t num_args,"
    return [head, "  TVMFFIAny *result) {", "  (void)handle;", "  (void)result;", f"  return {call};", "}", ""]


def _argument_names(specs: Iterable[TensorSpec], index: int) -> str:
    names = [c_string(spec.name) for spec in specs]
    return f"static const char *const names_{index}[] = {{{', '.join([*names, 'NULL'])}}};"


def _python_lines(name: str, specs: Sequence[TensorSpec], reason: str, index: int, artifact_nbytes: int) -> list[str]:
    fields = f"names_{index}, {len(specs)}, {ARTIFACT_SYMBOL}, {artifact_nbytes}u"
    return [
        "",
        _argument_names(specs, index),
        f"static const byoc_python_function function_{index} = {{",
        f"    {c_string(name)}, {c_string(reason)}, {fields}}};",
        *_export(name, f"byoc_run_in_python(&function_{index}, args, num_args)"),
    ]


class _Bodies:
    """The C of all native functions of a library.

    Args:
        native: the program.
        functions: the native functions.
        constant_offsets: positions of constants in the library's artifact, by digest.
    """

    def __init__(
        self, native: NativeProgram, functions: Sequence[VMFunction], constant_offsets: Mapping[str, int]
    ) -> None:
        self._native = native
        self._functions = functions
        program = native.program
        self._names = {f.name: FunctionNames(f"byoc_{index}", f) for index, f in enumerate(program.functions)}
        self._layouts = lay_out_workspaces(
            Program(program.functions, program.externs, program.constants), only=functions
        )
        constants = {digest: f"{ARTIFACT_SYMBOL} + {offset}u" for digest, offset in constant_offsets.items()}
        self._texts = {
            f.name: FunctionText(native, f, self._names, self._layouts, constants, is_library=True) for f in functions
        }
        callees = (
            program.functions[call.callee]
            for function in functions
            for call in function.code
            if isinstance(call, Call) and call.kind is CallKind.FUNCTION
        )
        self._called = dict.fromkeys(callee.name for callee in callees if callee.input_symbols)

    def declarations(self) -> Iterator[str]:
        """Yield the declarations of all called functions, and of the bodies."""
        if not self._functions:
            return
        yield '#include "byoc_scalar.h"'
        yield "#include <string.h>"
        for symbol, module in self._native.called_sources(self._functions):
            if has_raw_functions(module.get_source("c")):
                yield from RawFunctions().declarations(module, symbol)
            else:
                name = self._native.region_symbol(symbol)
                yield f"int32_t {name}(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);"
        yield from (f"{text.prototype()};" for text in self._texts.values())
        yield from (f"{self._texts[name].sizes_prototype()};" for name in self._called)

    def lines(self, function: VMFunction, index: int) -> Iterator[str]:
        """Yield body, measuring function and export of a function."""
        names, (nbytes,) = self._names[function.name], self._layouts[function.name].nbytes
        yield from ("", f"/* {function.name} */", self._texts[function.name].definition())
        if function.name in self._called:
            yield self._texts[function.name].sizes_definition()
        yield _argument_names((*function.params, *function.results), index)
        yield f"static int32_t measure_{index}(const DLTensor *const *arguments, int64_t *sizes, int64_t *nbytes) {{"
        yield from self._checks(function)
        yield from (f"  sizes[{k}] = {names.size_variable(symbol)};" for k, symbol in enumerate(names.sizes))
        yield from () if names.sizes else ("  (void)sizes;",)
        yield f"  *nbytes = {names.size_text(nbytes)};"
        yield from ("  return 0;", "}")
        yield f"static int32_t run_{index}(void *const *pointers, const int64_t *sizes, char *workspace) {{"
        arguments = [f"pointers[{k}]" for k in range(len(function.params) + len(function.results))]
        yield from () if arguments else ("  (void)pointers;",)
        yield from () if names.sizes else ("  (void)sizes;",)
        arguments += [f"sizes[{k}]" for k in range(len(names.sizes))]
        yield f"  return {names.body}({', '.join([*arguments, 'workspace'])});"
        yield "}"
        counts = f"{len(function.params)}, {len(function.results)}, {len(names.sizes)}"
        yield f"static const byoc_program program_{index} = {{"
        yield f"    {c_string(function.name)}, names_{index}, {counts}, measure_{index}, run_{index}}};"
        yield from _export(function.name, f"byoc_run_program(&program_{index}, args, num_args)")

    def _checks(self, function: VMFunction) -> Iterator[str]:
        names, name = self._names[function.name], c_string(function.name)
        specs = (*function.params, *function.results)
        for index, spec in enumerate(specs):
            info = dtype_info(spec.dtype)
            expected = f"{int(info.dl_code)}, {info.bits}, {len(spec.shape)}"
            yield f"  if (byoc_check_tensor({name}, {c_string(spec.name)}, arguments[{index}], {expected})) return -1;"
        solved = solve_sizes(function)
        assert solved is not None
        for (index, axis), (unknown, factor, offset) in solved.items():
            target = names.size_variable(unknown)
            axis_arguments = f"{name}, {c_string(specs[index].name)}, arguments[{index}], {axis}"
            yield f"  int64_t {target} = 0;"
            yield f"  if (byoc_solve_size({axis_arguments}, {factor}, {names.size_text(offset)}, &{target})) return -1;"
        registers = self._native.program.registers(function)
        dims = [dim for register in registers for dim in register.shape]
        pairs = dict.fromkeys(pair for dim in (*dims, *function.storages) for pair in broadcast_pairs(dim))
        for left, right in pairs:
            yield f"  if (byoc_check_broadcast({name}, {names.size_text(left)}, {names.size_text(right)})) return -1;"
        for index, spec in enumerate(specs):
            for axis, dim in enumerate(spec.shape):
                if (index, axis) not in solved:
                    axis_arguments = f"{name}, {c_string(spec.name)}, arguments[{index}], {axis}"
                    yield f"  if (byoc_check_size({axis_arguments}, {names.size_text(dim)})) return -1;"
        yield from self._sign_checks(function)

    def _sign_checks(self, function: VMFunction) -> Iterator[str]:
        """Yield the checks of sizes that may come out negative."""
        names = self._names[function.name]
        checked: set[Dim] = set()
        for index, register in enumerate(self._native.program.registers(function)):
            for axis, dim in enumerate(register.shape):
                if not is_nonnegative(dim) and dim not in checked:
                    checked.add(dim)
                    text = f"function `{function.name}`, register {index}: axis {axis} has a negative size; got"
                    size = names.size_text(dim)
                    failure = f'byoc_fail("ValueError", {c_string(text)} " %lld", (long long){size})'
                    yield f"  if ({size} < 0) return {failure};"
