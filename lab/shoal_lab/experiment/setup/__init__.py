"""Models and tasks that an experiment makes before it is run."""
