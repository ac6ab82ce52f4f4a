"""One end of a UDP stream that is as fast as its link: `python udp_stream.py send|receive ADDRESS PORT SECONDS`.

Batches of datagrams go down, and come up, in one system call (segmentation offload), as Holdfast sends them. iperf3
makes calls for every single datagram: at 46,000 a second, little more than half of 1 Gbit/s, its senders took 0.55 of
two cores, its receivers 0.70 and the switch the rest.

The receiver begins to count half a second after the first datagram, and prints what it counted in that many seconds as
JSON. Run by path, without the package, so that it starts in milliseconds: standard library only.
"""

import contextlib
import json
import socket
import sys
import time

PAYLOAD_BYTES = 1472
BATCH = 11
"""Datagrams: 16 kB, the largest that a host's card takes."""
SETTLING_S = 0.5
START_LIMIT_S = 20.0
_UDP_SEGMENT, _UDP_GRO = 103, 104
_RECEIVE_BUFFER_BYTES = 1 << 20
_SILENCE_LIMIT_S = 5.0


def send(address: str, port: int, seconds: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.connect((address, port))
        stream.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD_BYTES)
        batch = bytes(PAYLOAD_BYTES * BATCH)
        end = time.monotonic() + seconds
        with contextlib.suppress(ConnectionRefusedError):  # the receiver has counted enough and is gone
            while time.monotonic() < end:
                stream.send(batch)  # waits while the card is busy


def receive(address: str, port: int, seconds: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        stream.bind((address, port))
        print("ready", flush=True)
        buffer = bytearray(1 << 16)
        stream.settimeout(START_LIMIT_S)
        stream.recv_into(buffer)
        stream.settimeout(_SILENCE_LIMIT_S)
        begin = time.monotonic() + SETTLING_S
        payload_bytes = 0
        now = 0.0
        while now < begin + seconds:
            got = stream.recv_into(buffer)
            now = time.monotonic()
            payload_bytes += got if now >= begin else 0
    print(json.dumps({"payload_bytes": payload_bytes, "seconds": now - begin}), flush=True)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
