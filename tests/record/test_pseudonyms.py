"""Names of a lab are replaced by others of their length and kind, each by the same one."""

import ipaddress
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.record.pseudonyms import Names, Pseudonyms

KEY = bytes(range(32))
NAMES = Names(
    hosts={"xc-b17-2.lab.acme.com", "rack7-3.lab.acme.com", "ocs.acme.com"},
    serials={"MY49123456", "SIM-ocs", "21877", "7"},
    accounts={"mkowalski", "options"},
    versions={"6.7.3.9"},
    reserved=frozenset({"options", "bench"}),
)
IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)
MAC = st.binary(min_size=6, max_size=6).map(lambda six: six.hex(":"))
SERIAL = st.text(string.ascii_uppercase + string.digits, min_size=6, max_size=12)


def kind(character: str) -> str:
    if character.isdigit():
        return "digit"
    if not character.isalpha():
        return character
    return "upper" if character.isupper() else "lower"


def form(text: str) -> list[str]:
    return list(map(kind, text))


@pytest.fixture(scope="module")
def names() -> Pseudonyms:
    return Pseudonyms(KEY, NAMES)


@given(st.sets(IPV4, min_size=2, max_size=40))
def test_addresses_stay_addresses(given_addresses: set[str]) -> None:
    names = Pseudonyms(KEY, Names())
    found = {one: names.replaced(one) for one in given_addresses}
    for old, new in found.items():
        first = int(old.split(".")[0])
        untouched = first in (0, 127) or first >= 224
        assert (new == old) is untouched
        assert [len(octet) for octet in new.split(".")] == [len(octet) for octet in old.split(".")]
        ipaddress.IPv4Address(new)
    assert len(set(found.values())) == len(found)


@given(st.sets(st.one_of(IPV6, MAC), min_size=2, max_size=40))
def test_hexadecimal_addresses_stay_addresses(given_addresses: set[str]) -> None:
    names = Pseudonyms(KEY, Names())
    found = {one: names.replaced(one) for one in given_addresses}
    for old, new in found.items():
        assert len(new) == len(old)
        assert [at for at, one in enumerate(new) if one == ":"] == [
            at for at, one in enumerate(old) if one == ":"
        ]
        if old.count(":") == 5 and all(len(one) == 2 for one in old.split(":")):
            assert int(new[:2], 16) & 1 == int(old[:2], 16) & 1  # one address, or a group of them
        else:
            ipaddress.IPv6Address(new)
    assert len(set(found.values())) == len(found)


@given(st.sets(SERIAL, min_size=2, max_size=30))
def test_serial_numbers_stay_apart(serials: set[str]) -> None:
    names = Pseudonyms(KEY, Names(serials=set(serials)))
    found = {one: names.replaced(f"<{one}>")[1:-1] for one in serials}
    for old, new in found.items():
        if any(one in "123456789" or one.isalpha() for one in old.removeprefix("SIM")):
            assert new != old
        assert form(new) == form(old)
    assert len(set(found.values())) == len(found)


def test_the_same_key_replaces_alike(names: Pseudonyms) -> None:
    text = "MY49123456 at 10.31.7.9 of mkowalski"
    assert Pseudonyms(KEY, NAMES).replaced(text) == names.replaced(text)
    assert Pseudonyms(KEY[::-1], NAMES).replaced(text) != names.replaced(text)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            "tl1://xc-b17-2.lab.acme.com:3082",
            r"tl1://[a-z]{2}-[a-z]\d{2}-2\.[a-z]{3}\.[a-z]{4}\.[a-z]{3}:3082",
        ),
        ("XC-B17-2> ", r"[A-Z]{2}-[A-Z]\d{2}-2> "),
        (
            "rack7-[0-3]: {a: ssh://{name}.lab.acme.com}",
            r"[a-z]{4}\d-\[0-3\]: \{a: ssh://\{name\}\.[a-z]{3}\.[a-z]{4}\.[a-z]{3}\}",
        ),
        ("ocs 3>17 of ocs.acme.com", r"ocs 3>17 of (?!ocs)[a-z]{3}\.[a-z]{4}\.[a-z]{3}"),
        ("serial SIM-ocs", r"serial SIM-(?!ocs)[a-z]{3}"),
        ("firmware 6.7.3.9", r"firmware 6\.7\.3\.9"),
        ("options: {rerouting: true}", r"options: \{rerouting: true\}"),
        ("ACT-USER::options:1::***;", r"ACT-USER::(?!options)[a-z]{7}:1::\*{3};"),
        ("ssh options@127.0.0.1", r"ssh (?!options)[a-z]{7}@127\.0\.0\.1"),
        ("7 dB at event 7", "7 dB at event 7"),
        ("1021877 ns", "1021877 ns"),
        ("netmask 255.255.255.0, ::1, localhost", "netmask 255.255.255.0, ::1, localhost"),
        ("RTRV-PATCH:::41:; 11:45:23 a.py::test_x", "RTRV-PATCH:::41:; 11:45:23 a.py::test_x"),
    ],
)
def test_what_is_replaced_and_what_stays(names: Pseudonyms, text: str, pattern: str) -> None:
    found = names.replaced(text)
    assert re.fullmatch(pattern, found), found
    assert len(found) == len(text)
    for name in ("b17", "B17", "rack7", "acme", "mkowalski"):
        assert name not in found


def test_a_name_is_the_same_wherever_it_stands(names: Pseudonyms) -> None:
    whole = names.replaced("xc-b17-2.lab.acme.com")
    assert names.replaced("on xc-b17-2") == f"on {whole.partition('.')[0]}"
    assert names.replaced("{name}.lab.acme.com") == "{name}." + whole.partition(".")[2]


def test_names_are_learnt_from_where_they_stand() -> None:
    names = Names()
    names.learn("mkowalski@nas-7.corp.local:/home/jdoe/x  https://admin:***@10.1.2.3/")
    names.learn("Polatis N-VST, serial QX7-110, firmware 6.7.3.9; Vendor SN : FT2103K7QX")
    names.learn_document({"serial": "MY4912", "user": "netops", "version": "1.2.3.4"})
    assert names.hosts == {"nas-7.corp.local"}
    assert {"mkowalski", "jdoe", "admin", "netops"} <= names.accounts
    assert names.serials == {"QX7-110", "FT2103K7QX", "MY4912"}
    assert names.versions == {"6.7.3.9", "1.2.3.4"}


def chunks(data: bytes) -> list[bytes]:
    """Read RFC 6242's chunked framing."""
    found = []
    while not data.startswith(b"\n##\n"):
        head = re.match(rb"\n#(\d+)\n", data)
        assert head is not None
        size = int(head[1])
        found.append(data[head.end() : head.end() + size])
        assert len(found[-1]) == size
        data = data[head.end() + size :]
    return found


def test_frames_stay_valid(names: Pseudonyms) -> None:
    """NETCONF's chunks, SCPI's blocks and protobuf's strings have lengths before them."""
    parts = [b"<serial>MY49123456</serial>", b"<host>xc-b17-2.lab.acme.com</host>"]
    framed = b"".join(b"\n#%d\n%b" % (len(part), part) for part in parts) + b"\n##\n"
    replaced = names.replaced_bytes(framed)
    assert replaced != framed
    assert list(map(len, chunks(replaced))) == list(map(len, parts))
    block = b"#210MY49123456\n"
    assert len(names.replaced_bytes(block)) == len(block)
    assert names.replaced_bytes(block)[:4] == b"#210"
