"""byoc_core.host."""
