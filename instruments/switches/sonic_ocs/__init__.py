"""SONiC on an optical circuit switch: its command line over SSH, and gNMI."""

from lightrig.instruments.switches.sonic_ocs.switch import SonicOcs

__all__ = ["SonicOcs"]
