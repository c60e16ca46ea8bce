"""A small Hugging Face Hub on 127.0.0.1: enough of its HTTP interface to create, fill and read
repositories.

The real client library talks to it, so a push and a load are tested whole without the network. It
keeps everything in memory, takes any token, has every file sent with its commit, and answers 501 to
what it does not know.
"""

import base64
import hashlib
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_REPO = r"(?P<kind>models|datasets|spaces)/(?P<repo>[^/]+/[^/]+)"  # in the addresses of the API
_REVISION = r"(?P<revision>refs/pr/\d+|[^/]+)"
# in those of files, where models have no prefix
_PAGE = r"/((?P<kind>datasets|spaces)/)?(?P<repo>[^/]+/[^/]+?)"
_ROUTES = [
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate_card"),
    ("POST", rf"/api/{_REPO}/preupload/(?P<revision>[^/]+)", "choose_upload_modes"),
    ("POST", rf"/api/{_REPO}/commit/(?P<revision>[^/]+)", "commit"),
    ("GET", rf"/api/{_REPO}(/revision/{_REVISION})?", "describe"),
    ("GET", rf"/api/{_REPO}/tree/{_REVISION}(/(?P<path>.+))?", "list_tree"),
    ("GET", rf"{_PAGE}/resolve/{_REVISION}/(?P<path>.+)", "send_file"),
]


class Missing(Exception):
    """What is not there, by the code that the client knows it by."""


class Repository:
    """The files of every commit, the first of which is empty, and the last commit of every
    branch."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.add_commit({})

    def add_commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        ids = {path: _object_id(content) for path, content in files.items()}
        sha = hashlib.sha1(f"{list(self.commits)} {ids}".encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def find(self, revision: str | None) -> tuple[str, dict[str, bytes]]:
        """Hash and files of a revision: a commit hash, `main`, or a pull request."""
        sha = self.branches.get(revision or "main", revision or "")
        if sha not in self.commits:
            raise Missing("RevisionNotFound")
        return sha, self.commits[sha]


def _object_id(content):
    """What the Hub gives as a file's id: git's SHA-1."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer:
    """The server, as a context manager; `endpoint` is its address."""

    def __init__(self) -> None:
        self._repositories: dict[tuple[str, str], Repository] = {}
        self._lock = threading.Lock()
        self.authorizations: set[str] = set()  # headers of all requests
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self, home: str | Path) -> dict[str, str]:
        """Variables, which the client reads at import, for a process with this Hub and `home` for
        its cache."""
        other = "HF_|HUGGING|TRANSFORMERS_|SENTENCE_TRANSFORMERS_"
        kept = {key: value for key, value in os.environ.items() if not re.match(other, key)}
        return kept | {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_TOKEN": "hf_of_a_test",
            "no_proxy": "127.0.0.1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            # the client would ask for another storage protocol, over and over
            "HF_HUB_DISABLE_XET": "1",
        }

    def put(self, repo_id: str, files: dict[str, bytes], branch: str = "main") -> None:
        """Makes the files those of a branch of a model repository, which is created where it does
        not exist."""
        self._repositories.setdefault(("model", repo_id), Repository()).add_commit(files, branch)

    def files(self, repo_type: str, repo_id: str) -> dict[str, bytes]:
        """Content of every file on the main branch. `repo_type` is ``"model"``, ``"dataset"`` or
        ``"space"``."""
        return dict(self._repositories[repo_type, repo_id].find("main")[1])

    def repositories(self) -> list[tuple[str, str]]:
        """Type and name of every repository."""
        return list(self._repositories)

    def commits(self, repo_type: str, repo_id: str) -> list[str]:
        """Hashes of all commits, the first one being that of the empty repository."""
        return list(self._repositories[repo_type, repo_id].commits)

    def answer(self, method: str, address: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to one request; HEAD is answered like GET."""
        path = unquote(urlsplit(address).path)
        for verb, pattern, name in _ROUTES:
            if verb == method.replace("HEAD", "GET") and (match := re.fullmatch(pattern, path)):
                with self._lock:
                    try:
                        answer = getattr(self, f"_{name}")(body=body, **match.groupdict())
                    except Missing as missing:
                        code, *more = missing.args
                        return 404, {"X-Error-Code": code, **dict(*more)}, b""
                return (
                    answer if isinstance(answer, tuple) else (200, {}, json.dumps(answer).encode())
                )
        return 501, {}, b"This test server does not know the address."

    def _repository(self, kind, repo):
        key = ((kind or "models").removesuffix("s"), repo)
        if key not in self._repositories:
            raise Missing("RepoNotFound")
        return self._repositories[key]

    def _create(self, body):
        fields = json.loads(body)
        key = (fields.get("type", "model"), f"{fields['organization']}/{fields['name']}")
        url = {"url": f"{self.endpoint}/{'' if key[0] == 'model' else key[0] + 's/'}{key[1]}"}
        if key in self._repositories:
            return 409, {}, json.dumps(url).encode()
        self._repositories[key] = Repository()
        return url

    def _validate_card(self, body):
        return {"errors": [], "warnings": []}

    def _choose_upload_modes(self, body, kind, repo, revision):
        _, files = self._repository(kind, repo).find(revision)
        answers = []
        for path in (file["path"] for file in json.loads(body)["files"]):
            oid = _object_id(files[path]) if path in files else None
            answers.append(
                {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}
            )
        return {"files": answers}

    def _commit(self, body, kind, repo, revision):
        repository = self._repository(kind, repo)
        files = dict(repository.find(revision)[1])
        for key, value in (
            (line["key"], line["value"]) for line in map(json.loads, body.splitlines())
        ):
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
        sha = repository.add_commit(files)
        return {"commitUrl": f"{self.endpoint}/{repo}/commit/{sha}", "commitOid": sha}

    def _describe(self, body, kind, repo, revision):
        sha, files = self._repository(kind, repo).find(revision)
        return {
            "id": repo,
            "sha": sha,
            "tags": [],
            "siblings": [{"rfilename": path} for path in files],
        }

    def _list_tree(self, body, kind, repo, revision, path):
        _, files = self._repository(kind, repo).find(revision)
        if path is not None:  # no repository here has folders
            raise Missing("EntryNotFound")
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _object_id(content)}
            for name, content in files.items()
        ]

    def _send_file(self, body, kind, repo, revision, path):
        sha, files = self._repository(kind, repo).find(revision)
        if path not in files:
            raise Missing("EntryNotFound", {"X-Repo-Commit": sha})
        return 200, {"ETag": f'"{_object_id(files[path])}"', "X-Repo-Commit": sha}, files[path]


class _Handler(BaseHTTPRequestHandler):
    """Carries requests to the `hub` and its answers back."""

    hub: HubServer
    protocol_version = "HTTP/1.1"

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.authorizations.add(self.headers.get("Authorization", ""))
        status, headers, content = self.hub.answer(self.command, self.path, body)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if span and status == 200:
            status = 206
            content = content[int(span[1]) : int(span[2]) + 1]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the output of a test run is for failures."""
