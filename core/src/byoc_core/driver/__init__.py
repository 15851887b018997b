"""From a module and backends to something that runs, or to what explains it."""

from byoc_core.driver.build import BuildOptions, Progress, build, carve_regions, explain, pass_names
from byoc_core.driver.explanation import Explanation

__all__ = ["BuildOptions", "Explanation", "Progress", "build", "carve_regions", "explain", "pass_names"]
