"""Real ranks that are killed, stopped or kept busy at named moments. See README.md."""
