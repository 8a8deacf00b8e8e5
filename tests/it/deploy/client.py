"""Uses a stack behind TLS as a client: `client.py URL AUTHORITY TOKEN`. AUTHORITY is the file of the authority's certificate.

Puts a file and gets it back by presigned URLs, which name the front and are signed for it; and looks at what the front
must not show.
"""

import hashlib
import json
import ssl
import sys
import urllib.error
import urllib.request
from typing import Any

url, authority, token = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
content = b"through the front and back" * 1000


def ask(method: str, target: str, body: bytes | None = None, headers: Any = None) -> tuple[int, bytes]:
    request = urllib.request.Request(target, data=body, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def api(method: str, path: str, body: Any = None) -> Any:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    status, answer = ask(method, url + path, None if body is None else json.dumps(body).encode(), headers)
    assert status < 300, f"{method} {path}: {status} {answer!r}"
    return json.loads(answer)


sha256 = hashlib.sha256(content).hexdigest()
upload = api("POST", "/v1/files", {"name": "a.bin", "size_bytes": len(content), "sha256": sha256})
assert upload["upload_url"].startswith(url + "/stokehold/"), upload["upload_url"]
status, answer = ask("PUT", upload["upload_url"], content, upload["headers"])
assert status == 200, f"PUT: {status} {answer!r}"
status, answer = ask("GET", api("GET", f"/v1/files/{upload['id']}")["url"])
assert (status, answer) == (200, content), f"GET: {status}"

assert ask("GET", url + "/readyz")[0] == 200
assert ask("GET", url + "/metrics")[0] == 404, "metrics are not for the internet"
assert ask("GET", url + "/stokehold/")[0] == 403, "the bucket is not listed"
assert ask("GET", url + "/v1/endpoints")[0] == 401, "nothing without a token"
print("served")
