"""The checker of partitioned modules, which shares no code with what makes them."""
