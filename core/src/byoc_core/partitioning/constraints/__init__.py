"""What a user demands of a partition, and what follows for each backend."""
