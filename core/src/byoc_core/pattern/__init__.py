"""The pattern language and its matcher."""

from byoc_core.pattern.composite import CompositePattern
from byoc_core.pattern.conditions import Condition, Predicate
from byoc_core.pattern.constructors import any_number, is_const, is_extern, is_op, is_var, sequence, wildcard
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import Alternatives, OpPattern, Pattern, Repeated, ValuePattern
from byoc_core.pattern.match import Match
from byoc_core.pattern.matcher import find_matches
from byoc_core.pattern.mismatch import Mismatch, explain_mismatch
from byoc_core.pattern.plan import root_ops
from byoc_core.pattern.verdict import Rejection, Support

__all__ = [
    "Alternatives",
    "CompositePattern",
    "Condition",
    "FunctionIndex",
    "Match",
    "Mismatch",
    "OpPattern",
    "Pattern",
    "Predicate",
    "Rejection",
    "Repeated",
    "Support",
    "ValuePattern",
    "any_number",
    "explain_mismatch",
    "find_matches",
    "is_const",
    "is_extern",
    "is_op",
    "is_var",
    "root_ops",
    "sequence",
    "wildcard",
]
