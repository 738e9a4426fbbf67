"""`ethtool -i IF`: the driver of a port, its version, and the firmware of its NIC."""

from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "ethtool -i"


@dataclass(frozen=True, slots=True)
class DriverReading:
    """A port's driver; None for what it does not report.

    Attributes:
        driver: its name, such as `mlx5_core`.
        version: its own, or the kernel's where the driver is part of that.
        firmware: version of the NIC's firmware.
        bus: the device's place on its bus, such as `0000:3b:00.0`.
    """

    driver: str
    version: str | None
    firmware: str | None
    bus: str | None

    @property
    def of_mellanox(self) -> bool:
        """Whether it drives NICs of Mellanox (NVIDIA), whose firmware MFT reads.

        Source: the kernel's drivers/net/ethernet/mellanox: mlx4_en, mlx5_core, mlx5e_rep.
        """
        return self.driver.startswith(("mlx4", "mlx5"))


def parse(text: str) -> DriverReading:
    """Parse the output of `ethtool -i IF`.

    Raises:
        ToolOutputError: it is something else.
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or key in fields:
            raise ToolOutputError(TOOL, "`key: value`, each key once", line)
        fields[key] = value.strip()
    driver = fields.get("driver")
    if not driver or not {"version", "bus-info"} <= fields.keys():
        raise ToolOutputError(TOOL, "`driver:`, `version:` and `bus-info:`", text[:100])
    rest = (fields.get(key) or None for key in ("version", "firmware-version", "bus-info"))
    return DriverReading(driver, *(None if each == "N/A" else each for each in rest))
