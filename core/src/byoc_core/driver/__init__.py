"""Compilation of a module for backends, to an executable or an explanation."""

from byoc_core.driver.build import build, carve_regions, explain, pass_names
from byoc_core.driver.compiler import Compiler
from byoc_core.driver.explanation import Explanation
from byoc_core.driver.observers import OnPass, Progress
from byoc_core.driver.request import CompileRequest, RequestFields, gather_request
from byoc_core.driver.stages import INSERTION_POINTS, ModulePass, Stage

__all__ = [
    "INSERTION_POINTS",
    "CompileRequest",
    "Compiler",
    "Explanation",
    "ModulePass",
    "OnPass",
    "Progress",
    "RequestFields",
    "Stage",
    "build",
    "carve_regions",
    "explain",
    "gather_request",
    "pass_names",
]
