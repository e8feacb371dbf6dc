"""The parts of a round: its settings, its groups of others, its record. `sapo` plays it."""
