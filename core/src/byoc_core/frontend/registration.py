"""Registration of ONNX operators by a script, without a package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from byoc_core.errors import FrontendError, IRError, OptionsError, type_name
from byoc_core.frontend.core_operators import find_core_op, has_core_importer
from byoc_core.frontend.importers import RegisteredOperator, importers
from byoc_core.frontend.onnx_names import OnnxName, dotted_name, standardised
from byoc_core.opset.opdef import OpDef
from byoc_core.runtime.registry import runtimes

__all__ = ["register_op"]

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def register_op(domain: str, op_type: str, importer: _F, *, op: OpDef | None = None) -> _F: ...
@overload
def register_op(domain: str, op_type: str, importer: None = None, *, op: OpDef | None = None) -> Callable[[_F], _F]: ...
def register_op(
    domain: str, op_type: str, importer: Callable[..., Any] | None = None, *, op: OpDef | None = None
) -> Callable[..., Any]:
    """Register an ONNX operator for this process, and return the importer; without importer, return a decorator.

    ::

        @byoc_core.register_op("com.example", "Scale")
        def import_scale(node):
            return node.emit("multiply", node.value(0), node.scalar(node.attr_float("factor", 1.0), 0))

    ``from_onnx`` calls the importer for each node of the operator. Installed plugins importing the operator are not
    asked. With ``op`` and without importer, the operator is the op: inputs are the operands in order, and an attribute
    of the op is the node's attribute of the same name, or else has the default of the op. (An op with regions or with
    declared results needs an importer.) Modules with the operator
    have ``op`` in their registry. The host finds the op's kernel in this process, also for artifacts loaded after the
    registration; other processes register the operator before loading.

    A second registration of an operator replaces the first, so a notebook cell may run twice. Modules imported before
    keep the earlier op; new imports use the new op, and artifacts loaded later the new kernel. The function may be
    called in any thread.

    Args:
        domain: the domain of the operator; ``""`` or ``"ai.onnx"`` is the standard domain.
        op_type: the name of the operator in the domain.
        importer: takes a node (:class:`byoc_core.frontend.onnx.NodeContext`). The result is a sequence with the
            imported form of each output, or the imported form of a single output.
        op: an op of your own for the importer, or an op equal to the operator. The name has a prefix of your own, such
            as ``"example.scale"``; the op may also be an op of the core.

    Returns:
        The importer, unchanged; or a decorator for the importer, if none is given.

    Raises:
        OptionsError: an argument is of another type.
        FrontendError: the core has an importer for the operator.
        IRError: the op has the name of another op of the core.

    Cost: the first registration with an op imports all ops of the core.
    """
    name = _checked_name(domain, op_type)
    if op is not None:
        _check_op(op)
    if importer is not None:
        if not callable(importer):
            raise OptionsError("register_op, `importer`", "is not a function", got=type_name(importer))
        importers().register(name, RegisteredOperator(importer, op), runtimes())
        return importer
    if op is not None:
        importers().register(name, RegisteredOperator(None, op), runtimes())

    def decorate(function: _F) -> _F:
        return register_op(domain, op_type, function, op=op)

    return decorate


def _checked_name(domain: str, op_type: str) -> OnnxName:
    for argument, value in (("domain", domain), ("op_type", op_type)):
        if not isinstance(value, str):
            raise OptionsError(f"register_op, `{argument}`", "is not text", got=type_name(value))
    if not op_type:
        raise OptionsError("register_op, `op_type`", "is empty")
    name = standardised(domain), op_type
    if has_core_importer(name):
        raise FrontendError(
            "register_op",
            f"operator `{dotted_name(name)}` has an importer in byoc-core",
            hint="Give the operator a domain of your own, in the model too.",
        )
    return name


def _check_op(op: OpDef) -> None:
    if not isinstance(op, OpDef):
        raise OptionsError("register_op, `op`", "is not an op", got=type_name(op), expected="OpDef")
    if find_core_op(op.name) not in (None, op):
        raise IRError(f"op `{op.name}`", "has the name of another op of the core", hint="Rename the op.")
