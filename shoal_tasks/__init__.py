"""Task families, regeneration from coordinates, safe scoring and the sandboxed task worker.

Only `worker.generate` imports reasoning_gym, and of a running swarm only the worker process imports
that: the library costs about 110 MiB and some of its scorers evaluate the text they are given.
"""
