"""An OpenStack cloud: its inventory, the history of its servers, commands, and changes, through openstacksdk."""
