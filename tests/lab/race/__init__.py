"""Races: tasks, the engine, and what is made of their results."""
