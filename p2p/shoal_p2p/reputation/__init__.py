"""Trust in peers: points, bans, and a publisher's chance of being drawn."""
