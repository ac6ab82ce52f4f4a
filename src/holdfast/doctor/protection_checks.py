"""Judges how datagrams would be protected: level and key."""

from __future__ import annotations

from holdfast.doctor.facts import Plan
from holdfast.doctor.finding import Finding, advice, ok, problem

_MAKE_KEY = "(umask 077 && openssl rand -hex 32 > job.key)  # then copy it to every host"


def check_protection(plan: Plan, key_error: str, spans_hosts: bool) -> Finding:
    level, key_file = plan.config.protection, plan.config.key_file
    if level == "insecure" and spans_hosts:
        return problem(
            "protection",
            "insecure, between hosts",
            "joining is refused: anyone on the network could forge gradients",
            "export HOLDFAST_PROTECTION=authenticated  # on all ranks",
        )
    if key_error:
        return problem(
            "protection",
            f"the key file {key_file} {key_error}",
            "this host's ranks cannot join",
            _MAKE_KEY,
            'export HOLDFAST_KEY_FILE="$PWD/job.key"',
        )
    if level == "insecure":
        return advice(
            "protection", level, "anyone on this host can forge gradients", "export HOLDFAST_PROTECTION=authenticated"
        )
    if key_file is None and spans_hosts:
        return advice(
            "protection",
            f"{level}; the job key travels through the torch Store",
            "that is plain TCP: who can read it on the way can read and forge gradients",
            _MAKE_KEY,
            'export HOLDFAST_KEY_FILE="$PWD/job.key"  # on every host',
        )
    return ok("protection", f"{level}, {'key drawn by rank 0' if key_file is None else f'key from {key_file}'}")
