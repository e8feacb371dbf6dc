"""`shoal debug`: inspects a running node."""
