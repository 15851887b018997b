"""byoc_core.authoring."""
