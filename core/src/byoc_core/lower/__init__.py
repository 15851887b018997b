"""byoc_core.lower."""
