"""Level 3: what is saved comes back, here and in other processes, and nothing else does."""

from __future__ import annotations

from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l3_artifacts import constants, damage, elsewhere, identity, permission

__all__ = ["PROMISES"]

_SECONDS = 120.0
"""The first test of the level finds the examples and compiles them; others compile some more, or start processes."""

_CHECKS = (
    ("save-and-load", "saves what it compiled, and loads it with all its functions", identity.saves_and_loads),
    ("same-results", "gives the same results, bit for bit, after saving and loading", identity.same_results),
    ("same-source", "keeps its source through saving and loading", identity.same_source),
    ("same-runtime", "loads modules that belong to the runtime that loaded them", identity.same_kind),
    ("saves-the-same-bytes", "saves one module as the same bytes each time", identity.same_payload_twice),
    ("saves-loaded-alike", "saves a loaded module as the bytes it was loaded from", identity.same_payload_of_loaded),
    (
        "compiles-alike",
        "compiles equal functions to equal payloads, if it says that it is deterministic",
        identity.same_payload_for_equal_functions,
    ),
    (
        "same-bytes-elsewhere",
        "saves the same bytes whatever the order of sets, if it says that it is deterministic",
        elsewhere.same_bytes_elsewhere,
    ),
    (
        "runs-elsewhere",
        "gives the same results in a new process that has no compile side",
        elsewhere.same_results_elsewhere,
    ),
    ("two-artifacts", "keeps apart artifacts whose functions have the same names", identity.two_artifacts),
    ("constants-cited", "cites large constants by digest and does not inline them", constants.constants_cited),
    ("constants-kept", "holds the constants that its payload cites, loaded modules too", constants.constants_kept),
    ("zero-copy", "leaves constants where they lie when it loads, and copies none", constants.constants_in_place),
    ("missing-constants", "refuses a payload whose constants are missing, and names one", constants.missing_constants),
    ("data-only", "unpickles, unmarshals and executes nothing that stands in a payload", elsewhere.data_only),
    ("native-code", "loads machine code only with permission, and hides none", permission.native_code),
    ("newer-formats", "refuses payloads of formats that it does not list, and names them", permission.newer_format),
    ("damaged-payloads", "loads or refuses damaged payloads, and does nothing else", damage.damaged_payloads),
    ("malformed-files", "loads or refuses malformed files, and does nothing else", damage.malformed_files),
)

PROMISES = tuple(Promise(Level.L3, name, text, check, deadline=_SECONDS) for name, text, check in _CHECKS)
