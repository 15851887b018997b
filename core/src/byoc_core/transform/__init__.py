"""Passes that any compilation needs, and the reference interpreter."""

from byoc_core.transform.bind_params import BindParams
from byoc_core.transform.dead_code import RemoveDeadCode, RemoveUnusedFunctions
from byoc_core.transform.evaluate import evaluate_binding, evaluate_function
from byoc_core.transform.fold_constants import FoldConstants
from byoc_core.transform.infer_types import InferTypes
from byoc_core.transform.pass_ import Pass, PassTiming, Sequential
from byoc_core.transform.unique_names import UniqueNames

__all__ = [
    "BindParams",
    "FoldConstants",
    "InferTypes",
    "Pass",
    "PassTiming",
    "RemoveDeadCode",
    "RemoveUnusedFunctions",
    "Sequential",
    "UniqueNames",
    "evaluate_binding",
    "evaluate_function",
]
