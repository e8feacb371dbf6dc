"""The command line: `shoal node`, `shoal swarm`, `shoal debug`, and the way to the others."""
