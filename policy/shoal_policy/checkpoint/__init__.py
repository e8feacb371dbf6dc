"""The trainer's state on disk, and models exported from it."""
