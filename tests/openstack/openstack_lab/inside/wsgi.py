"""The WSGI application of one service, for gunicorn; the service is named by LAB_SERVICE."""

import importlib
import os
import sys

MODULES = {
    "keystone": "keystone.wsgi.api",
    "placement": "placement.wsgi.api",
    "nova": "nova.wsgi.osapi_compute",
    "aetos": "aetos.wsgi.api",
    "gnocchi": "gnocchi.rest.wsgi",
    "watcher": "watcher.wsgi.api",
}

service = os.environ["LAB_SERVICE"]
# They read the command line, which is gunicorn's; LAB_CONFIG is for the one that looks for its file nowhere else.
sys.argv = [f"{service}-api", *(("--config-file", os.environ["LAB_CONFIG"]) if "LAB_CONFIG" in os.environ else ())]
application = importlib.import_module(MODULES[service]).application
