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
}

service = os.environ["LAB_SERVICE"]
sys.argv = [f"{service}-api"]  # they read the command line, which is gunicorn's
application = importlib.import_module(MODULES[service]).application
