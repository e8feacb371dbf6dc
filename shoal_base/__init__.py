"""What every other package may stand on: whole files, bounds, text that can be shown."""
