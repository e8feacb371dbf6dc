"""What every other package may stand on: whole files, and containers with a bound."""
