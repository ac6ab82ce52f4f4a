"""One host of the lab: a network namespace whose only network card is a TUN device, with TBF as the card's rate.

The card's other side is `descriptor`: whoever reads and writes it (the switch) is the cable.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import LabUnavailable
from holdfast.lab import tcp_settings
from holdfast.lab.namespaces import NetworkNamespace
from holdfast.lab.tcp_settings import TcpSettings

INTERFACE = "eth0"
MTU_BYTES = 1500
# Without TBF a TUN device takes packets as fast as they come and drops the rest: no sender would feel a full card.
# 20 kB is one super-packet and a little: more would leave in bursts no card makes, less would cut super-packets apart.
TBF_BURST_BYTES = 20_000
GSO_MAX_BYTES = 16_384
# Between card and switch. Of the usual 500 a stall of the switch would lose some that nobody counts; TBF is the cap.
CARD_RING_PACKETS = 10_000
# Linux's own default of 1,000 packets per card.
CARD_QUEUE_BYTES = 1000 * MTU_BYTES

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
# The kernel takes the two USO flags together or not at all.
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_USO4, _TUN_F_USO6 = 0x01, 0x02, 0x20, 0x40
_ROOT_QDISC, _TBF_HANDLE = 0xFFFFFFFF, 0x10000

Result = TypeVar("Result")


def address_of(index: int) -> str:
    return f"10.77.0.{index + 1}"


class Host:
    """Host `index`, up and with its address. `close` lets go of it; it is gone once no process holds it."""

    def __init__(self, index: int, bits_per_s: float) -> None:
        self.index = index
        self.address = address_of(index)
        self.bits_per_s = bits_per_s
        self.namespace = NetworkNamespace()
        self.descriptor = -1
        try:
            self.descriptor = self.namespace.run(_open_tun)
            self.namespace.run(self._bring_up)
        except BaseException:
            self.close()
            raise

    def run(self, function: Callable[[], Result]) -> Result:
        """Calls the function inside the host, on a thread of its own."""
        return self.namespace.run(function)

    def tcp(self) -> TcpSettings:
        """What new connections of this host start with."""
        return self.run(tcp_settings.read)

    def set_tcp(self, *, congestion_control: str | None = None, rto_min_us: int | None = None) -> None:
        """For connections opened from now on; open ones keep what they have."""
        with tcp_settings.allowed(congestion_control):
            self.run(lambda: tcp_settings.write(congestion_control=congestion_control, rto_min_us=rto_min_us))

    def set_rate(self, bits_per_s: float) -> None:
        """Makes the card faster or slower while it is in use."""
        if bits_per_s != self.bits_per_s:
            self.bits_per_s = bits_per_s
            self.run(lambda: self._shape("change"))

    def close(self) -> None:
        """Lets go of the device and the namespace."""
        self.close_descriptor()
        self.namespace.close()

    def close_descriptor(self) -> None:
        """Leaves the device to whoever inherited it: the switch, whose end must end the device too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _bring_up(self) -> None:
        # IPv6 would fill the wire with neighbour discovery that no profile mentions.
        ipv6 = Path(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6")
        if ipv6.exists():
            ipv6.write_text("1")
        with _routing() as routing:
            (loopback,) = routing.link_lookup(ifname="lo")
            (card,) = routing.link_lookup(ifname=INTERFACE)
            routing.link("set", index=loopback, state="up")
            routing.addr("add", index=card, address=self.address, prefixlen=24)
            routing.link("set", index=card, state="up", mtu=MTU_BYTES, gso_max_size=GSO_MAX_BYTES,
                         txqlen=CARD_RING_PACKETS)  # fmt: skip
        self._shape("add")

    def _shape(self, verb: str) -> None:
        with _routing() as routing:
            (card,) = routing.link_lookup(ifname=INTERFACE)
            routing.tc(
                verb, "tbf", index=card, handle=_TBF_HANDLE, parent=_ROOT_QDISC,
                rate=int(self.bits_per_s / 8), burst=TBF_BURST_BYTES, limit=CARD_QUEUE_BYTES,
            )  # fmt: skip


def _routing() -> Any:
    try:
        from pyroute2 import IPRoute
    except ImportError as error:
        raise LabUnavailable("pyroute2 is not installed", what_to_try="`pip install holdfast[lab]`") from error
    return IPRoute()


def _open_tun() -> int:
    try:
        descriptor = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        missing = "this kernel has no TUN devices" if error.errno == errno.ENOENT else "this user may not open it"
        raise LabUnavailable(
            f"cannot open {TUN_DEVICE}: {missing}", what_to_try="run as root; plain loopback does without it"
        ) from error
    try:
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), flags))
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_USO4 | _TUN_F_USO6)
    except OSError as error:
        os.close(descriptor)
        raise LabUnavailable(
            f"{TUN_DEVICE} refuses a device with TCP and UDP offload: {error.strerror}",
            what_to_try="a kernel of 6.2 or later, as root",
        ) from error
    return descriptor
