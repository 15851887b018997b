"""The checker of partitioned modules, without shared code with the makers of partitions."""
