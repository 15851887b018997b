"""The version of byoc-core; the package metadata reads it from here."""

__version__ = "0.2.0.dev0"
"""The version of byoc-core (PEP 440)."""
