"""Level 3: artifacts: saved modules load unchanged, here and in other processes, and nothing else loads."""

from __future__ import annotations

from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l3_artifacts import constants, damage, elsewhere, identity, permission

__all__ = ["PROMISES"]

_SECONDS = 120.0
"""The first test of the level finds the examples and compiles them; others compile some more, or start processes."""

_CHECKS = (
    ("save-and-load", "saves compiled modules, and loads the modules with all functions", identity.saves_and_loads),
    ("same-results", "gives bit-identical results after saving and loading", identity.same_results),
    ("same-source", "keeps the source of a module through saving and loading", identity.same_source),
    ("same-runtime", "loads modules with the type key of the saved modules", identity.same_kind),
    ("saves-the-same-bytes", "saves the same module as the same bytes each time", identity.same_payload_twice),
    ("saves-loaded-alike", "saves a loaded module as the bytes of the loaded payload", identity.same_payload_of_loaded),
    (
        "compiles-alike",
        "compiles equal functions to equal payloads, if declared deterministic",
        identity.same_payload_for_equal_functions,
    ),
    (
        "same-bytes-elsewhere",
        "saves the same bytes for any iteration order of sets, if declared deterministic",
        elsewhere.same_bytes_elsewhere,
    ),
    (
        "runs-elsewhere",
        "gives the same results in a new process without the compile side",
        elsewhere.same_results_elsewhere,
    ),
    ("two-artifacts", "keeps artifacts with equal function names apart", identity.two_artifacts),
    ("constants-cited", "cites large constants by digest instead of inlining the data", constants.constants_cited),
    ("constants-kept", "keeps the constants cited by a payload, in loaded modules too", constants.constants_kept),
    ("zero-copy", "loads modules without copying constants", constants.constants_in_place),
    (
        "missing-constants",
        "refuses a payload with missing constants, and names a missing constant",
        constants.missing_constants,
    ),
    ("data-only", "unpickles, unmarshals and executes no part of a payload", elsewhere.data_only),
    (
        "native-code",
        "loads machine code only with permission, and hides no machine code in payloads",
        permission.native_code,
    ),
    ("newer-formats", "refuses payloads of unlisted formats, and names the formats", permission.newer_format),
    ("damaged-payloads", "loads damaged payloads or raises an `ArtifactError`, nothing else", damage.damaged_payloads),
    ("malformed-files", "loads malformed files or raises an `ArtifactError`, nothing else", damage.malformed_files),
)

PROMISES = tuple(Promise(Level.L3, name, text, check, deadline=_SECONDS) for name, text, check in _CHECKS)
