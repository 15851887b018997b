"""Claims: whom core asks about an op, by pattern, by rule or by the backend's own algorithm; and claims checked."""
