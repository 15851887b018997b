"""The function builder with byoc's own ops."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.ir import ConstantStore, Function, OpRegistry
from byoc_core.ir import FunctionBuilder as IRFunctionBuilder
from byoc_core.ops.registry import default_ops

__all__ = ["FunctionBuilder"]


class FunctionBuilder(IRFunctionBuilder):
    """Builds one function of byoc's own ops; see :class:`byoc_core.ir.FunctionBuilder`.

    Args:
        name: the function's name.
        ops: known ops; byoc's own by default.
        constants: the store for constants; a new one by default.
        functions: functions that ``call`` may name.
    """

    def __init__(
        self,
        name: str = "main",
        *,
        ops: OpRegistry | None = None,
        constants: ConstantStore | None = None,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        super().__init__(name, ops=ops or default_ops(), constants=constants, functions=functions)
