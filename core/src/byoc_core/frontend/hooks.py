# mypy: disable-error-code=empty-body
# (a specification is never called: its signature and its text are all there is)
"""The hook of the ONNX front end, implemented by the plugins of the group ``byoc.importers``.

An importer plugin is a module (or object) with a function marked by :data:`hookimpl`. The entry point's name is free. A
model with an operator unknown to the core opens the installed importers; other models do not.

A hook may raise an error of :mod:`byoc_core.errors`. The plugin is then quarantined with the error as the reason. Any
other exception becomes a ``HookError`` with plugin, distribution, version and hook, with the same consequence.

The smallest importer plugin::

    from byoc_core.frontend.hooks import OnnxImporters, hookimpl

    def import_scale(node):
        return [node.emit("multiply", node.value(0), node.scalar(node.attr_float("factor"), 0))]

    @hookimpl
    def byoc_onnx_importers():
        return OnnxImporters({("com.example", "Scale"): import_scale})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from byoc_core.plugin.markers import hookimpl, hookspec

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.node_context import NodeImporter
    from byoc_core.opset.opdef import OpDef

__all__ = ["OnnxImporters", "byoc_onnx_importers", "hookimpl"]


@dataclass(frozen=True, slots=True)
class OnnxImporters:
    """The ONNX operators imported by a plugin.

    Attributes:
        importers: functions by domain and operator; the standard domain is ``""``. A function takes a node
            (:class:`byoc_core.frontend.onnx.NodeContext`) and returns the imported form of each output, in order.
        ops: the package's own ops. An op with an ``OnnxSpelling`` needs no importer. The run half of the package
            returns the kernels from the hook ``byoc_kernels`` of the group ``byoc.runtimes``.
    """

    importers: Mapping[tuple[str, str], NodeImporter] = field(default_factory=lambda: MappingProxyType({}))
    ops: Sequence[OpDef] = ()


@hookspec(since="0.2", required=True)
def byoc_onnx_importers() -> OnnxImporters:
    """Return importers of ONNX operators, and the package's own ops. Required.

    Called by: the ONNX front end, and ``byoc backends`` and ``byoc doctor`` in a separate process.
    When: a model has an operator imported neither by the core nor by the ops passed to ``from_onnx``, nor registered by
        ``byoc_core.register_op``.
    How often: once per process.
    Result: kept. The importers are called for the nodes of their operators, in any thread. The module has the package's
        ops in its registry if the model uses an operator of the plugin. An operator with an importer in the core is
        refused. An operator defined by a function of the standard reaches an importer of the plugin only if the core
        cannot import the function. If two plugins import the same operator of a model, the user must choose
        (``BYOC_PREFER``).
    If it raises: the plugin is quarantined with the reason. A result of another type has the same effect. An import in
        need of an unknown operator then names the plugin, the reason and the remedy.

    Example::

        from byoc_core.frontend.hooks import OnnxImporters, hookimpl
        from byoc_core.opset import OnnxSpelling, Rounding, Rule, unary_op
        import numpy as np

        CUBE_ROOT = unary_op(
            "example.cube_root",
            "Return the cube root.",
            np.cbrt,
            rounding=Rounding(Rule.ULP, 2.0),
            onnx=OnnxSpelling("CubeRoot", domain="com.example"),
        )


        @hookimpl
        def byoc_onnx_importers():
            def import_scale(node):
                return [node.emit("multiply", node.value(0), node.scalar(node.attr_float("factor", 1.0), 0))]

            return OnnxImporters({("com.example", "Scale"): import_scale}, ops=[CUBE_ROOT])
    """
