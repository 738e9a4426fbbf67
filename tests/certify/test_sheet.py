"""Sheets: signed, verified, refused once changed, compared."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from typer.testing import CliRunner, Result

from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import (
    ClauseResult,
    Instrument,
    Ports,
    ReferencesUsed,
    Sheet,
    SheetError,
    read_sheet,
    shown,
)
from lightrig.harness.certify.signing import private_key, sign
from lightrig.harness.cli.app import application
from lightrig.testbeds.credentials import CredentialError
from lightrig.testbeds.references import References, load_references, references_yaml

ROOT = Path(__file__).parents[2]
ACKNOWLEDGED = next(each for each in requirements().requirements if each.number == "3.1")


def made(
    *, verdict: str = "pass", value: float | None = 0.2, half: float = 0.05, simulated: bool = True
) -> Sheet:
    """Return a sheet with one clause."""
    interval = None if value is None else (value - half, value + half)
    result = ClauseResult.model_validate(
        {
            "requirement": ACKNOWLEDGED,
            "required": True,
            "verdict": verdict,
            "reason": "größter Abstand",
            "value": value,
            "interval": interval,
            "unit": "dB",
            "n": 13,
            "simulated": simulated,
        }
    )
    return Sheet(
        made="2026-11-25 12:00:00 UTC",
        testbed="certified",
        switch="ocs",
        profile="polatis",
        seed=1,
        allowed=("harmless",),
        ports=Ports(ingress=(2, 3), egress=(10, 11), cabled=(6, 5)),
        instruments=(Instrument(name="ocs", identity="Polatis, serial 1", simulated=simulated),),
        references=(),
        clauses=(result,),
        interrupted=(),
        not_restored="",
    )


def save(sheet: Sheet, folder: Path, name: str = "ocs.json") -> Path:
    path = folder / name
    path.write_text(sheet.text(), encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application("sheet"), ["sheet", *map(str, arguments)])


@pytest.fixture(params=["pem", "openssh"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A key pair in two files; that of OpenSSH is made by its own program where there is one."""
    private, public = tmp_path / "lab", tmp_path / "lab.pub"
    key = Ed25519PrivateKey.generate()
    pem = request.param == "pem"
    form = PrivateFormat.PKCS8 if pem else PrivateFormat.OpenSSH
    private.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    encoding = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if not pem:
        encoding = (Encoding.OpenSSH, PublicFormat.OpenSSH)
    public.write_bytes(key.public_key().public_bytes(*encoding))
    private.chmod(0o600)
    return private, public


def test_a_signed_sheet_is_verified_by_its_key_alone(
    tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    private, public = keys
    sheet = save(sign(made(), private_key(f"file:{private}")), tmp_path)
    done = run("verify", sheet, "--key", public)
    assert done.exit_code == 0, done.output
    assert "1 of them on a simulated switch" in done.stdout
    other = tmp_path / "other.pub"
    stranger = Ed25519PrivateKey.generate().public_key()
    other.write_bytes(stranger.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    refused = run("verify", sheet, "--key", other)
    assert (refused.exit_code, "another key has signed it" in refused.stderr) == (1, True)
    unsigned = run("verify", save(made(), tmp_path, "unsigned.json"), "--key", public)
    assert (unsigned.exit_code, "not signed" in unsigned.stderr) == (1, True)


def test_openssl_verifies_what_was_signed(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """Another implementation checks the signature over bytes formed by the documented rule."""
    sheet = sign(made(), private_key(f"file:{keys[0]}"))
    document = json.loads(sheet.text())
    signature = document.pop("signature")
    signed = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    (tmp_path / "signed").write_text(signed, encoding="utf-8")
    (tmp_path / "value").write_bytes(bytes.fromhex(signature["value"]))
    raw = bytes.fromhex(signature["key"])
    der = bytes.fromhex("302a300506032b6570032100") + raw  # RFC 8410
    (tmp_path / "key.der").write_bytes(der)
    command = "openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey key.der"
    arguments = [*command.split(), "-sigfile", "value", "-in", "signed"]
    try:
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert done.returncode == 0, done.stderr


def test_each_flipped_byte_is_refused(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    text = sign(made(), private_key(f"file:{private}")).text().encode()
    path = tmp_path / "flipped.json"
    sampled = [(at, 1 << at % 7) for at in range(0, len(text), len(text) // 40)]
    # A digit a to f in the other case is the same number, and still another byte.
    value = text.index(b'"value": "', text.index(b'"signature"')) + 10
    letters = [(at, 0x20) for at in range(value, value + 128) if text[at : at + 1].isalpha()]
    for at, bit in sampled + letters[::4]:
        changed = bytearray(text)
        changed[at] ^= bit
        path.write_bytes(changed)
        done = run("verify", path, "--key", public)
        assert (done.exit_code, "NOT verified" in done.stderr) == (1, True), (at, done.output)


def test_what_was_simulated_is_signed(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    sheet = sign(made(), private_key(f"file:{private}"))
    forged = made(simulated=False).model_copy(update={"signature": sheet.signature})
    done = run("verify", save(forged, tmp_path), "--key", public)
    assert (done.exit_code, "changed after it was signed" in done.stderr) == (1, True)


def test_keys_are_read_from_private_files_and_keyrings_alone(
    tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys
    text = private.read_text()
    stored = {("lightrig", "lab"): text}
    module = types.ModuleType("keyring")
    module.get_password = lambda service, name: stored.get((service, name))  # type: ignore[attr-defined]
    module.errors = types.SimpleNamespace(KeyringError=RuntimeError)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    sheet = save(sign(made(), private_key("keyring:lab")), tmp_path)
    assert run("verify", sheet, "--key", public).exit_code == 0
    with pytest.raises(CredentialError, match="no password other"):
        private_key("keyring:other")
    os.chmod(private, 0o644)
    with pytest.raises(CredentialError, match="other accounts can use"):
        private_key(f"file:{private}")
    rsa = generate_private_key(65537, 2048)
    private.write_bytes(rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    with pytest.raises(CredentialError, match="not of Ed25519"):
        private_key(f"file:{private}")
    private.write_text("secret")
    with pytest.raises(CredentialError, match="no private key") as caught:
        private_key(f"file:{private}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        # Half widths of 0.03 and 0.04: by chance up to 0.05.
        (made(value=0.2, half=0.03), made(value=0.24, half=0.04), False),
        (made(value=0.2, half=0.03), made(value=0.26, half=0.04), True),
        (made(value=0.26, half=0.04), made(value=0.2, half=0.03), True),
        (made(), made(verdict="fail"), True),
        (made(value=None), made(value=None), False),
    ],
)
def test_a_comparison_names_what_differs_beyond_chance(
    tmp_path: Path, before: Sheet, after: Sheet, differs: bool
) -> None:
    paths = save(before, tmp_path, "before.json"), save(after, tmp_path, "after.json")
    done = run("compare", *paths)
    assert done.exit_code == differs, done.output
    assert ("3.1 The acknowledgement against light" in done.stdout) == differs
    assert ("no verdict differs" in done.stdout) is not differs
    assert len(json.loads(run("compare", *paths, "--json").stdout)) == differs


def test_a_sheet_with_a_clause_less_differs(tmp_path: Path) -> None:
    fewer = made().model_copy(update={"clauses": ()})
    done = run("compare", save(made(), tmp_path, "a.json"), save(fewer, tmp_path, "b.json"))
    assert (done.exit_code, "not in the sheet" in done.stdout) == (1, True)


@pytest.mark.parametrize(("name", "meets"), [("polatis", True), ("sonic", False)])
def test_a_sheet_of_the_documentation_is_as_it_is_made(name: str, meets: bool) -> None:
    folder = ROOT / "docs" / "sheets"
    sheet = read_sheet(folder / f"{name}.json")
    pages = sheet.page(), (folder / f"{name}.html").read_text("utf-8")
    made, shown_there = (page.partition("<main")[2] for page in pages)  # whatever its style is now
    assert made == shown_there != ""
    shipped = requirements()
    assert [each.requirement for each in sheet.clauses] == shipped.of(
        shipped.profiles[sheet.profile]
    )
    assert {each.simulated for each in sheet.clauses} == {True}
    assert sheet.meets_profile == meets
    assert {each.verdict for each in sheet.clauses} == {"pass", "not tested"}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3928.4, "ms", "3928 ms"),
        (-57.13, "dB", "-57.1 dB"),
        (1.2e-3, "1", "0.0012"),
        (0.0, "1", "0"),
    ],
)
def test_values_have_three_digits(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def all_ports(sheet: Sheet) -> Sheet:
    """Return a sheet as of a full run, of six and five ports."""
    used = Ports(ingress=(2, 3, 4, 5, 6, 7), egress=(10, 11, 12, 13, 14), cabled=(6, 5))
    return sheet.model_copy(update={"ports": used})


def test_a_sample_of_ports_is_told_from_all_and_from_another(tmp_path: Path) -> None:
    full, quick = all_ports(made()), made()
    other = quick.model_copy(update={"ports": quick.ports.model_copy(update={"ingress": (2, 4)})})
    paths = [save(s, tmp_path, f"{n}.json") for n, s in enumerate((full, quick, other))]
    done = run("compare", paths[0], paths[1])
    assert done.exit_code == 1
    drawn = "2 ingress and 2 egress ports of 6 and 5, drawn (--quick): 2, 3, 10, 11"
    tried = f"ports that were tried: all 6 ingress and 5 egress ports -> {drawn}"
    assert tried in done.stdout
    assert run("compare", paths[1], paths[2]).exit_code == 1
    assert run("compare", paths[0], paths[0]).exit_code == 0


def test_a_sheet_of_a_sample_states_what_was_left_out(tmp_path: Path) -> None:
    stated = made().ports.model_copy(update={"left_out": (4, 5, 6, 7, 12, 13, 14)})
    quick = made().model_copy(update={"ports": stated})
    assert read_sheet(save(quick, tmp_path)).ports.left_out == (4, 5, 6, 7, 12, 13, 14)
    assert "Left out, and not tested: 4, 5, 6, 7, 12, 13, 14." in quick.page()
    # Sheets of before, and of all ports, are as they were.
    assert "left_out" not in all_ports(made()).text()


def test_a_comparison_trusts_no_sheet_that_was_changed(
    tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    own, public = keys
    signed = save(sign(made(), private_key(f"file:{own}")), tmp_path, "signed.json")
    plain = save(made(), tmp_path, "plain.json")
    text = signed.read_text()
    changed = tmp_path / "changed.json"
    changed.write_text(text.replace('"verdict": "pass"', '"verdict": "fail"'))
    assert changed.read_text() != text
    stranger = save(sign(made(), Ed25519PrivateKey.generate()), tmp_path, "stranger.json")

    done = run("compare", signed, plain)
    assert (done.exit_code, f"{plain}: not signed" in done.stderr) == (0, True)
    assert f"{signed}: signed by " in done.stderr
    for pair in ((signed, changed), (changed, signed)):
        refused = run("compare", *pair)
        assert refused.exit_code == 2
        assert f"{changed}: NOT compared: its signature is wrong" in refused.stderr
    assert run("compare", signed, stranger).exit_code == 0
    trusted = run("compare", signed, signed, "--key", public)
    assert (trusted.exit_code, trusted.stderr) == (0, "")
    for other, why in ((stranger, "another key has signed it"), (plain, "it is not signed")):
        refused = run("compare", signed, other, "--key", public)
        assert refused.exit_code == 2
        assert f"{other}: NOT compared: {why}" in refused.stderr


def test_a_file_that_is_no_sheet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    done = run("compare", path, path)
    assert (done.exit_code, f"{path} is no sheet" in done.stderr) == (2, True)


def test_a_lone_surrogate_makes_no_sheet(tmp_path: Path) -> None:
    """JSON can spell what no UTF-8 can hold."""
    path = save(made(), tmp_path)
    text = path.read_text()
    place = text.index('"polatis"') + 1  # the profile
    path.write_text(text[:place] + "\\ud800" + text[place:])
    with pytest.raises(SheetError, match="is no sheet"):
        read_sheet(path)


def test_a_sheet_without_instruments_states_that_it_has_none(tmp_path: Path) -> None:
    path = save(made().model_copy(update={"instruments": ()}), tmp_path)
    assert read_sheet(path).identity.startswith("none: the sheet names no instrument")
    done = run("compare", path, path)
    assert done.exception is None or isinstance(done.exception, SystemExit)


REFERENCES = """
references:
  by-hand:
    taken: 2026-11-20
    expires: 2026-12-20
    wavelength: 1310 nm
    instruments:
      - {model: N7745A, serial: DE60700123, calibrated: 2026-03-02, certificate: "1-2345",
         laboratory: Lab <A>}
      - {model: N-VST-32x32, serial: "21877"}
    uncertainty: {each: 0.03 dB}
    launches: {ocs.2: -1.32 dBm}
"""


def test_certificates_of_the_references_are_signed_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "references.yaml"
    path.write_text(REFERENCES)
    (stated,) = load_references(path).sets
    path.write_text(references_yaml(References((stated,))))
    assert load_references(path).sets == (stated,)
    used = ReferencesUsed.of(stated, simulated=False)
    sheet = made().model_copy(update={"references": (used,)})
    assert b'"calibrated":"2026-03-02","certificate":"1-2345"' in sheet.signed_bytes()
    shown_as = "certificate 1-2345 of Lab &lt;A&gt;, calibrated on 2026-03-02"
    page = " ".join(sheet.page().split())
    assert (shown_as in page, "21877: no certificate stated" in page) == (True, True)
    assert read_sheet(save(sheet, tmp_path)) == sheet
