"""Judging of results: by bounds derived from the arithmetic, against an oracle in float64."""

from byoc_conformance.judging.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
