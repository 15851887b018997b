"""byoc_core.ops."""
