"""byoc_core.cli."""
