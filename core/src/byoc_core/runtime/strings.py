"""Tensors of strings as the two arrays passed to compiled models.

A compiled model takes and returns arrays of numbers. A tensor of strings ``x`` is two of them, ``x.bytes`` and
``x.lengths``::

    data, lengths = pack_strings([["a", "bc"]])
    results = machine.run("main", {"x.bytes": data, "x.lengths": lengths})
    strings = unpack_strings(*results)
"""

from __future__ import annotations

from byoc_core.kernels.strings import pack_strings, unpack_strings

__all__ = ["pack_strings", "unpack_strings"]
