"""The task worker's process, and its clients. Only the process imports reasoning_gym."""
