"""A cloud on one machine: hosts, a network between them that misbehaves as told, and races on it.

In: a profile, a command, faults. Out: rows of figures, endings, reports. Its tasks may import everything, torch included;
what builds the cloud imports neither torch nor `bridge`.

    namespaces, host, tcp_settings   one host: a network namespace, its card, its TCP
    conditions, profile, schedule    what the network is like, as data, and how it changes
    switch_process, switch_client    the native switch between the hosts, in a process of its own
    awake, priority, stolen          a machine that keeps time while it is measured, or says that it did not
    cloud                            all of that, up and down
    worker, launch, events           a command on every host, and what it announces
    fault, injector, run             what breaks, when, and the job it happens to
    marks, cleanup, enter, own_root  so that nothing is left behind, and little must be allowed
    peer, lateness                   who is compared; how late the switch was
    bench/, race/                    how long an all-reduce takes; how long training takes to a goal
    calibrate/                       whether a profile keeps what it promises
"""
