"""Who may be believed: points, bans, and a publisher's chance of being drawn."""
