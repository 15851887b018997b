"""Names of ONNX operators: domain and operator."""

from __future__ import annotations

__all__ = ["STANDARD_DOMAINS", "OnnxName", "dotted_name", "standardised"]

STANDARD_DOMAINS = ("", "ai.onnx")
"""The two names of the standard operator set's domain."""

OnnxName = tuple[str, str]
"""Domain and operator; the standard domain is empty."""


def standardised(domain: str) -> str:
    """Return a domain; the standard domain as empty text."""
    return "" if domain in STANDARD_DOMAINS else domain


def dotted_name(name: OnnxName) -> str:
    """Return the name for messages and settings: ``com.example.Scale``, and ``Relu`` in the standard domain."""
    return ".".join(filter(None, name))
