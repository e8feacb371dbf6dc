"""Task families, regeneration from coordinates, safe scoring and the sandboxed task worker.

Only `generate`, `scoring` and `worker` import reasoning_gym, and only the worker process imports
those: the library costs about 110 MiB and some of its scorers evaluate the text they are given.
"""
