"""The protobuf of pubsub's RPC, as py-libp2p has it: a second one of that name cannot be loaded."""

from libp2p.pubsub.pb import rpc_pb2

__all__ = ["rpc_pb2"]
