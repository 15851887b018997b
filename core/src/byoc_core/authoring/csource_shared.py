"""Parts shared by the functions of a C source: constants, and definitions of equal text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from byoc_core.authoring.csource_kernels import KernelRecord
from byoc_core.authoring.csource_types import C_TYPES, NameTable, c_literal, c_type
from byoc_core.dims import Dim
from byoc_core.errors import CodegenError
from byoc_core.ir import Constant, ConstantStore, TensorType, Value, Var
from byoc_core.runtime.aligned_arrays import ARRAY_ALIGNMENT, aligned_copy
from byoc_core.runtime.module import NDArray

__all__ = ["WORKSPACE_ALIGNMENT", "ConstantPool", "Definitions", "tensor_type"]

WORKSPACE_ALIGNMENT = ARRAY_ALIGNMENT
"""Alignment of scratch memory in bytes, promised by :class:`~byoc_core.runtime.module.CallTraits`."""

_LITERAL_NBYTES = 64


def tensor_type(value: Value, where: str) -> tuple[tuple[Dim, ...], str]:
    """Return shape and dtype of a value with a C form.

    Raises:
        CodegenError: the value is no tensor, the rank is unknown, or C has no type for the elements.
    """
    type_ = value.type
    name = value.name if isinstance(value, Var) else "constant"
    if not isinstance(type_, TensorType) or type_.shape is None or type_.dtype not in C_TYPES:
        raise CodegenError(
            where, f"value `{name}` has no C form", got=type_, expected=f"a tensor of {', '.join(C_TYPES)}"
        )
    return type_.shape, type_.dtype


@dataclass
class ConstantPool:
    """The constants of a C source: short constants are literals, the others entries of ``byoc_constants``.

    Attributes:
        arrays: the arrays of the IR's constants, by digest.
        table: the digests behind ``byoc_constants``, in order.
        literals: C definitions of the short constants, by name.
    """

    arrays: Mapping[str, NDArray]
    table: list[str] = field(default_factory=list)
    literals: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def expression(self, constant: Constant, where: str) -> str:
        """Return a C expression of type pointer to the constant's first element."""
        if constant.digest not in self._names:
            self._names[constant.digest] = self._define(constant, where)
        return self._names[constant.digest]

    def array(self, constant: Constant, where: str) -> NDArray:
        """Return a constant's array.

        Raises:
            CodegenError: the constant is not in the store.
        """
        array = self.arrays.get(constant.digest)
        if array is None:
            raise CodegenError(where, "cites a missing constant", got=constant.digest)
        return array

    def derive(self, array: NDArray) -> Constant:
        """Add a new array from the backend (rearranged weights, for example) and return the constant.

        The array is copied to memory aligned to :data:`WORKSPACE_ALIGNMENT` bytes, like constants of a mapped artifact.
        """
        store = ConstantStore()
        constant = store.add(aligned_copy(array))
        self.arrays = {constant.digest: store[constant.digest], **self.arrays}
        return constant

    def _define(self, constant: Constant, where: str) -> str:
        array = self.array(constant, where)
        dtype = tensor_type(constant, where)[1]
        if 0 < array.nbytes <= _LITERAL_NBYTES:
            name = f"constant_{len(self.literals)}"
            values = ", ".join(c_literal(value, dtype) for value in array.reshape(-1))
            self.literals[name] = f"static const {c_type(dtype)} {name}[{array.size}] = {{{values}}};"
            return name
        self.table.append(constant.digest)
        return f"(const {c_type(dtype)} *)byoc_constants[{len(self.table) - 1}]"


class Definitions:
    """C definitions shared by the functions of a source: equal text is written once.

    Attributes:
        texts: the definitions, each behind all dependencies.
        kernels: the kernels available to other calls, by a key common to equal kernels.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._added: set[str] = set()
        self.kernels: dict[str, KernelRecord] = {}
        self._by_text: dict[str, str] = {}
        self._names = NameTable()

    def name(self, hint: str, text: str) -> str:
        """Return the name of a definition, adding the definition unless an equal text exists.

        Args:
            hint: the name behind ``byoc_shared_``, a prefix of no function, kernel or parameter.
            text: C text; every ``{name}`` in it becomes the name.
        """
        name = self.reserve(hint, text)
        self.add(text.replace("{name}", name))
        return name

    def reserve(self, hint: str, text: str) -> str:
        """Return the name of a definition, whether added or not; equal texts get the same name, whatever the hint."""
        if text not in self._by_text:
            self._by_text[text] = self._names.unique(f"byoc_shared_{hint}")
        return self._by_text[text]

    def add(self, text: str) -> None:
        """Add an already named definition, or a directive, unless an equal text exists."""
        if text not in self._added:
            self._added.add(text)
            self.texts.append(text)
