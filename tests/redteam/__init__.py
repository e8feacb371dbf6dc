"""Random hostile schedules from a grammar of all messages, against whole nodes in virtual time."""
