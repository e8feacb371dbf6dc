"""Many nodes over a simulated network, under virtual time."""
