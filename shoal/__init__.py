"""The face of the program: `shoal` and its commands."""
