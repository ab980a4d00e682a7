"""Makes the databases of one service. Usage: databases.py keystone|placement|nova CONF [Keystone's URL].

In one process per service: each of the management commands takes seconds to import what it needs.
"""

import getpass
import sys


def keystone(conf, url):
    """Tables, keys, and the administrator (password in OS_BOOTSTRAP_PASSWORD)."""
    from keystone.cmd import cli
    from keystone.conf import CONF

    me = getpass.getuser()
    owner = ("--keystone-user", me, "--keystone-group", me)
    urls = [word for kind in ("admin", "internal", "public") for word in (f"--bootstrap-{kind}-url", url)]
    for words in (
        ("db_sync",),
        ("fernet_setup", *owner),
        ("credential_setup", *owner),
        ("bootstrap", "--bootstrap-region-id", "RegionOne", *urls),
    ):
        CONF.clear()  # it takes options of the command line only before it has parsed one
        cli.main(["keystone-manage", "--config-file", conf, *words])


def placement(conf):
    """Tables."""
    from placement.cmd import manage

    sys.argv = ["placement-manage", "--config-file", conf, "db", "sync"]
    manage.main()


def nova(conf):
    """Tables of the API and of both cells."""
    from nova.cmd import manage

    sys.argv = ["nova-manage", "--config-file", conf, "api_db", "sync"]
    for step in (
        manage.main,  # reads the configuration too, which it can do but once
        manage.CellV2Commands().map_cell0,
        lambda: manage.CellV2Commands().create_cell(name="cell1"),
        manage.DbCommands().sync,
    ):
        if code := step():
            sys.exit(code)


{"keystone": keystone, "placement": placement, "nova": nova}[sys.argv[1]](*sys.argv[2:])
