"""qcodes_contrib_drivers' Thorlab_PM100D, unchanged: open, read, set."""

import json
import sys

from qcodes_contrib_drivers.drivers.Thorlabs.PM100D import Thorlab_PM100D

host, port = sys.argv[1:3]
meter = Thorlab_PM100D("meter", f"TCPIP::{host}::{port}::SOCKET", visalib="@py")
meter.wavelength(1310e-9)
told = {
    "identity": meter.get_idn(),
    "wavelength": meter.ask("SENS:CORR:WAV?"),  # its own getter divides a string
    "attenuation": meter.attenuation(),
    "auto_range": bool(meter.auto_range()),
    "power": meter.power(),
}
meter.close()
print(json.dumps(told))
