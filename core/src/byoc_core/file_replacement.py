"""Files that appear whole or not at all.

Data is written to a new file beside the target; at the end the new file takes the target's name. A reader sees the old
file or the new file. An error, a full disk or Ctrl-C leaves the old file unchanged.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["replace_file"]


@contextmanager
def replace_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file to write; the file becomes ``path`` when the block ends without an error.

    A symbolic link stays a link: the target of the link is replaced. Only a regular file is ever replaced. A rename
    onto a device or a pipe would remove the device or pipe from the system.

    Args:
        path: the file to write; need not exist.
        mode: permissions of the file, less the process's umask.

    Raises:
        OSError: ``path`` is a folder, a device or a pipe, or cannot be written. Names ``path``, never the new file
            beside the target.
    """
    named = os.fspath(path)
    target = Path(os.path.realpath(named))
    temporary = target.parent / f".byoc-{secrets.token_hex(8)}"
    try:
        _check_replaceable(target, named)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(target), str(temporary)):
            raise OSError(error.errno, error.strerror, named) from error
        raise


def _check_replaceable(target: Path, named: str) -> None:
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), named)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Is not a regular file, and is not replaced by a regular file", named)
