"""HUBER+SUHNER Polatis 6000 and 7000 optical circuit switches, over each of their four wires."""

from lightrig.instruments.switches.polatis.switch import Polatis

__all__ = ["Polatis"]
