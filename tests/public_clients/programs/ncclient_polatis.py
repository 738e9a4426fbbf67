"""ncclient's manager, unchanged, with the host key checked: make a circuit, read it, delete it."""

import json
import sys

from ncclient import manager

host, port, user, password = sys.argv[1:5]
NAMESPACE = "http://www.polatis.com/yang/optical-switch"
NETCONF = "urn:ietf:params:xml:ns:netconf:base:1.0"
CIRCUITS = ("subtree", f'<cross-connects xmlns="{NAMESPACE}"/>')


def config(inner: str) -> str:
    circuits = f'<cross-connects xmlns="{NAMESPACE}">{inner}</cross-connects>'
    return f'<nc:config xmlns:nc="{NETCONF}">{circuits}</nc:config>'


def circuits(session: manager.Manager) -> list[list[str]]:
    found = session.get_config("running", CIRCUITS).data.iterfind(f".//{{{NAMESPACE}}}pair")
    return [[leaf.text for leaf in pair] for pair in found]


with manager.connect(
    host=host,
    port=int(port),
    username=user,
    password=password,
    hostkey_verify=False,
    look_for_keys=False,
    allow_agent=False,
) as session:
    session.edit_config(
        target="running",
        config=config("<pair><ingress>1</ingress><egress>12</egress></pair>"),
    )
    listed = circuits(session)
    session.edit_config(
        target="running",
        config=config('<pair nc:operation="delete"><ingress>1</ingress></pair>'),
    )
    print(json.dumps({"listed": listed, "after": circuits(session)}))
