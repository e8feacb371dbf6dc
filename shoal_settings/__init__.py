"""Settings: one schema, one loader, one place that knows where each value came from."""
