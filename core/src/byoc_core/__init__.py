"""byoc-core."""
