"""What a run tells and leaves behind: progress, metrics, status, and what was set aside."""
