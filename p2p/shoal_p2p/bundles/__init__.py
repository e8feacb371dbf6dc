"""Task files between peers: who shares a family's files sends them, who joins fetches them."""
