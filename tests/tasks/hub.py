"""A small Hugging Face Hub on this machine, with the parts that loading a data set needs.

    with hub({"org/sums": {"main": {"train.jsonl": b"..."}}}) as address: ...

Replies are those of huggingface.co, as far as `huggingface_hub` 2.4 and `datasets` 5.2 read them: a
file of a revision (`resolve`), a revision and its files (`revision`, `tree`), and a reason in
`X-Error-Code` for missing ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.support.servers import open_server

Repositories = Mapping[str, Mapping[str, Mapping[str, bytes]]]
"""Files by repository, revision and path."""


@contextlib.contextmanager
def hub(repositories: Repositories) -> Iterator[str]:
    """Serve until the block ends; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, headers = answer(repositories, self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  as BaseHTTPRequestHandler has it

        def log_message(self, *_args: object) -> None:
            pass

    with open_server(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def answer(repositories: Repositories, target: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers for the path of a request."""
    parts = [unquote(part) for part in urlsplit(target).path.strip("/").split("/")]
    parts = parts[parts[0] == "api" :]
    kind, owner, name, what, revision = [*parts, *[""] * 5][:5]
    rest = "/".join(parts[5:])
    commits = {named: _commit(named) for named in repositories.get(f"{owner}/{name}", {})}
    if kind != "datasets" or not commits:
        return _no("RepoNotFound")
    found = next((named for named, commit in commits.items() if revision in (named, commit)), None)
    if found is None:
        return _no("RevisionNotFound")
    files, commit = repositories[f"{owner}/{name}"][found], commits[found]
    if what == "revision":
        named_files = [{"rfilename": one} for one in files]
        return _json({"id": f"{owner}/{name}", "sha": commit, "siblings": named_files})
    if what == "tree" and not rest:
        return _json([_entry(one, body) for one, body in files.items()])
    if what == "resolve" and rest in files:
        etag = hashlib.sha1(files[rest]).hexdigest()
        return 200, files[rest], {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
    return _no("EntryNotFound", **{"X-Repo-Commit": commit})


def _commit(revision: str) -> str:
    return hashlib.sha1(revision.encode()).hexdigest()


def _entry(path: str, body: bytes) -> dict[str, object]:
    oid = hashlib.sha1(body).hexdigest()
    return {"type": "file", "path": path, "size": len(body), "oid": oid}


def _json(value: object) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(value).encode(), {"Content-Type": "application/json"}


def _no(why: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    return 404, b"{}", {"X-Error-Code": why, **headers}
