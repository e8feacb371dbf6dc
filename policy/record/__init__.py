"""What a run leaves behind: progress, metrics, and what was set aside."""
