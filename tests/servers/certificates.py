"""Certificates of servers of the tests' own."""

from __future__ import annotations

import hashlib
import ssl
import subprocess
from pathlib import Path


def certified(folder: Path) -> tuple[ssl.SSLContext, Path, str]:
    """A certificate that only its own key has signed: for a server, as PEM, and its fingerprint."""
    key, pem = folder / "key.pem", folder / "server.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    der = ssl.PEM_cert_to_DER_cert(pem.read_text(encoding="ascii"))
    return context, pem, hashlib.sha256(der).hexdigest()
