"""Passes over modules, the rewriter for backends' own passes, and the reference interpreter.

:func:`default_passes` lists the passes run in every compilation; backends and users run the other passes.
"""

from byoc_core.absent_names import absent_name
from byoc_core.transform.bind_params import BindParams
from byoc_core.transform.canonicalise import Canonicalise
from byoc_core.transform.capture_sizes import CaptureSizes
from byoc_core.transform.common_subexpressions import EliminateCommonSubexpressions
from byoc_core.transform.copy_dequantised import CopyDequantised
from byoc_core.transform.dead_code import RemoveDeadCode, RemoveUnusedFunctions
from byoc_core.transform.default_passes import default_passes
from byoc_core.transform.evaluate import evaluate_binding, evaluate_function
from byoc_core.transform.fold_batch_norm import FoldBatchNorm
from byoc_core.transform.fold_constants import FoldConstants
from byoc_core.transform.fold_pad import FoldPad
from byoc_core.transform.fold_scales import FoldScales
from byoc_core.transform.fold_shapes import FoldShapes
from byoc_core.transform.fuse_text_counts import FuseTextCounts
from byoc_core.transform.hoist_seeds import HoistSeeds
from byoc_core.transform.infer_types import InferTypes
from byoc_core.transform.inline_calls import InlineCalls
from byoc_core.transform.keep_states import KeepStates, detect_states
from byoc_core.transform.lower_einsum import LowerEinsum
from byoc_core.transform.move_transposes import MoveTransposes
from byoc_core.transform.pass_ import Pass, PassRun, Sequential, pass_name
from byoc_core.transform.recognise_composites import RecogniseComposites
from byoc_core.transform.rewrite import clone_function, inline_composites, remap
from byoc_core.transform.rewrite_pass import RewritePass, pattern_rewrite
from byoc_core.transform.rewriter import RewriteGraph, Rule, Rules, rewrite_module
from byoc_core.transform.select_integers import SelectIntegers
from byoc_core.transform.simplify import Simplify
from byoc_core.transform.take_integers import TakeIntegers
from byoc_core.transform.tensors import dtype_of, rank_of, shape_of
from byoc_core.transform.trace_sizes import SizeKind, SizeOrigin, SizeTrace, trace_sizes
from byoc_core.transform.unique_names import UniqueNames

__all__ = [
    "BindParams",
    "Canonicalise",
    "CaptureSizes",
    "CopyDequantised",
    "EliminateCommonSubexpressions",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldPad",
    "FoldScales",
    "FoldShapes",
    "FuseTextCounts",
    "HoistSeeds",
    "InferTypes",
    "InlineCalls",
    "KeepStates",
    "LowerEinsum",
    "MoveTransposes",
    "Pass",
    "PassRun",
    "RecogniseComposites",
    "RemoveDeadCode",
    "RemoveUnusedFunctions",
    "RewriteGraph",
    "RewritePass",
    "Rule",
    "Rules",
    "SelectIntegers",
    "Sequential",
    "Simplify",
    "SizeKind",
    "SizeOrigin",
    "SizeTrace",
    "TakeIntegers",
    "UniqueNames",
    "clone_function",
    "default_passes",
    "detect_states",
    "dtype_of",
    "evaluate_binding",
    "evaluate_function",
    "inline_composites",
    "pass_name",
    "pattern_rewrite",
    "rank_of",
    "remap",
    "rewrite_module",
    "shape_of",
    "trace_sizes",
]


def __getattr__(name: str) -> object:
    """Raise an error naming the home of an absent pass, for readers of TVM; see :mod:`byoc_core.absent_names`."""
    raise absent_name(__name__, name, __all__)
