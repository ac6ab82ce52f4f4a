"""The job's key as a file: 32 bytes in hexadecimal digits."""

from __future__ import annotations

from pathlib import Path

KEY_BYTES = 32
RECIPE = "`openssl rand -hex 32 > job.key`, copied to every host"


class UnusableKey(Exception):
    """The message completes the sentence that begins with the file's name."""


def read_key(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise UnusableKey("is not a file")  # reading a FIFO would wait for a writer
    try:
        key = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise UnusableKey(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UnusableKey("does not hold hexadecimal digits") from error
    if len(key) != KEY_BYTES:
        raise UnusableKey(f"holds {len(key)} bytes, not {KEY_BYTES}")
    return key
