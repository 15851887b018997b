"""The form of strings in operands and results of ops: bytes and lengths."""

from __future__ import annotations

from byoc_core.kernels.strings import pack_strings, unpack_strings

__all__ = ["pack_strings", "unpack_strings"]
