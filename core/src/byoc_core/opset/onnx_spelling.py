"""ONNX spellings of ops with a single equivalent operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["OnnxSpelling"]


def _no_attrs() -> Mapping[str, float]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OnnxSpelling:
    """An ONNX operator with the same operands and results as the op, in the same order.

    Attributes:
        op_type: the ONNX operator's name.
        attrs: float attributes, the same in ONNX as here, with the defaults stated by ONNX.
        domain: the ONNX domain; empty for the standard domain.
    """

    op_type: str
    attrs: Mapping[str, float] = field(default_factory=_no_attrs)
    domain: str = ""
