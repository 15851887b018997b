"""Rewrites of a region before planning, from function to function."""

from __future__ import annotations

from byoc_dnnl.regions.attention import parts_of_attention, spell_out_attention

__all__ = ["parts_of_attention", "spell_out_attention"]
