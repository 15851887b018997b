"""byoc_core.pattern."""
