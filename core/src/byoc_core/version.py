"""The version of byoc-core, read from here by the package metadata."""

__version__ = "0.2.0.dev0"
"""The version of byoc-core (PEP 440)."""
