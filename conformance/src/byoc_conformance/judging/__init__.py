"""How results are judged: by bounds that follow from the arithmetic, against an oracle in float64."""

from byoc_conformance.judging.judge import Verdict, judge
from byoc_conformance.judging.rules import Rule, rule_of

__all__ = ["Rule", "Verdict", "judge", "rule_of"]
