"""The parts of a round: settings, external groups, record. `sapo` runs it."""
