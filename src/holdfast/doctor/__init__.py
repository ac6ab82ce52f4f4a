"""Is this host fit for a job, and if not, what to type.

In: what is planned (settings, local ranks, peers). Out: findings. Probing and judging are apart: `*_probe` ask the
machine and fill in `facts`; `*_checks` are pure functions from facts to findings, so that tests can feed them the facts
of other machines. Nothing is sent to another host. May import `link`, never `bridge`: torch is asked in a process of
its own, which may crash without harm.
"""
