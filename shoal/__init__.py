"""The face of the program: `shoal`, its commands, and the simulated network that some run on."""
