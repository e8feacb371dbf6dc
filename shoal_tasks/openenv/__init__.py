"""OpenEnv's wire, spoken by a small client: a server of the operator's own as a task family."""
