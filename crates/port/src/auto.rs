//! Automatic choice between the backends of an interface.
//!
//! It selects `af_xdp` if the driver itself runs the program that separates test frames: there it is faster and has no
//! drawback. On virtual links it selects `af_packet` if arrival times matter, because only `af_packet` knows when the
//! kernel received each frame. A test that only counts frames gets `af_xdp` there too, at twice the rate. If `af_xdp`
//! is not available, it selects `af_packet`.

use crate::af_packet::{self, AfPacket};
use crate::af_xdp::{self, AfXdp};
use crate::{Backend, Opened, SystemClock, boxed};
use drophammer_model::registry::{Arrivals, BackendSpec};

/// The automatic choice, as a backend that opens another backend. The port names the chosen backend.
pub static AUTO: Backend = Backend {
    spec: &BackendSpec {
        name: "auto",
        summary: "af_xdp if a network card's driver supports it, or to count frames on veth; otherwise af_packet",
    },
    usable: || Ok(()),
    begin: |interfaces, queues, clock| choose(interfaces, queues, clock, false),
    most_queues: af_packet::MOST_QUEUES,
};

/// The automatic choice for tests that only count frames.
pub static COUNTING: Backend =
    Backend { begin: |interfaces, queues, clock| choose(interfaces, queues, clock, true), ..AUTO };

/// Returns the backend for a test that needs to know this about arrivals. Only the automatic choice depends on it.
pub fn for_arrivals(backend: &'static Backend, arrivals: Arrivals) -> &'static Backend {
    let counting = backend.spec.name == AUTO.spec.name && arrivals == Arrivals::Counted && af_xdp::usable().is_ok();
    if counting { &COUNTING } else { backend }
}

/// Drivers of virtual links.
const VIRTUAL: [&str; 6] = ["veth", "tun", "dummy", "bridge", "macvlan", "bond"];

/// True if `af_xdp` can be better on an interface with this driver. `counting` is true for a test that only counts frames.
fn may_be_better(driver: &str, counting: bool) -> bool {
    !driver.is_empty() && (!VIRTUAL.contains(&driver) || counting && driver == "veth")
}

fn choose(interfaces: &[&str], queues: u32, clock: SystemClock, counting: bool) -> Opened {
    let mut all = Vec::new();
    for interface in interfaces {
        let mut xdp = None;
        if may_be_better(&af_packet::driver(interface), counting) && af_xdp::usable().is_ok() {
            xdp = AfXdp::open_queues(interface, queues, clock).ok();
        }
        // In the kernel's generic path `af_xdp` is no faster. If `af_xdp` cannot be opened, opening the other backend may show why.
        all.extend(match xdp.filter(|ports| ports.iter().all(AfXdp::is_native)) {
            Some(ports) => boxed(ports),
            None => boxed(AfPacket::open_queues(interface, queues, clock)?),
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_links_keep_what_the_kernel_tells() {
        assert!(["veth", "tun", ""].iter().all(|d| !may_be_better(d, false)));
        assert!(["ixgbe", "mlx5_core", "virtio_net"].iter().all(|d| may_be_better(d, false) && may_be_better(d, true)));
    }

    #[test]
    fn only_the_automatic_choice_depends_on_the_test() {
        assert!(may_be_better("veth", true) && !may_be_better("tun", true) && !may_be_better("", true));
        let own = &crate::INTERFACE_BACKENDS[0];
        assert!(std::ptr::eq(for_arrivals(own, Arrivals::Counted), own));
        assert!(std::ptr::eq(for_arrivals(&AUTO, Arrivals::Stamped), &AUTO));
        let counting = if af_xdp::usable().is_ok() { &COUNTING } else { &AUTO };
        assert!(std::ptr::eq(for_arrivals(&AUTO, Arrivals::Counted), counting));
    }
}
