"""How results are judged: by bounds that follow from the arithmetic, against an oracle in float64."""

from byoc_conformance.judging.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
