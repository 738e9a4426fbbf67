"""InstrumentKit's PM100USB, unchanged: read, averaging, configuration of the measurement."""

import json
import sys

import instruments

host, port = sys.argv[1:3]
meter = instruments.thorlabs.PM100USB.open_tcpip(host, int(port))
meter.averaging_count = 10
told = {
    "name": meter.name,
    "averaging": meter.averaging_count,
    "flux": float(meter.read().magnitude),
    "configuration": meter.measurement_configuration.name,
}
print(json.dumps(told))
