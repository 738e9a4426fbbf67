"""LabExT's PowerMeterN7744A, unchanged: settings, one power, a logged sweep."""

import json
import sys

from LabExT.Instruments.PowerMeterN7744A import PowerMeterN7744A

host, port = sys.argv[1:3]
meter = PowerMeterN7744A(f"TCPIP::{host}::hislip0,{port}::INSTR", channel=1)
meter.open()
meter.unit = "dBm"
meter.wavelength = 1310.0
meter.autogain = True
meter.range = 10.0
meter.averagetime = 0.001
told = {
    "identity": meter.idn(),
    "unit": meter.unit,
    "wavelength": meter.wavelength,
    "autogain": meter.autogain,
    "averaging": meter.averagetime,
    "power": meter.power,
}
meter.unit = "Watt"
meter.logging_setup(n_measurement_points=100)
meter.logging_start()
while meter.logging_busy():
    pass
told["logged"] = len(meter.logging_get_data())
meter.close()
print(json.dumps(told))
