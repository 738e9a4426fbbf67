"""All clauses, each of which tries one requirement on one switch."""

from collections.abc import Callable, Mapping

from lightrig.harness.certify import (
    client_clauses,
    interface_clauses,
    light_clauses,
    optics_clauses,
    port_order,
    restart_clauses,
    time_clauses,
    traffic_clauses,
)
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import Outcome, Subject

CLAUSES: Mapping[str, Callable[[Subject, Requirement], Outcome]] = {
    each.__name__: each
    for each in (
        interface_clauses.identity,
        interface_clauses.port_model,
        interface_clauses.labels,
        interface_clauses.wires,
        client_clauses.notifications,
        interface_clauses.refusals,
        interface_clauses.batch,
        interface_clauses.port_twice,
        interface_clauses.absent_removal,
        interface_clauses.exchange,
        client_clauses.lost_connection,
        client_clauses.two_clients,
        client_clauses.many_clients,
        interface_clauses.error_codes,
        interface_clauses.endurance,
        light_clauses.acknowledged_light,
        port_order.reported_light,
        light_clauses.forced_block,
        optics_clauses.crosstalk,
        light_clauses.repeatability,
        light_clauses.factory_losses,
        light_clauses.drift,
        restart_clauses.warm_restart,
        restart_clauses.cold_restart,
        restart_clauses.reset,
        restart_clauses.power_loss,
        restart_clauses.upgrade,
        time_clauses.settling,
        time_clauses.slow_share,
        time_clauses.settling_by_move,
        optics_clauses.rise,
        optics_clauses.wavelength_dependence,
        optics_clauses.polarization_dependence,
        traffic_clauses.traffic,
        traffic_clauses.error_ratio,
        traffic_clauses.frame_loss,
        traffic_clauses.rdma,
    )
}
"""By the `code` of requirements."""
