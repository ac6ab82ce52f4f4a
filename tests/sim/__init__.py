"""The native core on a virtual clock. A package, so that `test_replay` here and in `reroute` can both exist."""
