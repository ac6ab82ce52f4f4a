"""The right to make hosts: root's, or root's of a user namespace, where the kernel gives one to everybody."""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.errors import LabUnavailable
from holdfast.lab import own_root
from holdfast.lab.host import TUN_DEVICE
from holdfast.lab.namespaces import NetworkNamespace

# Set in the second try, so that there is no third.
TRIED = "_HOLDFAST_LAB_OWN_ROOT"
_PROBE_LIMIT_S = 20.0
_BECOME_ROOT = [sys.executable, "-I", "-S", own_root.__file__]


def ensure() -> None:
    """Returns if this process may make hosts. If it can get that right, runs the program anew with it.

    Raises LabUnavailable otherwise. Call it before anything has begun: what this process did so far is done again.
    """
    try:
        NetworkNamespace().close()
    except LabUnavailable:
        if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
            raise LabUnavailable(
                f"the lab's hosts need {TUN_DEVICE}, which this user may not open",
                what_to_try="run as root; plain loopback needs nothing of it",
            ) from None
        if TRIED in os.environ or not _can_become_root():
            raise
        os.environ[TRIED] = "1"
        os.execv(_BECOME_ROOT[0], [*_BECOME_ROOT, *sys.orig_argv])


def _can_become_root() -> bool:
    """Tried out in a child: kernels and containers forbid it in many ways."""
    probe = subprocess.run([*_BECOME_ROOT, "true"], capture_output=True, timeout=_PROBE_LIMIT_S)
    return probe.returncode == 0
