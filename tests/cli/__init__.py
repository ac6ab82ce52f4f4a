"""The `holdfast` command. A package, so that `test_config` here and `test_config` above can both exist."""
