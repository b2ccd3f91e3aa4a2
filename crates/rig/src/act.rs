//! Actions that emulated devices perform on request.

use drophammer_emulation::ping::Echo;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::{banner, bgp, ldp, ospf, ping, rsvp};
use drophammer_model::trial::PortIndex;

/// Actions of devices at the events of a trial: for each event, a list of ports and actions.
pub type Acts<'a> = &'a [Vec<(PortIndex, Act)>];

/// An action of a device, or of the link of its port.
#[derive(Clone, Debug)]
pub enum Act {
    /// A protocol of a device executes a command.
    Device {
        /// Index of the device on the port.
        device: usize,
        /// The command.
        command: Command,
    },
    /// The link goes down (`false`) or up (`true`).
    Link(bool),
}

impl Act {
    /// Creates a command for BGP on this device.
    pub fn bgp(device: usize, command: bgp::BgpCommand) -> Act {
        Act::Device { device, command: Command::Bgp(command) }
    }

    /// Lets the first device of the port send an echo request.
    pub fn ping(echo: Echo) -> Act {
        Act::Device { device: 0, command: Command::Ping(echo) }
    }

    /// Lets the first device of the port ask its gateway for the SSH banner.
    pub fn banner(ask: banner::AskBanner) -> Act {
        Act::Device { device: 0, command: Command::Banner(ask) }
    }
}

/// Returns the protocol that a command is for; `None` if it is for every protocol.
pub(crate) fn protocol_of(command: &Command) -> Option<&'static str> {
    match command {
        Command::Start | Command::Stop => None,
        Command::Ping(_) => Some(ping::NAME),
        Command::Banner(_) => Some(banner::NAME),
        Command::Bgp(_) => Some(bgp::NAME),
        Command::Ldp(_) => Some(ldp::NAME),
        Command::Rsvp(_) => Some(rsvp::NAME),
        Command::Ospf(_) => Some(ospf::NAME),
    }
}
