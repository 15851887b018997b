"""The pattern language and its matcher."""

from byoc_core.pattern.composite import CompositePattern
from byoc_core.pattern.language import Pattern, is_const, is_op, is_var, wildcard
from byoc_core.pattern.matcher import FunctionIndex, Match, find_matches
from byoc_core.pattern.verdict import Rejection, Support

__all__ = [
    "CompositePattern",
    "FunctionIndex",
    "Match",
    "Pattern",
    "Rejection",
    "Support",
    "find_matches",
    "is_const",
    "is_op",
    "is_var",
    "wildcard",
]
