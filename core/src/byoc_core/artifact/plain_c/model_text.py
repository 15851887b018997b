"""The header and the source of an exported model: structures of pointers, size queries, metadata, the functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.artifact.native_program import NativeProgram
from byoc_core.artifact.plain_c.constants import ALIGNMENT, ConstantFiles
from byoc_core.artifact.plain_c.function_text import FunctionText
from byoc_core.artifact.plain_c.layout import WorkspaceLayout
from byoc_core.artifact.plain_c.names import FunctionNames, Side
from byoc_core.artifact.plain_c.raw_functions import RawFunctions
from byoc_core.artifact.plain_c.state_text import StateText, public_type
from byoc_core.dims import Dim
from byoc_core.native.c_text import HALF_DTYPES, c_comment, c_storage_type, c_string
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.pools import Pool
from byoc_core.vm.program import VMFunction

__all__ = ["ModelText"]

_STATUSES = """\
/* Statuses of a run. */
enum {{
  {upper}_OK = 0,
  {upper}_FAILED = -1,       /* a value without a meaning for an op, such as an index out of range */
  {upper}_BAD_SIZE = -2,     /* a size is negative, above its maximum, or does not fit another size */
  {upper}_BAD_ARGUMENT = -3, /* a pointer is NULL, or the workspace is not aligned */{more}
}};

{alignments}

/* An input or output: sizes of -1 are symbolic. */
struct {prefix}_tensor {{
  const char *name;
  const char *dtype;
  int32_t ndim;
  const int64_t *shape;
}};
"""

_BAD_CONSTANTS = """
  {upper}_BAD_CONSTANTS = -4, /* the constants are not those of this model */"""
_STATE_FULL = """
  {upper}_STATE_FULL = -5, /* a buffer of a state has too few elements; nothing has run */"""
_CONSTANTS_HEADER = """\
/* The constants are the file {file}, mapped or read by the caller at an aligned address, and passed to each run. A run
 * compares the first {head} bytes with those of the exported file. */
#define {upper}_CONSTANTS_ALIGNMENT {alignment}
#define {upper}_CONSTANTS_SIZE {nbytes}
/* Return the bytes of the file. */
int64_t {prefix}_constants_size(void);
/* Return the SHA-256 digest of the bytes of the file behind the first {head}, in hexadecimal. */
const char *{prefix}_constants_digest(void);
/* Check the bytes and the first {head} bytes of a file in memory; return a status. */
int32_t {prefix}_check_constants(const void *constants, int64_t nbytes);
"""
_CONSTANTS_SOURCE = """\
static const unsigned char {prefix}_constants_head[] = {{{values}}};

int64_t {prefix}_constants_size(void) {{ return {upper}_CONSTANTS_SIZE; }}

const char *{prefix}_constants_digest(void) {{ return "{digest}"; }}

int32_t {prefix}_check_constants(const void *constants, int64_t nbytes) {{
  if (!constants || (uintptr_t)constants % {upper}_CONSTANTS_ALIGNMENT) return {upper}_BAD_ARGUMENT;
  if (nbytes != {upper}_CONSTANTS_SIZE) return {upper}_BAD_CONSTANTS;
  const int is_same = !memcmp(constants, {prefix}_constants_head, sizeof {prefix}_constants_head);
  return is_same ? {upper}_OK : {upper}_BAD_CONSTANTS;
}}
"""


@dataclass(frozen=True)
class ModelText:
    """The C of a model.

    Attributes:
        prefix: the model's name, a C identifier.
        native: the program.
        names: the C names of all functions, by name.
        raw: the generated functions.
        layouts: the workspaces of all functions, by name.
        constants: the constants.
        max_sizes: the largest size of each symbol, or ``None``.
        modules: the sources of generated C, in the order of their tables of constants.
        pools: the memories of a run.
    """

    prefix: str
    native: NativeProgram
    names: Mapping[str, FunctionNames]
    raw: RawFunctions
    layouts: Mapping[str, WorkspaceLayout]
    constants: ConstantFiles
    max_sizes: Mapping[str, int] | None
    modules: Sequence[CSourceModule]
    pools: Sequence[Pool]

    @property
    def _functions(self) -> Sequence[VMFunction]:
        return self.native.program.functions

    def header(self) -> str:
        """Return ``<prefix>.h``."""
        upper = self.prefix.upper()
        lines = [
            f"/* Model {self.prefix}: C functions without heap, threads and written globals. Any number of threads may",
            " * call a function at once, each with a separate workspace. */",
            f"#ifndef {upper}_H_",
            f"#define {upper}_H_",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            _STATUSES.format(
                upper=upper,
                prefix=self.prefix,
                alignments="\n".join(self._alignments()),
                more=(_BAD_CONSTANTS.format(upper=upper) if self.constants.is_file else "")
                + (_STATE_FULL.format(upper=upper) if self._has_state_buffers else ""),
            ),
            *self._constants_text(_CONSTANTS_HEADER),
        ]
        for function in self._functions:
            lines += self._declarations(function)
        lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {upper}_H_ */"]
        return "\n".join(lines) + "\n"

    def _constants_text(self, template: str) -> list[str]:
        """Return a text on the constants passed by the caller; nothing if the C holds the constants."""
        if not self.constants.is_file:
            return []
        head = self.constants.head()
        return [
            template.format(
                prefix=self.prefix,
                upper=self.prefix.upper(),
                file=self.constants.file_name,
                alignment=ALIGNMENT,
                head=len(head),
                nbytes=self.constants.file_nbytes,
                digest=self.constants.digest.hex(),
                values=", ".join(map(str, head)),
            )
        ]

    @property
    def _is_single(self) -> bool:
        return len(self.pools) == 1

    def _alignments(self) -> Iterator[str]:
        """Yield the alignments of the pools, and the structure of their addresses if there are several."""
        yield "/* Bytes to which the address of each memory must be aligned. */"
        upper = self.prefix.upper()
        for pool in self.pools:
            yield f"#define {upper}_{pool.name.upper()}_ALIGNMENT {pool.alignment}"
        if not self._is_single:
            yield ""
            yield "/* The memories of a run. */"
            yield f"struct {self.prefix}_pools {{"
            yield from (f"  void *{pool.name};" for pool in self.pools)
            yield "};"

    def _declarations(self, function: VMFunction) -> Iterator[str]:
        names, layout = self.names[function.name], self.layouts[function.name]
        if self.max_sizes is not None:
            for name in names.sizes:
                yield f"/* The largest size `{c_comment(name)}`. */"
                yield f"#define {names.largest_macro(name)} {self.max_sizes[name]}"
        for pool, nbytes in zip(self.pools, layout.nbytes, strict=True):
            if isinstance(nbytes, int):
                yield f"/* Bytes of the memory `{pool.name}`{_bound_text(layout, self.pools.index(pool))}. */"
                yield f"#define {names.bytes_macro(pool.name)} {max(nbytes, 1)}"
        if layout.inputs or layout.outputs:
            yield from self._accessors(function)
            if names.sizes:
                yield ""
                yield f"/* Function `{c_comment(function.name)}`: sizes. */"
                yield from self._structure(names.input_structure, (), (), "", names)
        else:
            yield from ("", f"/* Function `{c_comment(function.name)}`: inputs and sizes. */")
            yield from self._structure(names.input_structure, function.inputs, names.inputs, "const ", names)
            yield f"/* Function `{c_comment(function.name)}`: outputs."
            yield " * No output may overlap an input or another output. */"
            yield from self._structure(names.output_structure, function.outputs, names.outputs, "", None)
        if self._is_single:
            yield "/* Return the bytes of the workspace, or -1 for sizes without a meaning. */"
            yield f"{self._size_head(names, names.sizes.values())};"
        if names.states:
            yield from self._state_text(function).declarations()
        yield "/* Run the function; return a status. */"
        yield f"{self._run_head(function)};"
        yield "/* The inputs and outputs in order, with their counts. */"
        for side, specs in _sides(function):
            yield f"#define {names.count_macro(side)} {len(specs)}"
            yield f"extern const struct {self.prefix}_tensor {names.info(side)}[];"
        yield ""

    @property
    def _has_state_buffers(self) -> bool:
        return any(self._state_text(function).buffers for function in self._functions)

    def state_buffers(self) -> dict[str, list[tuple[str, str, str, Dim]]]:
        """Return the buffers of the states of each function; see :class:`PlainModel`."""
        return {function.name: self._state_text(function).buffer_sizes() for function in self._functions}

    def _state_text(self, function: VMFunction) -> StateText:
        names = self.names[function.name]
        return StateText(self.prefix, self.native.program, function, names, self.constants, self.max_sizes)

    def _accessors(self, function: VMFunction) -> Iterator[str]:
        """Yield functions returning the addresses of inputs and outputs in the memories."""
        names, layout = self.names[function.name], self.layouts[function.name]
        parameter = "void *workspace" if self._is_single else f"const struct {self.prefix}_pools *pools"
        yield ""
        yield "/* Addresses of inputs, to fill before each run, and of outputs, to read after the run. A run may reuse"
        yield " * the memory of inputs. */"
        groups = zip(_sides(function), (names.inputs, names.outputs), (layout.inputs, layout.outputs), strict=True)
        for (side, specs), members, locations in groups:
            for spec, member, location in zip(specs, members, locations, strict=True):
                shape = c_comment(", ".join(map(str, spec.shape)))
                ctype = public_type(spec.dtype)
                base = "workspace" if self._is_single else f"pools->{self.pools[location.pool].name}"
                yield f"/* {spec.dtype}[{shape}] */"
                yield f"static inline {ctype} *{names.accessor(side, member)}({parameter}) {{"
                yield f"  return ({ctype} *)(void *)((char *){base} + {location.offset});"
                yield "}"

    def _structure(
        self,
        name: str,
        specs: Sequence[TensorSpec],
        members: Sequence[str],
        qualifier: str,
        names: FunctionNames | None,
    ) -> Iterator[str]:
        yield f"struct {name} {{"
        for spec, member in zip(specs, members, strict=True):
            shape = c_comment(", ".join(map(str, spec.shape)))
            yield f"  {qualifier}{public_type(spec.dtype)} *{member}; /* {spec.dtype}[{shape}] */"
        for symbol, member in () if names is None else names.input_sizes.items():
            yield f"  int64_t {member}; /* size {c_comment(symbol)} */"
        if not specs and not (names is not None and names.input_sizes):
            yield "  char unused;"
        yield "};"

    @staticmethod
    def _size_head(names: FunctionNames, parameters: Iterable[str]) -> str:
        sizes = ", ".join(f"int64_t {text}" for text in parameters)
        return f"int64_t {names.workspace_size}({sizes or 'void'})"

    def _run_head(self, function: VMFunction) -> str:
        names, layout = self.names[function.name], self.layouts[function.name]
        memory = "void *workspace" if self._is_single else f"const struct {self.prefix}_pools *pools"
        parameters = [
            f"const struct {names.input_structure} *inputs",
            f"const struct {names.output_structure} *outputs",
            memory,
        ]
        if layout.inputs or layout.outputs:
            parameters = [*([parameters[0]] if names.sizes else []), memory]
        if names.states:
            parameters.insert(-1, f"struct {names.state_structure} *state")
        parameters += ["const void *constants"] if self.constants.is_file else []
        return f"int32_t {names.run}({', '.join(parameters)})"

    def source(self) -> str:
        """Return ``<prefix>.c``."""
        texts = [
            FunctionText(
                self.native,
                function,
                self.names,
                self.layouts,
                self.constants.expressions(),
                self.raw,
                takes_constants=self.constants.is_file,
            )
            for function in self._functions
        ]
        lines = [
            f'#include "{self.prefix}.h"',
            "",
            "#include <string.h>",
            "",
            '#include "byoc_ffi.h"',
            '#include "byoc_scalar.h"',
            "",
            *self.constants.declarations(),
            *self._constants_text(_CONSTANTS_SOURCE),
            *self._tables(),
            *self._prototypes(),
            *(f"{head};" for text in texts for head in (text.sizes_prototype(), text.prototype())),
            "",
        ]
        for function, text in zip(self._functions, texts, strict=True):
            lines += [text.definition(), "", *self._public(function, text), ""]
        return "\n".join(lines) + "\n"

    def _tables(self) -> Iterator[str]:
        """Yield the tables of pointers to constants, one for each source of generated C."""
        if self.constants.is_file:
            return
        expressions = self.constants.expressions()
        for number, module in enumerate(self.modules):
            if module.constants:
                pointers = ", ".join(expressions[digest] for digest in module.constants)
                table = f"const void *const {self.prefix}_constants_{number}[{len(module.constants)}]"
                yield f"extern {table};\n{table} = {{{pointers}}};"

    def _prototypes(self) -> Iterator[str]:
        for symbol, module in self.native.called_sources(self._functions):
            yield from self.raw.declarations(module, symbol)

    def _public(self, function: VMFunction, text: FunctionText) -> Iterator[str]:
        names, layout = self.names[function.name], self.layouts[function.name]
        for side, specs in _sides(function):
            yield from self._info(names, side, specs)
        yield from (text.sizes_definition(self.max_sizes), "")
        if self._is_single:
            (nbytes,) = layout.nbytes
            variables = [names.size_variable(name) for name in names.sizes]
            yield f"{self._size_head(names, variables)} {{"
            yield f"  if ({names.check}({', '.join(variables)})) return -1;"
            yield f"  return {_at_least_one(nbytes, names)};"
            yield "}"
            yield ""
        if names.states:
            yield from self._state_text(function).definition()
        yield from self._run(function)

    def _run(self, function: VMFunction) -> Iterator[str]:
        names, layout = self.names[function.name], self.layouts[function.name]
        upper = self.prefix.upper()
        is_placed = bool(layout.inputs or layout.outputs)
        memories = {p.name: "workspace" if self._is_single else f"pools->{p.name}" for p in self.pools}
        yield f"{self._run_head(function)} {{"
        pointers = [] if self._is_single else ["pools"]
        pointers += ["inputs"] if not is_placed or names.sizes else []
        pointers += [] if is_placed else ["outputs"]
        state_text = self._state_text(function)
        pointers += ["state", *state_text.buffers] if names.states else []
        pointers += memories.values()
        if not is_placed:
            pointers += [*(f"inputs->{name}" for name in names.inputs), *(f"outputs->{name}" for name in names.outputs)]
        yield f"  if ({' || '.join(f'!{pointer}' for pointer in pointers)}) return {upper}_BAD_ARGUMENT;"
        for name, memory in memories.items():
            yield f"  if ((uintptr_t){memory} % {upper}_{name.upper()}_ALIGNMENT) return {upper}_BAD_ARGUMENT;"
        size_values = [names.size_source(name) for name in names.sizes]
        if state_text.buffers:
            size_values = [names.size_variable(name) for name in names.sizes]
            for name, variable in zip(names.sizes, size_values, strict=True):
                yield f"  const int64_t {variable} = {names.size_source(name)};"
        yield f"  if ({names.check}({', '.join(size_values)})) return {upper}_BAD_SIZE;"
        yield from state_text.checks()
        if is_placed:
            argument = "workspace" if self._is_single else "pools"
            arguments = [f"{names.accessor('input', n)}({argument})" for n in names.inputs]
            arguments += [f"{names.accessor('output', n)}({argument})" for n in names.outputs]
        else:
            arguments = [*(f"inputs->{n}" for n in names.inputs), *(f"outputs->{n}" for n in names.outputs)]
        specs = (*function.params, *function.results)
        arguments = state_text.with_states(arguments)
        qualifiers = ["const "] * len(function.params) + [""] * len(function.results)
        arguments = [_as_inner(a, s, q) for a, s, q in zip(arguments, specs, qualifiers, strict=True)]
        arguments += size_values
        arguments += [f"(char *){memory}" for memory in memories.values()]
        if self.constants.is_file:
            arguments.append("(const unsigned char *)constants")
            yield f"  const int32_t status = {self.prefix}_check_constants(constants, {upper}_CONSTANTS_SIZE);"
            yield "  if (status) return status;"
        yield from state_text.first_values()
        call = f"{names.body}({', '.join(arguments)})"
        if state_text.buffers:
            yield f"  if ({call}) return {upper}_FAILED;"
            yield from state_text.changes()
            yield f"  return {upper}_OK;"
        else:
            yield f"  return {call} ? {upper}_FAILED : {upper}_OK;"
        yield "}"

    def _info(self, names: FunctionNames, side: Side, specs: Sequence[TensorSpec]) -> Iterator[str]:
        for number, spec in enumerate(specs):
            sizes = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in spec.shape)
            yield f"static const int64_t {names.shape(side, number)}[] = {{{sizes or '0'}}};"
        rows = [
            f"{{{c_string(spec.name)}, {c_string(spec.dtype)}, {len(spec.shape)}, {names.shape(side, number)}}}"
            for number, spec in enumerate(specs)
        ]
        values = ", ".join(rows) or "{NULL, NULL, 0, NULL}"
        yield f"const struct {self.prefix}_tensor {names.info(side)}[] = {{{values}}};"


def _sides(function: VMFunction) -> Sequence[tuple[Side, Sequence[TensorSpec]]]:
    return (("input", function.inputs), ("output", function.outputs))


def _bound_text(layout: WorkspaceLayout, pool: int) -> str:
    """Return the lower bound of a pool as a clause for comments; an empty text if unknown."""
    return "" if layout.lower_bounds is None else f" (live at once: {layout.lower_bounds[pool]})"


def _at_least_one(nbytes: Dim, names: FunctionNames) -> str:
    return str(max(nbytes, 1)) if isinstance(nbytes, int) else f"byoc_max({names.size_text(nbytes)}, 1)"


def _as_inner(expression: str, spec: TensorSpec, qualifier: str) -> str:
    return f"({qualifier}{c_storage_type(spec.dtype)} *){expression}" if spec.dtype in HALF_DTYPES else expression
