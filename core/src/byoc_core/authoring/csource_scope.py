"""What one generated C function consists of, collected while its IR is visited."""

from __future__ import annotations

import re
from collections.abc import Sequence

from byoc_core.authoring.csource_kernels import KernelFacts, KernelRecord
from byoc_core.authoring.csource_parallel import team_function
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool, Definitions, tensor_type
from byoc_core.authoring.csource_types import (
    C_LIBRARY_NAMES,
    NameTable,
    c_dim,
    c_identifier,
    c_type,
)
from byoc_core.dims import Dim, is_nonnegative, product
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
from byoc_core.ir import Binding, Constant, Function, TensorType, Value, Var

__all__ = ["FunctionScope"]

# What the three layers call themselves and their own; a parameter of that name gets another.
_RESERVED = (
    "status",
    "done",
    "handle",
    "args",
    "num_args",
    "result",
    *C_LIBRARY_NAMES,
)
_RESERVED_PREFIXES = ("byoc_", "constant_", "dim_", "buf_", "workspace", "scratch")


class FunctionScope:
    """The parts of one generated function: kernels, buffers, calls.

    Visitors add to it; nothing of it outlives the function, so several functions never mix.

    Args:
        function: what is compiled.
        symbol: its exported name.
        constants: the constants of the source it stands in.
        definitions: what the functions of that source share.

    Attributes:
        inputs: C names of the parameters, in order.
        outputs: C names of the results, in order.
        symbols: the symbolic sizes of the signature, sorted; in C ``dim_<symbol>``.
        records: the kernels, which stand before the function.
        visiting: the op that is visited, which kernels compute unless their facts say otherwise.
        statements: the function's calls, in order.
        checks: C expressions over the sizes that are not zero, and have set an error, where a call must not go on.
        workspace_nbytes: bytes of scratch memory that a caller may hand over; see :meth:`workspace`.
        team_work_ps: picoseconds of work in the function's parallel loops, where there are several; 0 where no team
            need stay awake for them (see ``byoc_with_team``).
        in_place: pairs of an output's and an input's number that a call may place in the same memory; the kernels
            must make that true.
    """

    def __init__(
        self, function: Function, symbol: str, constants: ConstantPool, definitions: Definitions | None = None
    ) -> None:
        self.function = function
        self.symbol = symbol
        self.constants = constants
        self.definitions = definitions or Definitions()
        self.where = f"function `{function.name}`"
        self.names = NameTable()
        self.names.reserve(_RESERVED)
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
        self.checks: list[str] = []
        self.workspace_nbytes: Dim = 0
        self.team_work_ps: Dim = 0
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
        """Gives the C name of a parameter.

        Raises:
            CodegenError: the var is not a parameter of the function.
        """
        for param, name in zip(self.function.params, self.inputs, strict=True):
            if param is var:
                return name
        raise CodegenError(self.where, f"`{var.name}` is read before it is defined")

    def value(self, value: Value) -> str:
        """Gives the C expression of the pointer to a value visited before."""
        if isinstance(value, Constant):
            return self.constants.expression(value, self.where)
        return self._values[value] if value in self._values else self.parameter(value)

    def forward(self, inner: Sequence[Value], outer: Sequence[Value]) -> None:
        """Says that the results of a nested body become other values, so that it may write outputs directly."""
        for source, target in zip(inner, outer, strict=True):
            if target in self._destinations:
                self._destinations.setdefault(source, self._destinations[target])

    def bind(self, value: Value, expression: str) -> None:
        """Says where a value lies from now on."""
        self._values[value] = expression

    def is_output(self, value: Value) -> bool:
        """Tells whether a value's destination is an output of the function."""
        return value in self._destinations

    def buffer(self, var: Var) -> str:
        """Gives where to write a value: an output of the function, or a buffer allocated for it."""
        if var not in self._values:
            name = self._destinations.get(var)
            if name is None:
                shape, dtype = tensor_type(var, self.where)
                size = c_dim(product(shape))
                positive = size.isdigit() and size != "0"
                nbytes = f"{dtype_info(dtype).itemsize} * {size}" + ("" if positive else " + 1")
                name = self.allocate(c_type(dtype), f"buf_{len(self._buffers)}", nbytes)
            self._values[var] = name
        return self._values[var]

    def allocate(self, ctype: str, hint: str, nbytes: str) -> str:
        """Adds a block of memory for the duration of one call and gives its name; failure to get it is reported.

        Args:
            ctype: the C type it is an array of.
            hint: its name: ``buf_...``, ``workspace...`` or ``scratch...``, which no parameter bears.
            nbytes: its size as a C expression, one or more.
        """
        self._buffers.append((ctype, hint, nbytes))
        return hint

    def workspace(self, nbytes: Dim) -> str:
        """Says how much scratch memory a call needs, and gives the C name of the ``char *`` to it.

        The caller may hand it over; where it does not, the function allocates it for the duration of the call. Said
        once in a function. The memory is aligned to :data:`WORKSPACE_ALIGNMENT` bytes.

        Args:
            nbytes: a multiple of that alignment, above zero where it is a number.
        """
        self.workspace_nbytes = nbytes
        return "workspace"

    def new_kernel_name(self) -> str:
        """Gives the name of the next kernel: the symbol and a number."""
        return f"{self.symbol}_{len(self.records)}"

    def kernel_name(self, hint: str = "") -> str:
        """Return the name of the next kernel: the symbol, a number, and a hint for readers."""
        return self.new_kernel_name() + (f"_{c_identifier(hint)}" if hint else "")

    def declare_kernel(
        self, definition: str, hint: str = "", facts: KernelFacts | None = None, *, key: str = "", prototype: str = ""
    ) -> str:
        """Adds a C definition in front of the function and gives its name.

        Args:
            definition: C text; every ``{name}`` in it becomes the kernel's name.
            hint: what stands behind symbol and number in that name, for readers.
            facts: what reports tell of the kernel; by default that it computes the op that is visited.
            key: a text that kernels have which do the same, for :meth:`reuse_kernel`; empty for a kernel of one call.
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
        """Return the name of a kernel of the source that does the same as another would, which then is not declared.

        Args:
            key: the text that kernels have which do the same.
            bindings: the ops that the other kernel would compute.
            comments: lines of C that stand before the kernel for them.
        """
        record = self.definitions.kernels.get(key)
        if record is None:
            return None
        record.reused_for += bindings
        record.comments += comments
        return record.name

    def call(self, kernel: str, *arguments: str) -> None:
        """Adds a call, after those added before."""
        self.statements.append(f"{kernel}({', '.join(arguments)});")

    def call_checked(self, kernel: str, *arguments: str) -> None:
        """Adds a call of a kernel that gives a status: where that is not 0 the function ends with it."""
        self.statements.append(f"if ((status = {kernel}({', '.join(arguments)}))) goto done;")
        self._can_fail = True

    def require_broadcast(self, op: str, operand: str, dims: Sequence[Dim], space: Sequence[Dim]) -> None:
        """Has calls checked for sizes of an operand that are neither those of an iteration space nor 1.

        Args:
            op: the op's name.
            operand: the operand's name.
            dims: its sizes, in as many axes as the space or fewer; those in front are missing.
            space: the sizes that the loops run over.
        """
        for axis, (dim, size) in enumerate(zip(dims, space[len(space) - len(dims) :], strict=True)):
            if dim not in (1, size):
                self._add_check(f'byoc_check_operand("{self.symbol}", "{op}", "{operand}", {axis}', dim, size)

    def require_equal(self, op: str, operand: str, dims: Sequence[Dim], wanted: Sequence[Dim]) -> None:
        """Has calls checked for an operand whose sizes are not those wanted, unless they must be.

        Args:
            op: the op's name.
            operand: the operand's name.
            dims: its sizes.
            wanted: what they must be, in as many axes.
        """
        for axis, (dim, size) in enumerate(zip(dims, wanted, strict=True)):
            if dim != size:
                self._add_check(f'byoc_check_equal("{self.symbol}", "{op}", "{operand}", {axis}', dim, size)

    def require_at_least(self, op: str, what: str, dims: Sequence[Dim], least: Sequence[Dim]) -> None:
        """Has calls checked for sizes that are too small, unless they cannot be.

        Args:
            op: the op's name.
            what: the tensor that has the sizes, for the message.
            dims: the sizes of its axes.
            least: the smallest size that each may have.
        """
        for axis, (dim, bound) in enumerate(zip(dims, least, strict=True)):
            if not is_nonnegative(dim - bound):
                self._add_check(f'byoc_check_least("{self.symbol}", "{op}", "{what}", {axis}', dim, bound)

    def _add_check(self, call: str, size: Dim, wanted: Dim) -> None:
        check = f"{call}, {c_dim(size)}, {c_dim(wanted)})"
        if check not in self.checks:
            self.checks.append(check)

    def symbols_in(self, text: str) -> list[str]:
        """Gives the C names of the symbolic sizes that a text mentions, sorted: what a kernel takes beside pointers."""
        words = set(re.findall(r"\bdim_\w+", text))
        return sorted(words & {f"dim_{c_identifier(symbol)}" for symbol in self.symbols})

    def copy_remaining_results(self) -> None:
        """Fills outputs that no kernel writes: parameters, constants and repeated results."""
        for result, name in zip(self.function.results, self.outputs, strict=True):
            source = self.value(result)
            if source != name:
                shape, dtype = tensor_type(result, self.where)
                nbytes = f"{dtype_info(dtype).itemsize} * (size_t){c_dim(product(shape))}"
                self.statements.append(f"memcpy({name}, {source}, {nbytes});")

    def raw_function(self) -> str:
        """Gives the definition of ``<symbol>_``, which takes pointers and then symbolic sizes, and returns a status."""
        body = self._body()
        parameters = [
            *(
                f"const {c_type(tensor_type(p, self.where)[1])} *{n}"
                for p, n in self._zip(self.function.params, self.inputs)
            ),
            *(
                f"{c_type(tensor_type(r, self.where)[1])} *{n}"
                for r, n in self._zip(self.function.results, self.outputs)
            ),
            *(f"int64_t dim_{c_identifier(symbol)}" for symbol in self.symbols),
            *(["char *workspace"] if self.workspace_nbytes != 0 else []),
        ]
        mentioned = set(re.findall(r"\w+", "\n".join(body)))
        names = [text.split()[-1].lstrip("*") for text in parameters]
        unused = [f"  (void){name};" for name in names if name not in mentioned]
        listed = ", ".join(parameters) or "void"
        head = f"BYOC_EXPORT int32_t {self.symbol}_({listed})"
        if self.team_work_ps == 0:
            return "\n".join([f"{head} {{", *unused, *body, "}"])
        alone = f"static int32_t {self.symbol}_all({listed})"
        lines = team_function(self.symbol, head, parameters, self.team_work_ps)
        return "\n".join([f"{alone} {{", *unused, *body, "}", "", *lines])

    @staticmethod
    def _zip(values: Sequence[Value], names: Sequence[str]) -> list[tuple[Value, str]]:
        return list(zip(values, names, strict=True))

    def _body(self) -> list[str]:
        no_memory = f'byoc_fail("MemoryError", "function `{self.symbol}`: no memory for intermediate tensors")'
        own, freed = [], []
        if self.workspace_nbytes != 0:
            nbytes = c_dim(self.workspace_nbytes)
            # No memory of no bytes: it could not be told from a failure.
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
