//! Automatic choice between the backends of an interface.
//!
//! `af_xdp` if the driver itself runs the program that separates test frames: it is faster there without a drawback. Not on
//! virtual links: there `af_packet` learns which frames the router's ring refused and when the kernel received each frame,
//! which `af_xdp` does not. `af_packet` wherever `af_xdp` is not available.

use crate::af_packet::{self, AfPacket};
use crate::af_xdp::{self, AfXdp};
use crate::{Backend, Port, PortError, SystemClock, boxed};
use drophammer_model::registry::BackendSpec;

/// The automatic choice, as a backend that opens another one; the port names the chosen one.
pub static AUTO: Backend = Backend {
    spec: &BackendSpec {
        name: "auto",
        summary: "af_xdp where the driver of a network card supports it, af_packet otherwise",
    },
    usable: || Ok(()),
    open,
    open_queues,
    most_queues: af_packet::MOST_QUEUES,
};

/// Drivers of virtual links.
const VIRTUAL: [&str; 6] = ["veth", "tun", "dummy", "bridge", "macvlan", "bond"];

/// True if `af_xdp` may be better on an interface with this driver.
fn may_be_better(driver: &str) -> bool {
    !driver.is_empty() && !VIRTUAL.contains(&driver)
}

fn open(interface: &str, clock: SystemClock) -> Result<Box<dyn Port + Send>, PortError> {
    if may_be_better(&af_packet::driver(interface)) && af_xdp::usable().is_ok() {
        match AfXdp::open(interface, clock) {
            Ok(port) if port.is_native() => return Ok(Box::new(port)),
            // In the kernel's generic path `af_xdp` is no faster; if it cannot be opened, the other backend is used.
            _ => {}
        }
    }
    Ok(Box::new(AfPacket::open(interface, clock)?))
}

fn open_queues(interface: &str, queues: u32, clock: SystemClock) -> Result<Vec<Box<dyn Port + Send>>, PortError> {
    if may_be_better(&af_packet::driver(interface)) && af_xdp::usable().is_ok() {
        match AfXdp::open_queues(interface, queues, clock) {
            Ok(ports) if ports.iter().all(AfXdp::is_native) => return Ok(boxed(ports)),
            _ => {}
        }
    }
    Ok(boxed(AfPacket::open_queues(interface, queues, clock)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_links_keep_what_the_kernel_tells() {
        assert!(["veth", "tun", ""].iter().all(|d| !may_be_better(d)));
        assert!(["ixgbe", "mlx5_core", "virtio_net"].iter().all(|d| may_be_better(d)));
    }
}
