"""Reads a file without ever waiting for one: pipes, devices and the like are not even opened."""

import errno
import os
import stat
from pathlib import Path

from examples.documents.refusals import refuse

LIMIT_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024

NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
NOT_FOR_US = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.EAGAIN})
SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(path: Path, limit: int = LIMIT_BYTES) -> bytes:
    """The whole content of a regular file.

    Raises PermanentError with the code missing, unreadable, not_a_document, too_large or empty. Any other
    OSError, such as a network drive that is away, is left as it is, since a retry can mend it.
    """
    try:
        _expect_regular(path, os.stat(path))
        data = _read(path, limit)
    except ValueError:
        raise refuse("missing", path, "does not exist: no file can have that name") from None
    except OSError as error:
        if error.errno in NO_SUCH_FILE:
            raise refuse("missing", path, "does not exist, or its link leads nowhere") from None
        if error.errno in NOT_FOR_US:
            raise refuse("unreadable", path, f"may not be read: {os.strerror(error.errno)}") from None
        raise
    if not data.strip():
        raise refuse("empty", path, "is empty" if not data else "holds nothing but white space")
    return data


def _expect_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = SPECIAL.get(stat.S_IFMT(found.st_mode), "a special file")
        raise refuse("not_a_document", path, f"is {what}, not a file with a text in it")


def _read(path: Path, limit: int) -> bytes:
    # Not blocking, and looked at again: between the two looks the name may have become a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _expect_regular(path, found)
        if found.st_size > limit:
            raise _too_large(path, limit)
        return _read_all(path, descriptor, limit)
    finally:
        os.close(descriptor)


def _read_all(path: Path, descriptor: int, limit: int) -> bytes:
    # The size that was announced is no promise: logs grow, and files of the kernel claim to be empty.
    data = bytearray()
    while chunk := os.read(descriptor, CHUNK_BYTES):
        data += chunk
        if len(data) > limit:
            raise _too_large(path, limit)
    return bytes(data)


def _too_large(path: Path, limit: int) -> Exception:
    return refuse("too_large", path, f"is larger than the limit of {limit / 1024**2:g} MiB")
