"""Tests of the proof that a task rewards right answers."""
