"""A few datagrams from an own address to itself, one by one and as one segmented batch: does UDP really work here?

That a socket takes the options of segmentation offload does not mean that a batch arrives: sandboxes and old drivers
accept the one and refuse the other. Datagrams to an own address never leave the host, whichever interface has it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from holdfast.doctor.facts import Trip

LIMIT_S = 0.5
_UDP_SEGMENT = 103  # linux/udp.h; not in the socket module
_UDP_GRO = 104
_MOST_BYTES = 65_487  # one segmented send, less the IPv6 and UDP headers
_MOST_DATAGRAMS = 8


def plain(address: str, datagram_bytes: int) -> Trip:
    return _trip(address, datagram_bytes, segmented=False)


def segmented(address: str, datagram_bytes: int) -> Trip:
    return _trip(address, datagram_bytes, segmented=True)


def _trip(address: str, datagram_bytes: int, *, segmented: bool) -> Trip:
    num_sent = min(_MOST_DATAGRAMS, _MOST_BYTES // datagram_bytes)
    num_received = num_reads = 0
    try:
        family, kind, protocol, _, local = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as receiver, socket.socket(family, kind, protocol) as sender:
            receiver.bind(local)
            sender.bind(local)
            if segmented:
                receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
            _send(sender, receiver.getsockname(), num_sent, datagram_bytes, segmented)
            give_up = time.monotonic() + LIMIT_S
            while num_received < num_sent and (left := give_up - time.monotonic()) > 0:
                receiver.settimeout(left)
                num_received += _receive(receiver, sender.getsockname(), datagram_bytes)
                num_reads += 1
    except TimeoutError:
        pass  # what is missing is missing: the counts say so
    except OSError as error:
        return Trip(num_sent, num_received, num_reads, error.strerror or str(error))
    return Trip(num_sent, num_received, num_reads)


def _send(sender: socket.socket, to: Any, num: int, datagram_bytes: int, segmented: bool) -> None:
    datagram = bytes(datagram_bytes)
    if segmented:
        segment = (socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", datagram_bytes))
        sender.sendmsg([datagram * num], [segment], 0, to)
        return
    for _ in range(num):
        sender.sendto(datagram, to)


def _receive(receiver: socket.socket, expected_sender: Any, datagram_bytes: int) -> int:
    """The number of whole datagrams in one read; a stranger's count for nothing."""
    content, ancillary, _, origin = receiver.recvmsg(1 << 16, socket.CMSG_SPACE(struct.calcsize("=i")))
    if origin != expected_sender:
        return 0
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_UDP, _UDP_GRO) and struct.unpack("=i", data)[0] != datagram_bytes:
            return 0
    return len(content) // datagram_bytes
