"""Reports: data, pages, and comparison of two reports."""

from byoc_conformance.report.building import new_report
from byoc_conformance.report.comparison import Comparison, compare_reports
from byoc_conformance.report.model import Report, ReportItem
from byoc_conformance.report.reading import read_report
from byoc_conformance.report.writing import write_report

__all__ = ["Comparison", "Report", "ReportItem", "compare_reports", "new_report", "read_report", "write_report"]
