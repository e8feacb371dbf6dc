"""Tests of code tasks: forms, values, processes, and hostile completions."""
