"""A user's demands on a partition, and the consequences for each backend."""
