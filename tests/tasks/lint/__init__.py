"""Tests of the proof that a task pays for right answers."""
