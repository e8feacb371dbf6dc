"""Many nodes over a simulated network, in virtual time."""
