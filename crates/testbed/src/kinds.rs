//! All DUT kinds: those of the lab, and the reference device.

use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::suite::DutConfig;

/// Name of the reference kind.
pub const REFERENCE: &str = "reference";

/// The reference device: a router of known behaviour, in virtual time or in a process of its own.
pub static REFERENCE_SPEC: KindSpec = KindSpec {
    name: REFERENCE,
    summary: "simulated router of known behaviour, in virtual time or on virtual links; proves the tester, never a result",
    roles: &["ipv4-router", "ipv6-router"],
    needs: &[],
    params: &[
        ParamSpec::new(
            "links",
            ParamKind::Choice(&["virtual", "veth", "tap"]),
            "virtual",
            "virtual",
            "virtual time, or a process of its own behind veth or tap interfaces",
        ),
        ParamSpec::optional("capacity", ParamKind::Rate, "frames that it serves per second; without, no limit"),
        ParamSpec::new("buffer", ParamKind::Count, "1024", "1024", "frames that may wait or be in service"),
        ParamSpec::new("delay", ParamKind::Duration, "10 us", "10 us", "from end of service to the line"),
        ParamSpec::new("jitter", ParamKind::Duration, "0 s", "0 s", "width of a uniform random delay on top"),
        ParamSpec::optional("drop_every", ParamKind::Count, "drops every n-th frame"),
        ParamSpec::optional("duplicate_every", ParamKind::Count, "sends every n-th frame twice"),
        ParamSpec::optional("corrupt_every", ParamKind::Count, "changes a payload byte of every n-th frame"),
        ParamSpec::optional("misroute_every", ParamKind::Count, "sends every n-th frame back out of the first port"),
    ],
    simulated: true,
};

/// Descriptions of all kinds, in the order in which `drophammer list duts` shows them.
pub fn specs() -> Vec<&'static KindSpec> {
    drophammer_lab::KINDS.iter().map(|k| k.spec()).chain([&REFERENCE_SPEC]).collect()
}

/// Does this DUT live in virtual time, without lab and interfaces?
pub fn is_virtual(dut: &DutConfig) -> bool {
    dut.kind == REFERENCE && crate::device::links(dut).is_none()
}
