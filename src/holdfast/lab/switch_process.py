"""The switch's own process: `python -m holdfast.lab.switch_process`. Holds the TUN devices and moves the packets.

Requests and answers are JSON lines on an inherited socket. When the socket ends without a word the lab is dead: then
this process, the last that knows, ends everything the lab started, and itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from holdfast import _native
from holdfast.lab import cleanup
from holdfast.lab.awake import processors_awake
from holdfast.lab.conditions import native_conditions
from holdfast.lab.marks import LAB, LabId
from holdfast.lab.priority import WORKER_PRIORITY, raise_priority

# An orphan that cannot end in order ends anyhow.
LAST_RESORT_S = 4

_REPORT = (
    "duration_s", "losses", "lateness_p50_us", "lateness_p99_us", "lateness_p999_us", "lateness_max_us", "realtime",
    "lateness_counts", "cpu_s", "num_wakeups", "num_reads", "num_writes",
)  # fmt: skip
_PORT_REPORT = (
    "packets_from_host", "bytes_from_host", "packets_to_host", "bytes_to_host", "queue_peak_bytes",
    "uplink_peak_bytes", "cross_traffic_bytes", "losses",
)  # fmt: skip


def report_document(report: _native.SwitchReport) -> dict[str, Any]:
    ports = [{name: getattr(port, name) for name in _PORT_REPORT} for port in report.ports]
    return {**{name: getattr(report, name) for name in _REPORT}, "ports": ports}


class Service:
    """Answers the lab's requests until it says `stop` or falls silent for good."""

    def __init__(self, switch: _native.Switch) -> None:
        self._verbs: dict[str, Callable[..., Any]] = {
            "configure": lambda conditions: switch.configure(native_conditions(conditions)),
            "draw_anew": switch.draw_anew,
            "report": lambda: report_document(switch.report()),
            "reset": switch.reset,
            "bound": switch.capacity_bound_s,
            "frozen": switch.frozen_s,
        }

    def serve(self, requests: IO[str], answers: IO[str]) -> bool:
        """Whether the lab said goodbye."""
        print('{"result": "ready"}', file=answers, flush=True)
        for line in requests:
            request = json.loads(line)
            verb, arguments = request["verb"], request["arguments"]
            answer: dict[str, Any] = {}
            if verb != "stop":
                try:
                    answer = {"result": self._verbs[verb](**arguments)}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
            if verb == "stop":
                return True
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--port", action="append", default=[], help="DESCRIPTOR=ADDRESS, one per host")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ports = [port.split("=") for port in options.port]
    control = socket.socket(fileno=options.control)
    switch = _native.Switch(
        descriptors=[int(descriptor) for descriptor, _ in ports],
        addresses=[address for _, address in ports],
        seed=options.seed,
    )

    def run() -> None:
        try:
            switch.run()
        except BaseException:
            control.shutdown(socket.SHUT_RDWR)  # the lab hears of it at once
            raise

    thread = threading.Thread(target=run, name="holdfast-switch")
    thread.start()
    raise_priority(WORKER_PRIORITY + 1)  # a change of the network must not wait for ranks that fill all cores
    said_goodbye = False
    try:
        with (
            processors_awake(),
            control.makefile("r", encoding="utf-8") as requests,
            control.makefile("w", encoding="utf-8") as answers,
        ):
            said_goodbye = Service(switch).serve(requests, answers)
    except OSError:
        pass  # the lab ended in the middle of an answer
    finally:
        signal.alarm(LAST_RESORT_S)
        lab = LabId.parse(os.environ.get(LAB, ""))
        if not said_goodbye and lab is not None:
            cleanup.end_lab(lab)
        switch.stop()
        thread.join()
    sys.exit(0 if said_goodbye else 1)


if __name__ == "__main__":
    main()
