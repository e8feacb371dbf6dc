"""The contract of the node's socket on one machine: messages, frames and the blocking client."""
