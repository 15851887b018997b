"""The numpy host as a backend: the compile half; the run half is the runtime ``graph``."""
