"""Where and how ops are measured: the machine, the number of threads, the backend with version and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from byoc_core.backend import BackendHandle
from byoc_core.measurements.calibration import Calibration
from byoc_core.measurements.database import Measurements
from byoc_core.measurements.estimates import estimates_digest
from byoc_core.measurements.machine import processor_text
from byoc_core.runtime.threads import num_threads as process_threads

__all__ = ["BackendSetting", "expected_threads", "find_calibrations"]


class BackendSetting(NamedTuple):
    """The setting of measurements of a backend: fields of :class:`byoc_core.measurements.Measurement`."""

    processor: str
    threads: int
    backend: str
    version: str
    options: str

    @classmethod
    def of(
        cls, handle: BackendHandle, options: Mapping[str, object], num_threads: int | None = None, processor: str = ""
    ) -> Self:
        """Return the setting of a backend on this machine.

        Args:
            handle: the backend.
            options: as given by the user.
            num_threads: of a call; by default the number of the process.
            processor: of another machine.

        Raises:
            OptionsError: an option is unknown or has a bad value.
        """
        threads = expected_threads(num_threads)
        version = _version_text(handle, estimates_digest(handle, options, threads))
        return cls(processor or processor_text(), threads, handle.name, version, _options_digest(handle, options))


def expected_threads(num_threads: int | None) -> int:
    """Return the number of threads of later calls: as given, or the number of the process."""
    return process_threads() if num_threads is None else num_threads


def _version_text(handle: BackendHandle, estimates: str) -> str:
    record = handle.record
    parts = (f"{record.distribution} {record.version}" if record.distribution else "", estimates)
    return ", estimates ".join(parts) if estimates else parts[0]


def _options_digest(handle: BackendHandle, options: Mapping[str, object]) -> str:
    """Return a digest of the options with defaults filled in; empty for defaults."""
    validated, defaults = handle.options(options), handle.options()
    if validated is None or validated == defaults:
        return ""
    text = json.dumps(validated.model_dump(mode="json"), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_calibrations(
    measurements: Measurements,
    handles: Iterable[BackendHandle],
    options: Mapping[str, Mapping[str, object]],
    num_threads: int | None = None,
) -> dict[str, Calibration]:
    """Return what is known of backends on this machine, by name; backends without measurements are left out.

    Args:
        measurements: the database.
        handles: the backends.
        options: of the backends, by name.
        num_threads: of a call; by default the number of the process.

    Cost: linear in the measurements of the backends; nearly nothing without a database.
    """
    file = measurements.file
    if file is None or not file.is_file():
        return {}
    found: dict[str, Calibration] = {}
    processor = processor_text()
    for handle in handles:
        setting = BackendSetting.of(handle, options.get(handle.name, {}), num_threads, processor)
        rows = measurements.usable_rows(**setting._asdict())
        if rows:
            found[handle.name] = Calibration.of(rows)
    return found
