"""The proof that a task pays for right answers, whole or the quick part that starts run."""
