"""A small OpenEnv client: a server chosen by the operator as a task family."""
