"""The contract of every host and every gossip, with sockets or in memory."""
