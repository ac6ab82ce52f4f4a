"""A race: the same model, data and seed, trained by several peers on the same network until one metric is reached."""
