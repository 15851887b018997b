"""The byoc backend that compiles regions with the system's C compiler: fused, shape-specialised C."""
