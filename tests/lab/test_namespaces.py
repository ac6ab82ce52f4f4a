"""Namespaces are anonymous, work is done inside on a thread of its own, and the kernel takes them away."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast.lab.namespaces import NetworkNamespace
from lab.lab_processes import needs_lab

pytestmark = needs_lab


def test_a_namespace_holds_nothing_but_its_own_loopback() -> None:
    namespace = NetworkNamespace()
    try:
        assert [name for _, name in namespace.run(socket.if_nameindex)] == ["lo"]
        assert namespace.inode != os.stat("/proc/self/ns/net").st_ino
    finally:
        namespace.close()


def test_the_calling_thread_never_leaves_its_network() -> None:
    before = os.stat("/proc/thread-self/ns/net").st_ino
    namespace = NetworkNamespace()
    inside = namespace.run(lambda: os.stat("/proc/thread-self/ns/net").st_ino)
    assert inside == namespace.inode
    assert os.stat("/proc/thread-self/ns/net").st_ino == before
    namespace.close()


def test_an_error_inside_comes_out() -> None:
    namespace = NetworkNamespace()
    try:
        with pytest.raises(ZeroDivisionError):
            namespace.run(lambda: 1 // 0)
    finally:
        namespace.close()


def test_no_namespace_is_ever_named() -> None:
    names = Path("/run/netns")
    before = set(names.iterdir()) if names.is_dir() else set()
    namespace = NetworkNamespace()
    assert (set(names.iterdir()) if names.is_dir() else set()) == before
    namespace.close()
    namespace.close()
