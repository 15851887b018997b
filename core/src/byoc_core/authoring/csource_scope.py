"""The parts of one generated C function, collected while the IR is visited."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from byoc_core.authoring.csource_kernels import KernelFacts, KernelRecord
from byoc_core.authoring.csource_parallel import team_function
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool, Definitions, tensor_type
from byoc_core.authoring.csource_types import (
    C_LIBRARY_NAMES,
    NameTable,
    c_identifier,
    c_symbol,
    c_type,
)
from byoc_core.authoring.size_names import SizeNames
from byoc_core.dims import Dim, is_nonnegative, product
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
from byoc_core.ir import Binding, Constant, Function, TensorType, Value, Var
from byoc_core.native.c_text import c_string
from byoc_core.runtime.parts import ops_text

__all__ = ["FunctionScope", "SizeCheck"]

# Names of the three layers and of their local variables; a parameter with such a name is renamed.
_RESERVED = (
    "status",
    "done",
    "handle",
    "args",
    "num_args",
    "result",
    *C_LIBRARY_NAMES,
)
_MARK = "BYOC_MARK_PART"
_RESERVED_PREFIXES = ("byoc_", "constant_", "dim_", "buf_", "workspace", "scratch")


class SizeCheck(NamedTuple):
    """A check of sizes in front of a function: sets an error and is nonzero if the sizes do not fit.

    Attributes:
        call: the text of the C call, without the sizes and the closing parenthesis.
        sizes: the sizes, the last arguments of the call.
    """

    call: str
    sizes: tuple[Dim, ...]

    def text(self, names: SizeNames) -> str:
        """Return the call as C, with C variables for sizes."""
        return f"{', '.join([self.call, *map(names.text, self.sizes)])})"


class FunctionScope:
    """The parts of a generated function: kernels, buffers, calls.

    Visitors add parts to the scope. No part outlives the function, so several functions never mix.

    Args:
        function: the function to compile.
        symbol: the exported name.
        constants: the constants of the surrounding source.
        definitions: definitions shared by the functions of this source.
        reserved: C names used by the function, forbidden for parameters.

    Attributes:
        inputs: C names of the parameters, in order.
        outputs: C names of the results, in order.
        symbols: the symbolic sizes of the signature, sorted; in C ``dim_<symbol>``.
        records: the kernels, placed before the function.
        visiting: the op being visited, computed by kernels unless their facts name other ops.
        statements: the function's calls, in order.
        checks: the checks of sizes, in order; a call ends at the first failing check.
        sizes: the C variables for sizes in the statements, defined in front of the statements.
        workspace_nbytes: bytes of scratch memory that a caller may hand over; see :meth:`workspace`.
        team_work_ps: estimated picoseconds of work in the function's parallel loops; 0 if no team need be awake for
            these loops (see ``byoc_with_team``).
        team_nbytes: bytes read and written by such a function, each once: constants, parameters and results.
        in_place: pairs of an output's and an input's number that a call may place in the same memory; the kernels
            must permit this aliasing.
    """

    def __init__(
        self,
        function: Function,
        symbol: str,
        constants: ConstantPool,
        definitions: Definitions | None = None,
        reserved: Collection[str] = (),
    ) -> None:
        self.function = function
        self.symbol = symbol
        self.constants = constants
        self.definitions = definitions or Definitions()
        self.where = f"function `{function.name}`"
        self.names = NameTable()
        self.names.reserve((*_RESERVED, *reserved))
        self.names.forbid_prefixes(f"{symbol}_", *_RESERVED_PREFIXES)
        for value in (*function.params, *function.results):
            tensor_type(value, self.where)
        self.inputs = tuple(self.names.unique(param.name) for param in function.params)
        single = len(function.results) == 1
        self.outputs = tuple(self.names.unique("out" if single else f"out{k}") for k in range(len(function.results)))
        found = {name for value in (*function.params, *function.results) for name in _symbols(value)}
        self.symbols = tuple(sorted(found))
        self.records: list[KernelRecord] = []
        self.visiting: tuple[Binding, ...] = ()
        self.statements: list[str] = []
        self.checks: list[SizeCheck] = []
        self.sizes = SizeNames(self.symbols)
        self.workspace_nbytes: Dim = 0
        self.team_work_ps: Dim = 0
        self.team_nbytes: Dim = 0
        self.in_place: tuple[tuple[int, int], ...] = ()
        self._buffers: list[tuple[str, str, str]] = []
        self._can_fail = False
        self._values: dict[Value, str] = {}
        self._destinations: dict[Value, str] = {}
        params = set(function.params)
        for result, name in zip(function.results, self.outputs, strict=True):
            if isinstance(result, Var) and result not in params:
                self._destinations.setdefault(result, name)

    def parameter(self, var: Var) -> str:
        """Return the C name of a parameter.

        Raises:
            CodegenError: the var is not a parameter of the function.
        """
        for param, name in zip(self.function.params, self.inputs, strict=True):
            if param is var:
                return name
        raise CodegenError(self.where, f"`{var.name}` is read before the definition")

    def value(self, value: Value) -> str:
        """Return the C expression of the pointer to a value visited before."""
        if isinstance(value, Constant):
            return self.constants.expression(value, self.where)
        return self._values[value] if value in self._values else self.parameter(value)

    def forward(self, inner: Sequence[Value], outer: Sequence[Value]) -> None:
        """Map the results of a nested body to outer values, so the body may write outputs directly."""
        for source, target in zip(inner, outer, strict=True):
            if target in self._destinations:
                self._destinations.setdefault(source, self._destinations[target])

    def bind(self, value: Value, expression: str) -> None:
        """Set the location of a value from now on."""
        self._values[value] = expression

    def is_output(self, value: Value) -> bool:
        """Return whether a value's destination is an output of the function."""
        return value in self._destinations

    def buffer(self, var: Var) -> str:
        """Return the destination for writing a value: an output of the function, or a newly allocated buffer."""
        if var not in self._values:
            name = self._destinations.get(var)
            if name is None:
                shape, dtype = tensor_type(var, self.where)
                size = self.sizes.text(product(shape))
                positive = size.isdigit() and size != "0"
                nbytes = f"{dtype_info(dtype).itemsize} * {size}" + ("" if positive else " + 1")
                name = self.allocate(c_type(dtype), f"buf_{len(self._buffers)}", nbytes)
            self._values[var] = name
        return self._values[var]

    def allocate(self, ctype: str, hint: str, nbytes: str) -> str:
        """Add a block of memory for the duration of a call and return the name; a failed allocation is reported.

        Args:
            ctype: the C element type of the block.
            hint: the block's name: ``buf_...``, ``workspace...`` or ``scratch...``, never used for a parameter.
            nbytes: the block's size as a C expression, at least 1.
        """
        self._buffers.append((ctype, hint, nbytes))
        return hint

    def workspace(self, nbytes: Dim) -> str:
        """Set the scratch memory of a call, and return the C name of the ``char *`` pointer.

        The caller may hand the memory over; otherwise the function allocates memory for the duration of the call.
        Called once in a function. The memory is aligned to :data:`WORKSPACE_ALIGNMENT` bytes.

        Args:
            nbytes: a multiple of this alignment, above zero if a number.
        """
        self.workspace_nbytes = nbytes
        return "workspace"

    def new_kernel_name(self) -> str:
        """Return the name of the next kernel: the symbol and a number."""
        return f"{self.symbol}_{len(self.records)}"

    def kernel_name(self, hint: str = "") -> str:
        """Return the name of the next kernel: the symbol, a number, and a hint for readers."""
        return self.new_kernel_name() + (f"_{c_identifier(hint)}" if hint else "")

    def declare_kernel(
        self, definition: str, hint: str = "", facts: KernelFacts | None = None, *, key: str = "", prototype: str = ""
    ) -> str:
        """Add a C definition in front of the function and return the kernel's name.

        Args:
            definition: C text; every ``{name}`` in it becomes the kernel's name.
            hint: suffix of the name behind symbol and number, for readers.
            facts: the kernel's facts for reports; by default, computing the op being visited.
            key: a text shared by kernels with equal effect, for :meth:`reuse_kernel`; empty for a kernel of a single
                call.
            prototype: as the attribute of :class:`KernelRecord`.
        """
        name = self.kernel_name(hint)
        text = definition.replace("{name}", name)
        record = KernelRecord(name, text, facts or KernelFacts(self.visiting), prototype)
        if key:
            self.definitions.kernels[key] = record
        self.records.append(record)
        return name

    def reuse_kernel(self, key: str, bindings: Sequence[Binding], comments: Sequence[str]) -> str | None:
        """Return the name of an existing kernel with equal effect, to call in place of a new kernel; ``None`` without.

        Args:
            key: the text shared by kernels with equal effect.
            bindings: the ops of the new kernel.
            comments: lines of C to place before the existing kernel for these ops.
        """
        record = self.definitions.kernels.get(key)
        if record is None:
            return None
        record.reused_for += bindings
        record.comments += comments
        return record.name

    def call(self, kernel: str, *arguments: str) -> None:
        """Add a call after the calls added before."""
        self.statements.append(f"{kernel}({', '.join(arguments)});")

    def call_checked(self, kernel: str, *arguments: str) -> None:
        """Add a call of a kernel with a status: the function ends with any status but 0."""
        self.statements.append(f"if ((status = {kernel}({', '.join(arguments)}))) goto done;")
        self._can_fail = True

    def mark_part(self, part: str, bindings: Iterable[Binding] = ()) -> None:
        """Add the end of a part of the function, for profiles; no mark follows a mark.

        Args:
            part: the name of the part, such as the kernel's name.
            bindings: the ops computed by the part.
        """
        if self.statements and not self.statements[-1].startswith(_MARK):
            ops = ops_text((binding.op.name, binding.results[0].name) for binding in bindings)
            self.statements.append(f"{_MARK}({c_string(part)}, {c_string(ops)});")

    def require_broadcast(self, op: str, operand: str, dims: Sequence[Dim], space: Sequence[Dim]) -> None:
        """Add a check of calls: each size of an operand must be 1 or equal the size of the iteration space.

        Args:
            op: the op's name.
            operand: the operand's name.
            dims: the operand's sizes, in as many axes as the space or fewer; leading axes are missing.
            space: the sizes of the loops.
        """
        for axis, (dim, size) in enumerate(zip(dims, space[len(space) - len(dims) :], strict=True)):
            if dim not in (1, size):
                self._add_check(f'byoc_check_operand("{self.symbol}", "{op}", "{operand}", {axis}', dim, size)

    def require_equal(self, op: str, operand: str, dims: Sequence[Dim], wanted: Sequence[Dim]) -> None:
        """Add a check of calls: operand sizes must equal the wanted sizes, unless known to be equal.

        Args:
            op: the op's name.
            operand: the operand's name.
            dims: the operand's sizes.
            wanted: the required sizes, in as many axes.
        """
        for axis, (dim, size) in enumerate(zip(dims, wanted, strict=True)):
            if dim != size:
                self._add_check(f'byoc_check_equal("{self.symbol}", "{op}", "{operand}", {axis}', dim, size)

    def require_at_least(self, op: str, what: str, dims: Sequence[Dim], least: Sequence[Dim]) -> None:
        """Add a check of calls for too small sizes, unless no size can be too small.

        Args:
            op: the op's name.
            what: the tensor with these sizes, for the message.
            dims: the sizes of the tensor's axes.
            least: the smallest permitted size of each axis.
        """
        for axis, (dim, bound) in enumerate(zip(dims, least, strict=True)):
            if not is_nonnegative(dim - bound):
                self._add_check(f'byoc_check_least("{self.symbol}", "{op}", "{what}", {axis}', dim, bound)

    def _add_check(self, call: str, size: Dim, expected: Dim) -> None:
        check = SizeCheck(call, (size, expected))
        if check not in self.checks:
            self.checks.append(check)

    def symbols_in(self, text: str) -> list[str]:
        """Return the C names of the symbolic sizes in a text, sorted: the arguments of a kernel beside pointers."""
        words = set(re.findall(r"\bdim_\w+", text))
        return sorted(words & set(map(c_symbol, self.symbols)))

    def copy_remaining_results(self) -> None:
        """Fill outputs not written by kernels: parameters, constants and repeated results."""
        for result, name in zip(self.function.results, self.outputs, strict=True):
            source = self.value(result)
            if source != name:
                shape, dtype = tensor_type(result, self.where)
                nbytes = f"{dtype_info(dtype).itemsize} * (size_t){self.sizes.text(product(shape))}"
                self.statements.append(f"memcpy({name}, {source}, {nbytes});")

    def raw_function(self) -> str:
        """Return the definition of ``<symbol>_``.

        The parameters are pointers, then symbolic sizes; the result is a status.
        """
        statements = self._body()
        body = [*(f"  {line}" for line in self.sizes.definitions), *statements]
        parameters = [
            *(
                f"const {c_type(tensor_type(p, self.where)[1])} *{n}"
                for p, n in self._zip(self.function.params, self.inputs)
            ),
            *(
                f"{c_type(tensor_type(r, self.where)[1])} *{n}"
                for r, n in self._zip(self.function.results, self.outputs)
            ),
            *(f"int64_t {c_symbol(symbol)}" for symbol in self.symbols),
            *(["char *workspace"] if self.workspace_nbytes != 0 else []),
        ]
        mentioned = set(re.findall(r"\w+", "\n".join(body)))
        names = [text.split()[-1].lstrip("*") for text in parameters]
        unused = [f"  (void){name};" for name in names if name not in mentioned]
        listed = ", ".join(parameters) or "void"
        head = f"BYOC_EXPORT int32_t {self.symbol}_({listed})"
        if self.team_work_ps == 0:
            return "\n".join([f"{head} {{", *unused, *body, "}"])
        serial_head = f"static int32_t {self.symbol}_all({listed})"
        sizes = SizeNames(self.symbols)
        lines = team_function(self.symbol, head, parameters, self.team_work_ps, self.team_nbytes, sizes)
        return "\n".join([f"{serial_head} {{", *unused, *body, "}", "", *lines])

    @staticmethod
    def _zip(values: Sequence[Value], names: Sequence[str]) -> list[tuple[Value, str]]:
        return list(zip(values, names, strict=True))

    def _body(self) -> list[str]:
        no_memory = f'byoc_fail("MemoryError", "function `{self.symbol}`: no memory for intermediate tensors")'
        own, freed = [], []
        if self.workspace_nbytes != 0:
            nbytes = self.sizes.text(self.workspace_nbytes)
            # Never allocate zero bytes: the result could not be distinguished from a failure.
            nbytes += "" if isinstance(self.workspace_nbytes, int) else f" + {WORKSPACE_ALIGNMENT}"
            own = [
                "  char *workspace_own = NULL;",
                "  if (!workspace) {",
                f"    workspace_own = (char *)byoc_new_workspace({nbytes});",
                f"    if (!workspace_own) return {no_memory};",
                "    workspace = workspace_own;",
                "  }",
            ]
            freed = ["  byoc_free_workspace(workspace_own);"]
        if not self._buffers and not self._can_fail:
            return [*own, *(f"  {line}" for line in self.statements), *freed, "  return 0;"]
        lines = [f"  {ctype} *{name} = ({ctype} *)malloc({nbytes});" for ctype, name, nbytes in self._buffers]
        names = [name for _, name, _ in self._buffers]
        checked = [
            f"  if ({' || '.join(f'!{name}' for name in names)}) {{",
            f"    status = {no_memory};",
            "    goto done;",
            "  }",
        ]
        return [
            *own,
            *lines,
            "  int32_t status = 0;",
            *(checked if names else []),
            *(f"  {line}" for line in self.statements),
            "done:",
            *(f"  free({name});" for name in names),
            *freed,
            "  return status;",
        ]


def _symbols(value: Value) -> frozenset[str]:
    return value.type.symbols if isinstance(value.type, TensorType) else frozenset()
