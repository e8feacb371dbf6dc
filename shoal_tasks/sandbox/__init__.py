"""The task worker's sandbox: layers, system calls and audited events."""
