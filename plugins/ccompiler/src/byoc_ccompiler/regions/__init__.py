"""The preparation of a region before C generation: rewrites from function to function."""

from byoc_ccompiler.regions.channels_last import preferred_orders
from byoc_ccompiler.regions.prepare import prepare_regions

__all__ = ["preferred_orders", "prepare_regions"]
