"""Completions for other programs, with OpenAI's chat and text API."""
