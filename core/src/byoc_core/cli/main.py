"""The entry point of ``byoc``: running the command, and turning errors into messages and exit codes."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from pathlib import Path

from byoc_core.cli.console import print_error, print_text, print_warning
from byoc_core.cli.process_exit import exits_raise
from byoc_core.errors import ByocError, InternalError
from byoc_core.version import __version__

__all__ = ["EXIT_INTERNAL", "EXIT_INTERRUPTED", "EXIT_USER_ERROR", "main"]

EXIT_USER_ERROR = 1
"""An error within the user's power to fix. (2, wrong usage, belongs to the command-line parser.)"""
EXIT_INTERNAL = 70
"""A fault of byoc itself."""
EXIT_INTERRUPTED = 130
"""The user pressed Ctrl-C."""


def main() -> None:
    """Run the command named by ``sys.argv``, and exit."""
    _replace_closed_streams()
    from byoc_core.cli.app import app

    warnings.showwarning = print_warning
    try:
        with exits_raise():
            app(prog_name="byoc")
    except InternalError as error:
        _exit_internal(error)
    except ByocError as error:
        _exit_user_error(_text_of(error), error)
    except BrokenPipeError:
        # The reader of a pipe (`byoc inspect ... | head`) has closed it. Nothing more can be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_USER_ERROR) from None
    except OSError as error:
        _exit_user_error(f"{error.filename or 'operating system'}: {error.strerror or error}", error)
    except MemoryError as error:
        _exit_user_error("out of memory", error)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001 - the last border: whatever comes here is our bug, and is reported as one
        _exit_internal(error)


def _replace_closed_streams() -> None:
    """Replace missing standard streams by the null device, if started without stdout or stderr (``byoc run x >&-``)."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open while we run


def _text_of(error: ByocError) -> str:
    return "\n".join([str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))])


def _exit_user_error(text: str, error: BaseException) -> None:
    print_error(text)
    _print_traceback(error)
    raise SystemExit(EXIT_USER_ERROR)


def _exit_internal(error: BaseException) -> None:
    print_error(
        f"this is a bug in byoc: {type(error).__name__}: {error}\n"
        f"byoc-core {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        "Please report the bug with these lines, the command, and the traceback printed by `byoc --debug ...`."
    )
    _print_traceback(error)
    raise SystemExit(EXIT_INTERNAL)


def _print_traceback(error: BaseException) -> None:
    if os.environ.get("BYOC_DEBUG") or "--debug" in sys.argv[1:]:
        import traceback

        print_text("".join(traceback.format_exception(error)), sys.stderr)
