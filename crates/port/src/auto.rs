//! The choice between the backends of an interface, for whoever does not say which.
//!
//! `af_xdp` where the driver itself runs the program that tells test frames from the rest: there it is the faster one and
//! loses nothing by it. Not on virtual links: `af_packet` is told there which frames the router's ring refused and when the
//! kernel took each frame, `af_xdp` neither. `af_packet` wherever `af_xdp` is not to be had.

use crate::af_packet::{self, AfPacket};
use crate::af_xdp::{self, AfXdp};
use crate::{Backend, Port, PortError, SystemClock, boxed};
use drophammer_model::registry::BackendSpec;

/// The automatic choice, as a backend that opens another one; the port says which.
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

/// Drivers of links that the kernel only imagines.
const VIRTUAL: [&str; 6] = ["veth", "tun", "dummy", "bridge", "macvlan", "bond"];

/// May `af_xdp` be better on an interface of this driver?
fn may_be_better(driver: &str) -> bool {
    !driver.is_empty() && !VIRTUAL.contains(&driver)
}

fn open(interface: &str, clock: SystemClock) -> Result<Box<dyn Port + Send>, PortError> {
    if may_be_better(&af_packet::driver(interface)) && af_xdp::usable().is_ok() {
        match AfXdp::open(interface, clock) {
            Ok(port) if port.is_native() => return Ok(Box::new(port)),
            // In the kernel's common path it is no faster, and where it cannot be opened there is the other one.
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
