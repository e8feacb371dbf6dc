"""The least a socket server could do: `python -m benchmarks.plain_server PATH`.

One connection, blocking: the first frame is a template; after that every frame is answered by
that template, encoded anew, or, if it holds no `sample`, by the frame itself. No Trio, no buffer,
no disk, no plain values: an upper bound for what the node's socket could reach in Python.
"""

from __future__ import annotations

import socket
import sys

from shoal_ipc.framing import FrameDecoder, encode_frame
from shoal_ipc.v1 import ipc_pb2 as pb

READ_BYTES = 1 << 18


def main(path: str) -> None:
    """Serve one connection to its end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)
    connection, _ = listener.accept()
    decoder = FrameDecoder()
    template: pb.IpcFrame | None = None
    while data := connection.recv(READ_BYTES):
        for raw in decoder.feed(data):
            frame = pb.IpcFrame.FromString(raw)
            if template is None:
                template = frame
            reply = template if frame.HasField("sample") else frame
            connection.sendall(encode_frame(reply.SerializeToString()))


if __name__ == "__main__":
    main(sys.argv[1])
