"""Rewrites into ops known to plans.

Batch normalisation and integer products are rewritten in the whole module, before partition. The result replaces the
module for all backends, so the meaning must not change. Attention is rewritten in the backend's functions, before
planning.
"""

from __future__ import annotations

from byoc_dnnl.regions.attention import parts_of_attention, spell_out_attention

__all__ = ["parts_of_attention", "spell_out_attention"]
