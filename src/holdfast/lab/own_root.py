"""Runs a command as root of a user namespace of its own: `python own_root.py COMMAND...` becomes the command.

There an ordinary user may make network namespaces, where the kernel allows it. A process of its own, because only one
without threads may change its user namespace. It is run by path, without the package: standard library only.
"""

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
CANNOT_ENTER = 126


def main() -> None:
    user, group, command = os.getuid(), os.getgid(), sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        sys.stderr.write(f"cannot make a user namespace: {os.strerror(ctypes.get_errno())}\n")
        sys.exit(CANNOT_ENTER)
    # The kernel wants groups frozen before an ordinary user may map one.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
