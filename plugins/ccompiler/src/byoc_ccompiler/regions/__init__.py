"""The preparation of a region before C generation: rewrites from function to function."""

from byoc_ccompiler.regions.prepare import prepare_regions

__all__ = ["prepare_regions"]
