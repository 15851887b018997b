"""The byoc backend for fused, shape-specialised C, compiled by the system's C compiler."""
