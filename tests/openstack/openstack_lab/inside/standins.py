"""What Nova asks of Neutron and Glance for servers without networks: empty lists, and one image.

Usage: standins.py PORT.
"""

import http.server
import json
import re
import sys

IMAGE_ID = "11111111-1111-4111-8111-111111111111"
TIME = "2026-01-01T00:00:00Z"
IMAGE = {
    "id": IMAGE_ID, "name": "lab", "status": "active", "visibility": "public", "container_format": "bare",
    "disk_format": "raw", "size": 1024, "virtual_size": 1024, "min_disk": 0, "min_ram": 0, "protected": False,
    "created_at": TIME, "updated_at": TIME, "tags": [], "checksum": None, "owner": None,
    "self": f"/v2/images/{IMAGE_ID}", "file": f"/v2/images/{IMAGE_ID}/file", "schema": "/v2/schemas/image",
}  # fmt: skip
SCHEMA = {"name": "image", "properties": {name: {} for name in IMAGE}, "links": []}


def answer(path, host):
    """Status and document for one GET."""
    if path in ("/network", "/network/"):
        link = {"rel": "self", "href": f"http://{host}/network/v2.0/"}
        return 200, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": [link]}]}
    if path in ("/image", "/image/", "/image/versions"):
        link = {"rel": "self", "href": f"http://{host}/image/v2/"}
        return 200, {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [link]}]}
    if path == "/image/v2/schemas/image":
        return 200, SCHEMA
    if path == f"/image/v2/images/{IMAGE_ID}":
        return 200, IMAGE
    if path.startswith("/network/v2.0/quotas"):
        return 200, {"quota": {}}
    if listed := re.match(r"/network/v2\.0/([a-z0-9_-]+)(?:\.json)?\Z", path):
        return 200, {listed[1].replace("-", "_"): []}
    return 404, {"NeutronError": {"type": "NotFound", "message": path, "detail": ""}}


class StandIns(http.server.BaseHTTPRequestHandler):
    """GET as above; nothing can be made or changed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._send(*answer(self.path.split("?")[0], self.headers.get("Host")))

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._send(404, {"NeutronError": {"type": "NotFound", "message": self.path, "detail": ""}})

    do_PUT = do_DELETE = do_POST  # noqa: N815 - the names that http.server calls

    def _send(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), StandIns).serve_forever()
