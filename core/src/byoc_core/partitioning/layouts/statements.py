"""The axis orders of single ops: stated by backends, or following from the op itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.backend import AxisOrders, BackendHandle, CompileContext
from byoc_core.errors import ByocError
from byoc_core.ir import Binding, IRModule
from byoc_core.opset.permutation import Permutable
from byoc_core.partitioning.op_function import as_function
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.transform.permuted_ops import as_permutable

__all__ = ["StatedOrders"]

HOOK = "byoc_layouts"


@dataclass(frozen=True, slots=True)
class _Askable:
    handle: BackendHandle
    context: CompileContext


class StatedOrders:
    """The backends stating axis orders, asked once about ops differing only in names and elements of constants.

    Args:
        module: the module with the regions.
        find: returns a backend by name.
        options: of the backends, by name.
        numbers: the distinct ops; may be shared with other questions about the module.

    Attributes:
        transpose: the op permuting axes; ``None`` in a module without the op.
    """

    def __init__(
        self,
        module: IRModule,
        find: Callable[[str], BackendHandle],
        options: Mapping[str, Mapping[str, object]],
        numbers: OpNumbers | None = None,
    ) -> None:
        self._askable: dict[str, _Askable | None] = {}
        self._module = module
        self._find = find
        self._options = options
        self._numbers = numbers or OpNumbers()
        self._answers: dict[tuple[str, int], tuple[AxisOrders, ...] | None] = {}
        self._permutable: dict[int, Permutable | None] = {}
        self.transpose = module.ops.get("permute_dims")

    def has_statements(self, backend: str) -> bool:
        """Return whether a backend states axis orders at all; values of other backends are row-major."""
        return self._find_askable(backend) is not None

    def orders(self, backend: str, binding: Binding) -> Sequence[AxisOrders] | None:
        """Return the alternatives stated for an op, best first; ``None`` without a statement.

        Raises:
            HookError: the backend's hook failed, and failures of the backend are not contained.
        """
        askable = self._find_askable(backend)
        if askable is None or binding.regions:
            return None
        key = (backend, self._numbers.number(binding))
        if key not in self._answers:
            try:
                self._answers[key] = askable.handle.layouts(as_function(binding, backend), askable.context)
            except ByocError as error:
                askable.handle.contain(HOOK, error, binding.results[0].name)
                self._answers[key] = None
        return self._answers[key]

    def prefers(self, backend: str, binding: Binding) -> bool:
        """Return whether a backend prefers a permuted order for an op.

        Raises:
            HookError: the backend's hook failed, and failures of the backend are not contained.
        """
        first = (self.orders(backend, binding) or (None,))[0]
        return first is not None and any(order is not None for order in (*first.operands, *first.results))

    def permutable(self, binding: Binding) -> Permutable | None:
        """Return the rule for computing an op in any order of axes; ``None`` if the order matters."""
        number = self._numbers.number(binding)
        if number not in self._permutable:
            self._permutable[number] = as_permutable(binding, exact=False)
        return self._permutable[number]

    def _find_askable(self, backend: str) -> _Askable | None:
        if backend not in self._askable:
            handle = self._find(backend)
            context = handle.context(self._module, self._options.get(backend, {}))
            self._askable[backend] = _Askable(handle, context) if handle.implements(HOOK) else None
        return self._askable[backend]
