"""byoc_core.transform."""
