"""Claims: requests of the core to backends, by pattern, by rule or by the backend's own algorithm; checks of claims."""
