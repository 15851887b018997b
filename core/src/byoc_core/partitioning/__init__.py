"""byoc_core.partitioning."""
