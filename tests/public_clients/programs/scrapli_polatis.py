"""scrapli_netconf's NetconfDriver, unchanged, on a Polatis: make a circuit, read it, delete it."""

import json
import sys

from scrapli_netconf.driver import NetconfDriver

host, port, user, password = sys.argv[1:5]
NAMESPACE = "http://www.polatis.com/yang/optical-switch"
CIRCUITS = f'<cross-connects xmlns="{NAMESPACE}"/>'


def config(inner: str) -> str:
    return f'<config><cross-connects xmlns="{NAMESPACE}">{inner}</cross-connects></config>'


switch = NetconfDriver(
    host=host,
    port=int(port),
    auth_username=user,
    auth_password=password,
    auth_strict_key=False,
    transport="paramiko",
)
switch.open()
made = switch.edit_config(
    config=config("<pair><ingress>1</ingress><egress>12</egress></pair>"), target="running"
)
listed = switch.get_config(source="running", filter_=CIRCUITS, filter_type="subtree")
removed = switch.edit_config(
    config=config('<pair operation="delete"><ingress>1</ingress></pair>'), target="running"
)
after = switch.get_config(source="running", filter_=CIRCUITS, filter_type="subtree")
switch.close()
print(
    json.dumps(
        {
            "failed": [made.failed, removed.failed],
            "listed": listed.result,
            "after": after.result,
            "capabilities": list(switch.server_capabilities),
        }
    )
)
