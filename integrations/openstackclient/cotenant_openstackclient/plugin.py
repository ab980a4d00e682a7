"""What openstackclient asks of a plug-in: the name of its client, how the client is made, and its global option."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib import exceptions, utils

from cotenant_client import Client

API_NAME = "cotenant"
API_VERSION_OPTION = "os_cotenant_api_version"
API_VERSIONS = {"1": "cotenant_client.Client"}
DEFAULT_API_VERSION = "1"
SERVICE_TYPE = "cotenant"


def make_client(instance: Any) -> Client:
    """A client of the endpoint that the cloud's configuration names, else the catalogue; CommandError without one.

    The token is that of COTENANT_TOKEN.
    """
    url = instance._cli_options.get_endpoint(SERVICE_TYPE) or instance.get_endpoint_for_service_type(
        SERVICE_TYPE, region_name=instance.region_name, interface=instance.interface
    )
    if not url:
        raise exceptions.CommandError(
            f"the catalogue has no service of type {SERVICE_TYPE}; make an endpoint, or name it in clouds.yaml as "
            f"{SERVICE_TYPE}_endpoint_override"
        )
    try:
        return Client(url)
    except ValueError as error:
        raise exceptions.CommandError(str(error)) from error


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The version of the API, as every plug-in has it."""
    parser.add_argument(
        "--os-cotenant-api-version",
        metavar="<cotenant-api-version>",
        default=utils.env("OS_COTENANT_API_VERSION", default=DEFAULT_API_VERSION),
        help=f"Cotenant API version, default={DEFAULT_API_VERSION} (Env: OS_COTENANT_API_VERSION)",
    )
    return parser
