"""What a build would do, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.ir.printer import print_module
from byoc_core.partitioning.reporting.comments import comment_ops
from byoc_core.reporting.gate import check_offload
from byoc_core.reporting.kernels import render_kernels
from byoc_core.reporting.page import render_page
from byoc_core.reporting.shares import apportion
from byoc_core.reporting.text import render_report

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a build would do, and why.

    Attributes:
        module: the partitioned module: a function for each region, annotated with the backend that compiles it.
        report_data: the report of :func:`byoc_core.partitioning.build_report` with the dynamic ``sizes``, and with
            ``kernels`` where they were asked for.
    """

    module: IRModule
    report_data: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the report, for people to read."""
        return self.report()

    def __repr__(self) -> str:
        own = [name for name, function in self.module.functions.items() if "Codegen" not in function.attrs]
        return f"<explanation of {', '.join(own)}>"

    def report(self) -> str:
        """Gives the report for people to read."""
        return render_report(self.report_data)

    def report_kernels(self) -> str:
        """Return the kernels that backends generate, for people to read: ops, loops, estimates and source of each.

        Raises:
            OptionsError: the explanation was made without ``kernels=True``.
        """
        if "kernels" not in self.report_data:
            raise OptionsError("explanation", "was made without kernels", hint="Pass `kernels=True` to `explain`.")
        return render_kernels(self.report_data)

    def report_html(self, title: str = "Offload report") -> str:
        """Gives the report as a page that needs no other file: the graph coloured by backend, and reasons."""
        return render_page(self.report_data, title)

    def to_script(self) -> str:
        """Gives the partitioned module as script; behind each op stands who takes it, its share, and why not others."""
        return print_module(self.module, comments=comment_ops(self.module, self.report_data))

    def with_sizes(self, **sizes: int) -> Explanation:
        """Gives the explanation with shares of FLOPs that count symbolic sizes as these instead of 1.

        Raises:
            OptionsError: no op's FLOPs depend on one of them.
        """
        return Explanation(self.module, apportion(self.report_data, sizes))

    def require_offload(self, share: float) -> None:
        """Checks that at least this share of the FLOPs, from 0 to 1, is not the host's.

        Raises:
            PartitionError: it is not; names the share and the most expensive reasons.
            OptionsError: ``share`` is not between 0 and 1.
        """
        check_offload(self.report_data, share)
