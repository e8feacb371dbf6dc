"""What every host and every gossip must do, whether of sockets or of memory."""
