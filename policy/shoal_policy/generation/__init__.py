"""Questions become completions: by this process, or by a server."""
