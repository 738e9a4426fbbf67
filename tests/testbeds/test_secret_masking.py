"""Secrets are masked where devices, programs and kernels print them, and nothing else is."""

import pytest

from lightrig.testbeds.secret_masking import mask_document, mask_secret_bytes, mask_secrets

SECRET = "Zq9!vT2x"

PLACES = (
    "ssh://bench:{}@ocs.lab:22",
    "opened https://admin:{}@10.0.0.7/rest",
    "password={}",
    "PGPASSWORD={} psql",
    "AWS_SECRET_ACCESS_KEY={}",
    "password: {}",
    '{{"user": "bench", "password": "{}"}}',
    "{{'token': '{}'}}",
    '{{\\"api_key\\": \\"{}\\"}}',
    "Authorization: Basic {}",
    "authorization: Bearer {}",
    "X-Auth-Token: {}",
    "Set-Cookie: session={}; Path=/",
    "<password>{}</password>",
    '<nc:auth-key type="1">{}</nc:auth-key>',
    "snmp-server community {} RO",
    "rocommunity {} 10.0.0.0/8",
    "snmpget -v2c -c {} switch sysName.0",
    "username admin privilege 15 secret 5 {}",
    "enable secret {}",
    "tacacs-server host 10.1.1.1 key {}",
    "neighbor 10.0.0.1 password {}",
    "sshpass -p {} ssh bench@ocs",
    "curl -sk -u admin:{} https://ocs/",
    "ipmitool -H bmc -U admin -P {} power status",
    "probe --password {} --port 3",
    "ACT-USER::admin:0041::{};",
    "ED-PID::admin:12::{};",
    ':SYST:PASS:CEN "{}"',
    'psk="{}"',
    "login admin:{}",
    "password\x12\x08{}",
    "[('username', 'bench'), ('password', '{}')]",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_masked_at_its_length(place: str) -> None:
    text = place.format(SECRET)
    masked = mask_secrets(text)
    assert SECRET not in masked
    assert len(masked) == len(text)
    assert mask_secrets(masked) == masked
    assert mask_secret_bytes(text.encode()) == masked.encode()
    assert mask_document({"log": [text, 3]}) == {"log": [masked, 3]}


@pytest.mark.parametrize(
    "name", ["PASSWORD", "Pa\u017fsword", "to\u212aen", "credent\u0131al", "CREDENT\u0130AL"]
)
def test_a_name_is_known_in_any_letters(name: str) -> None:
    # Python's IGNORECASE takes a long s, the sign of kelvin, a small i without a dot and a great
    # one with it for s, k and i.
    assert SECRET not in mask_secrets(f"{name}={SECRET}")


FORMS = (  # as their issuers publish them; none is anybody's
    "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
    "glpat-" + "Zk3yLq8nR2sT5vW7xY1b",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "$6$" + "rounds=5000$saltsalt$EZ8fEq1m2ZVx9h3Ck0",
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "hf_" + "QbLzYvTnWkRsXpMdCgHjFaEu",
)


@pytest.mark.parametrize("token", FORMS)
def test_a_token_is_known_by_its_form(token: str) -> None:
    assert token not in mask_secrets(f"mlx5_core 0000:3b:00.0: handed over {token} at once")


def test_a_private_key_is_masked_between_its_lines() -> None:
    body = "MIIEowIBAAKCAQEA75\nq2Yp0Zf8"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    masked = mask_secrets(f"read {key} of the server")
    assert "MIIE" not in masked
    assert "q2Yp" not in masked
    assert masked.endswith("-----END RSA PRIVATE KEY----- of the server")


@pytest.mark.parametrize(
    "text",
    [
        "3 passed, tokens: 4096",
        "login: env:OCS_LOGIN",
        "its password was refused",
        "ENT-PATCH::1,99:0041:;",
        "scpi://meter.lab:5025",
        "known_hosts: lab.known_hosts",
        "mlx5_core 0000:3b:00.0 ens1f0np0: Link up",
        "password: ***",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_secrets(text) == text
