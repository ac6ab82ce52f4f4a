"""A cloud on one machine: hosts, the switch between them, and what their network is like at the moment.

    with Cloud(4, "shared-3", seed=7) as cloud:
        workers = Workers(cloud, ["python", "train.py"])
        endings = workers.wait()

Everything is up when `Cloud` returns and gone when it closes. If this process is killed instead, the switch notices and
ends what is left; namespaces and devices go with the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from holdfast.errors import ConfigError
from holdfast.lab import cleanup
from holdfast.lab.conditions import Conditions
from holdfast.lab.host import Host
from holdfast.lab.marks import LabId
from holdfast.lab.profile import MAX_HOSTS, Profile, default_bits_per_s, load_profile
from holdfast.lab.switch_client import SwitchClient

Change = Callable[[Conditions], Conditions]


class Cloud:
    """So many hosts in one network. `seed` decides everything that is random, also which host a profile singles out."""

    def __init__(
        self, num_hosts: int, profile: Profile | str = "clean", *, seed: int = 0, bits_per_s: float | None = None
    ) -> None:
        if not 1 <= num_hosts <= MAX_HOSTS:
            raise ConfigError(f"a lab of {num_hosts} hosts", what_to_try=f"1 to {MAX_HOSTS} hosts")
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        self.seed = seed
        self.bits_per_s = default_bits_per_s(num_hosts) if bits_per_s is None else bits_per_s
        self.lab = LabId.of_this_process()
        self.hosts: list[Host] = []
        self._base = self.profile.conditions(num_hosts, bits_per_s=self.bits_per_s, seed=seed)
        self._changes: dict[str, Change] = {}
        self._stack = ExitStack()
        try:
            # Last, so that also what a signal tore from its owner's hands is ended.
            self._stack.callback(cleanup.end_lab, self.lab)
            for index, port in enumerate(self._base.ports):
                self.hosts.append(Host(index, port.uplink_bits_per_s))
                self._stack.callback(self.hosts[-1].close)
            self.switch = SwitchClient(self.hosts, self.lab, seed)
            self._stack.callback(self.switch.close)
            self.switch.configure(self._base)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Cloud:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends workers, switch and hosts. Safe to call twice."""
        self._stack.close()

    @property
    def master_address(self) -> str:
        return self.hosts[0].address

    @property
    def conditions(self) -> Conditions:
        """What the network is like now: the profile, or what took its place, with all changes."""
        conditions = self._base
        for change in self._changes.values():
            conditions = change(conditions)
        return conditions

    def set_profile(self, profile: Profile) -> None:
        """Another profile from now on; changes stay."""
        self.profile = profile
        self.set_conditions(profile.conditions(len(self.hosts), bits_per_s=self.bits_per_s, seed=self.seed))

    def set_conditions(self, conditions: Conditions) -> None:
        """Another network from now on; changes stay."""
        self._base = conditions
        self._apply()

    def change(self, name: str, change: Change) -> None:
        """Lays a change over the network until `undo`, whatever becomes of the network beneath."""
        self._changes[name] = change
        self._apply()

    def undo(self, name: str) -> None:
        if self._changes.pop(name, None) is not None:
            self._apply()

    def set_tcp(self, *, congestion_control: str | None = None, rto_min_us: int | None = None) -> None:
        """On every host, for connections opened from now on."""
        for host in self.hosts:
            host.set_tcp(congestion_control=congestion_control, rto_min_us=rto_min_us)

    def _apply(self) -> None:
        conditions = self.conditions
        for host, port in zip(self.hosts, conditions.ports, strict=True):
            host.set_rate(port.uplink_bits_per_s)
        self.switch.configure(conditions)
