"""Advice for operators without importer: plugins set aside, packages, and code to register an importer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from byoc_core.frontend.onnx_names import OnnxName, dotted_name
from byoc_core.plugin import PluginRecord, PluginState

__all__ = ["UnknownOp", "describe_missing"]


_COMMON_DOMAINS = frozenset({"ai.onnx.ml", "com.microsoft"})
"""Domains with packages of importers."""


@dataclass(frozen=True, slots=True)
class UnknownOp:
    """An operator without importer in a model.

    Attributes:
        name: domain and operator.
        count: the number of nodes.
        attributes: the names of the attributes of all these nodes.
    """

    name: OnnxName
    count: int
    attributes: frozenset[str]

    def with_uses(self, other: UnknownOp) -> UnknownOp:
        """Return the operator with further uses."""
        return replace(self, count=self.count + other.count, attributes=self.attributes | other.attributes)

    def repeated(self, times: int) -> UnknownOp:
        """Return the operator with ``times`` as many nodes."""
        return replace(self, count=self.count * times)


def describe_missing(ops: Sequence[UnknownOp], installed: Sequence[PluginRecord]) -> tuple[str, str]:
    """Return hint and detail of the error for operators without importer.

    Args:
        ops: the operators; the code of the detail registers the first.
        installed: all importer plugins, with their present state.
    """
    name = dotted_name(ops[0].name)
    steps = [
        *_describe_unusable(installed),
        *_point_to_packages(ops),
        f"To import `{name}`, run this code before `from_onnx`, with the outputs of the node in the last line:",
    ]
    return " ".join(steps), _registration(ops[0])


def _describe_unusable(installed: Sequence[PluginRecord]) -> Iterator[str]:
    for record in installed:
        if record.state is not PluginState.AVAILABLE:
            yield f"The {record.label} cannot be used ({record.state}): {record.reason}. {record.remedy}"


def _point_to_packages(ops: Sequence[UnknownOp]) -> Iterator[str]:
    for domain in sorted({op.name[0] for op in ops} & _COMMON_DOMAINS):
        yield f"Packages import operators of the domain `{domain}`: the page docs/foreign-operators.md lists packages."


def _registration(op: UnknownOp) -> str:
    """Return code importing an operator as its first input.

    Names from the model are ASCII literals, so a name cannot become code.
    """
    domain, op_type = op.name
    attributes = ", ".join(ascii(name) for name in sorted(op.attributes))
    lines = [
        "import byoc_core",
        "",
        f"@byoc_core.register_op({domain!a}, {op_type!a})",
        "def import_node(node):",
    ]
    if attributes:
        lines.append(f"    node.ignore_attrs({attributes})  # read each instead: node.attr_float(name)")
    lines.append(
        "    return [node.value(0)] * node.num_outputs  # stands for the outputs: node.emit(op, node.value(0))"
    )
    return "\n".join(lines)
