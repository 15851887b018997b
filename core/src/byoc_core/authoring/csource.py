"""The kit for backends that print C: visit a function, collect kernels, buffers and calls, get a runtime module.

Every function becomes three layers::

    int32_t f_(const float *x, float *out)                      the computation, on plain pointers
    int32_t f_wrapper_(const DLTensor *x, const DLTensor *out)  checks the tensors, then calls f_
    int32_t __tvm_ffi_f(...)                                    the packed export that runtimes call

A function with a workspace (:meth:`FunctionScope.workspace`) takes the workspace as a last argument in each layer. The
function allocates the workspace if this argument is ``NULL`` in the first two layers, or omitted in the third.

A backend overrides the differing parts, in the smallest case the two visits::

    class MyCodegen(CSourceCodegen):
        def visit_var(self, scope, var):
            return scope.parameter(var)

        def visit_call(self, scope, binding, inputs):
            operator = {"add": "+", "subtract": "-", "multiply": "*"}[binding.op.name]
            kernel = scope.declare_kernel(
                "static void {name}(const float *a, const float *b, float *out) {"
                f" for (int i = 0; i < 100; ++i) out[i] = a[i] {operator} b[i]; }}"
            )
            scope.call(kernel, *inputs, scope.buffer(binding.result))

    module = MyCodegen().generate(function)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from byoc_core.authoring.csource_kernels import KernelFacts, report_kernels
from byoc_core.authoring.csource_loops import LoopNest, align
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, PARALLEL_HEADER, ParallelLoop
from byoc_core.authoring.csource_scalars import SCALAR_OPS, scalar_expression, without_parentheses
from byoc_core.authoring.csource_scope import FunctionScope
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool, Definitions, tensor_type
from byoc_core.authoring.csource_types import (
    C_LIBRARY_NAMES,
    C_TYPES,
    COMPUTED_DTYPES,
    NameTable,
    c_dim,
    c_identifier,
    c_literal,
    c_suffix,
    c_symbol,
    c_type,
)
from byoc_core.authoring.csource_units import FunctionText, in_units
from byoc_core.authoring.csource_wrapper import packed_export, size_checks, wrapper_function
from byoc_core.backend.hooks import KernelReport
from byoc_core.errors import CodegenError, UndefinedSymbolError
from byoc_core.ir import COMPOSITE, Binding, Constant, Function, IRModule, TensorType, Value, Var
from byoc_core.native.plain_c import PLAIN_C, PORTABLE_C
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, NDArray, Signature, TensorSpec

__all__ = [
    "COMPUTED_DTYPES",
    "C_LIBRARY_NAMES",
    "C_TYPES",
    "END_ITEM",
    "FIRST_ITEM",
    "PARALLEL_HEADER",
    "PORTABLE_C",
    "SCALAR_OPS",
    "WORKSPACE_ALIGNMENT",
    "CSourceCodegen",
    "ConstantPool",
    "FunctionScope",
    "KernelFacts",
    "NameTable",
    "ParallelLoop",
    "align",
    "c_dim",
    "c_identifier",
    "c_literal",
    "c_suffix",
    "c_symbol",
    "c_type",
    "scalar_expression",
    "tensor_type",
    "without_parentheses",
]

_HEADERS = """\
#include "byoc_ffi.h"
#include "byoc_scalar.h"

#include <stdlib.h>
#include <string.h>
"""


class CSourceCodegen:
    """A translator of functions to a C source in the plain form: a kernel per op, a buffer per intermediate.

    The plain form knows the elementwise ops (broadcasting included), and ops inside composites. Values are visited
    once each, in the order of the IR. Parameters keep their order. Two functions share nothing.

    Args:
        options: the options for compiling the C.
    """

    def __init__(self, options: BuildOptions | None = None) -> None:
        self.options = options or BuildOptions()

    def visit_var(self, scope: FunctionScope, var: Var) -> str:
        """Return the C expression of the pointer to a parameter; called once per parameter, in order."""
        return scope.parameter(var)

    def visit_constant(self, scope: FunctionScope, constant: Constant) -> str:
        """Return the C expression of the pointer to a constant; called for every constant operand."""
        return scope.value(constant)

    def visit_call(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
        """Add the computation of a binding's results: a kernel, and the kernel's call writing ``scope.buffer(result)``.

        Called once per binding, in order.

        Args:
            scope: the function under construction.
            binding: the op.
            inputs: C expressions of the pointers to the operands.

        Raises:
            CodegenError: the op has no plain kernel; names op and function.
        """
        kernel = scope.declare_kernel(self._elementwise_kernel(scope, binding))
        sizes = scope.symbols_in(scope.records[-1].text)
        scope.call(kernel, *inputs, scope.buffer(binding.result), *sizes)

    def visit_composite(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
        """Add the computation of a composite: each op in order, unless a backend has a single kernel for all ops.

        Called once per composite, in order. ``scope.value`` returns the pointers to the operands of the ops in the
        body, the body's parameters and constants included. A backend's kernel writes ``scope.buffer(binding.result)``.

        Args:
            scope: the function under construction.
            binding: the composite; its region holds the matched ops.
            inputs: C expressions of the pointers to the composite's operands, bound to the body's parameters.

        Raises:
            CodegenError: as :meth:`visit_call`.
        """
        (body,) = binding.regions
        scope.forward(body.results, binding.results)
        self._visit_bindings(scope, body.bindings)
        for inner, outer in zip(body.results, binding.results, strict=True):
            scope.bind(outer, self._visit_value(scope, inner))

    def visit_function(self, scope: FunctionScope) -> None:
        """Visit the parameters and then the bindings of a function."""
        for param in scope.function.params:
            scope.bind(param, self.visit_var(scope, param))
        self._visit_bindings(scope, scope.function.bindings)

    def generate(
        self,
        functions: Function | IRModule | Iterable[Function],
        constants: Mapping[str, NDArray] | None = None,
    ) -> CSourceModule:
        """Return the module of all functions.

        Nothing is compiled yet, unless the options name libraries or objects. In this case the module is built here, to
        report undefined symbols at codegen.

        Args:
            functions: a single function, several, or all of a module. A function is exported under its attribute
                ``global_symbol``, else under its name.
            constants: arrays by digest; a module brings its own.

        Raises:
            CodegenError: an op, a dtype or a name has no C form; two functions share a symbol; a function calls a
                symbol not defined by any library.
            ToolchainError: a library or an object is not found, or the C compiler refuses the text.
        """
        functions, constants = _listed(functions, constants)
        pool, definitions = ConstantPool(constants), Definitions()
        signatures: dict[str, Signature] = {}
        traits: dict[str, CallTraits] = {}
        texts: list[FunctionText] = []
        # A kernel of one function may serve the others: visit all before taking any text.
        for scope in list(self._visited(functions, pool, definitions)):
            outer = f"#ifndef {PLAIN_C}\n{wrapper_function(scope)}\n\n{packed_export(scope)}\n#endif"
            callers = tuple(filter(None, (size_checks(scope), scope.raw_function(), outer)))
            texts.append(FunctionText(scope.function.name, scope.records, callers))
            signatures[scope.symbol] = _signature(scope)
            traits[scope.symbol] = CallTraits(in_place=scope.in_place, workspace_nbytes=scope.workspace_nbytes)
        tables = [f"BYOC_CONSTANT_TABLE({len(pool.table)});"] if pool.table else []
        tables += pool.literals.values()
        written = [*tables, *definitions.texts, *(text for function in texts for text in function.texts)]
        head = _HEADERS + self.preamble("\n".join(written))
        source = "\n\n".join(in_units(head, tables, definitions.texts, texts)) + "\n"
        cited = {digest: pool.arrays[digest] for digest in pool.table}
        module = CSourceModule(source, signatures, constants=cited, options=self.options, traits=traits)
        if self.checks_links:
            _check_links(module, texts)
        return module

    @property
    def checks_links(self) -> bool:
        """Whether :meth:`generate` builds the module to report undefined symbols: if libraries or objects are named."""
        return bool(self.options.libraries or self.options.extra_objects)

    def generated_kernels(
        self, functions: Function | IRModule | Iterable[Function], constants: Mapping[str, NDArray] | None = None
    ) -> list[KernelReport]:
        """Return a report of each kernel written by :meth:`generate` for functions, in the order of the source.

        A backend of the kit uses this method to answer ``byoc_generated_kernels``. Nothing is compiled.

        Args:
            functions: as for :meth:`generate`.
            constants: as for :meth:`generate`.

        Raises:
            CodegenError: as :meth:`generate`.
        """
        functions, constants = _listed(functions, constants)
        scopes = list(self._visited(functions, ConstantPool(constants), Definitions()))
        return [report for scope in scopes for report in report_kernels(scope.symbol, scope.records)]

    def _visited(
        self, functions: Iterable[Function], pool: ConstantPool, definitions: Definitions
    ) -> Iterator[FunctionScope]:
        """Yield the scope of each function after visiting the function."""
        owners: dict[str, str] = {}
        symbols: set[str] = set()
        for function in functions:
            symbol = _symbol_of(function)
            for exported in (symbol, f"{symbol}_", f"{symbol}_wrapper_"):
                owner = owners.setdefault(exported, function.name)
                if owner != function.name or exported in symbols:
                    raise CodegenError(
                        f"function `{function.name}`", f"exports the symbol `{exported}`, also exported by `{owner}`"
                    )
            symbols.add(symbol)
            scope = FunctionScope(function, symbol, pool, definitions, self.reserved_names)
            self.visit_function(scope)
            scope.copy_remaining_results()
            yield scope

    @property
    def reserved_names(self) -> Collection[str]:
        """The C names declared by :meth:`preamble` and used by functions, so no parameter gets such a name."""
        return ()

    def preamble(self, text: str) -> str:
        """Return C text placed once, after the standard headers: includes and declarations of the backend.

        Args:
            text: all following text; only the parts used there need be declared.
        """
        return ""

    def _visit_bindings(self, scope: FunctionScope, bindings: Sequence[Binding]) -> None:
        for binding in bindings:
            inputs = [self._visit_value(scope, operand) for operand in binding.operands]
            scope.visiting = (binding,)
            if binding.op is not COMPOSITE:
                self.visit_call(scope, binding, inputs)
                scope.mark_part(binding.op.name, [binding])
                continue
            (body,) = binding.regions
            for param, expression in zip(body.params, inputs, strict=True):
                scope.bind(param, expression)
            self.visit_composite(scope, binding, inputs)
            scope.mark_part(str(binding.attrs["name"]), body.bindings)

    def _visit_value(self, scope: FunctionScope, value: Value) -> str:
        return self.visit_constant(scope, value) if isinstance(value, Constant) else scope.value(value)

    def _elementwise_kernel(self, scope: FunctionScope, binding: Binding) -> str:
        where = f"{scope.where}, op `{binding.op.name}`"
        types = [tensor_type(operand, where) for operand in binding.operands]
        shape, dtype = tensor_type(binding.result, where)
        names = ["abcd"[k] if len(types) <= 4 else f"in{k}" for k in range(len(types))]
        nest = LoopNest(shape, {n: align(t[0], len(shape)) for n, t in zip(names, types, strict=True)} | {"out": shape})
        roles = binding.op.operand_names(len(types))
        for role, (operand_shape, _) in zip(roles, types, strict=True):
            scope.require_broadcast(binding.op.name, role, operand_shape, shape)
        values = [f"{name}[{nest.offset(name)}]" for name in names]
        dtypes = [operand_dtype for _, operand_dtype in types]
        expression = scalar_expression(binding.op.name, values, dtypes, dtype, binding.attrs)
        if expression is None:
            raise CodegenError(
                where,
                "has no plain C kernel",
                got=", ".join(dtypes),
                expected=f"an elementwise op on {', '.join(COMPUTED_DTYPES)}",
            )
        loops = nest.wrap([f"out[{nest.offset('out')}] = {without_parentheses(expression)};"])
        parameters = [f"const {c_type(d)} *{n}" for n, d in zip(names, dtypes, strict=True)]
        sizes = [f"int64_t {name}" for name in scope.symbols_in("\n".join(loops))]
        signature = ", ".join([*parameters, f"{c_type(dtype)} *restrict out", *sizes])
        comment = f"/* {binding.op.name}: {', '.join(str(operand.type) for operand in binding.operands)} */"
        return "\n".join([comment, f"static void {{name}}({signature}) {{", *loops, "}"])


def _listed(
    functions: Function | IRModule | Iterable[Function], constants: Mapping[str, NDArray] | None
) -> tuple[tuple[Function, ...], Mapping[str, NDArray]]:
    """Return functions as a tuple, and the constants cited by the functions."""
    if isinstance(functions, IRModule):
        return tuple(functions.functions.values()), functions.constants if constants is None else constants
    return (functions,) if isinstance(functions, Function) else tuple(functions), constants or {}


def _check_links(module: CSourceModule, functions: Sequence[FunctionText]) -> None:
    """Build a module with calls to libraries."""
    try:
        module.build()
    except UndefinedSymbolError as error:
        symbols = error.symbols
        called = re.compile(rf"\b({'|'.join(symbols)})\b")
        users = [function.name for function in functions if any(map(called.search, function.texts))]
        names = dict.fromkeys(users or [function.name for function in functions])
        options = module.options
        linked = [*(f"library `{name}`" for name in options.libraries), *options.extra_objects]
        folders = ", ".join([*options.library_dirs, "the folders of the linker"])
        raise CodegenError(
            f"function {', '.join(f'`{name}`' for name in names)}",
            f"calls {', '.join(f'`{name}`' for name in symbols)}, defined by no library",
            expected=f"a definition in {', '.join(linked)}; looked for in {folders}" if linked else "a linked library",
            detail=error.detail,
        ) from error


def _symbol_of(function: Function) -> str:
    symbol = str(function.attrs.get("global_symbol", function.name))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", symbol):
        raise CodegenError(
            f"function `{function.name}`",
            "the symbol is not a valid name of a C function",
            got=repr(symbol),
            expected="a C identifier",
        )
    return symbol


def _signature(scope: FunctionScope) -> Signature:
    def specs(values: Sequence[Value], names: Sequence[str]) -> tuple[TensorSpec, ...]:
        result = []
        for value, name in zip(values, names, strict=True):
            shape, dtype = tensor_type(value, scope.where)
            assert isinstance(value.type, TensorType)
            result.append(TensorSpec(name, dtype, shape))
        return tuple(result)

    function = scope.function
    return Signature(
        specs(function.params, [p.name for p in function.params]), specs(function.results, function.output_names)
    )
