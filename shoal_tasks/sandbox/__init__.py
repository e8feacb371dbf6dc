"""What the task worker may do: layers, system calls and audited events."""
