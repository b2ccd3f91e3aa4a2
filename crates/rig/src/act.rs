//! Actions of emulated devices on request.

use drophammer_emulation::ping::Echo;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::{banner, bgp, ping};
use drophammer_model::trial::PortIndex;

/// Actions of devices at the events of a trial: for each event, the ports and their actions.
pub type Acts<'a> = &'a [Vec<(PortIndex, Act)>];

/// An action of a device, or of the link of its port.
#[derive(Clone, Debug)]
pub enum Act {
    /// A protocol of a device carries out a command.
    Device {
        /// Index of the device on the port.
        device: usize,
        /// The command.
        command: Command,
    },
    /// The link goes down or up.
    Link(bool),
}

impl Act {
    /// A command to BGP on this device.
    pub fn bgp(device: usize, command: bgp::BgpCommand) -> Act {
        Act::Device { device, command: Command::Bgp(command) }
    }

    /// The first device of the port sends an echo request.
    pub fn ping(echo: Echo) -> Act {
        Act::Device { device: 0, command: Command::Ping(echo) }
    }

    /// The first device of the port asks its gateway for the SSH banner.
    pub fn banner(ask: banner::AskBanner) -> Act {
        Act::Device { device: 0, command: Command::Banner(ask) }
    }
}

/// The protocol that a command is for; `None` if it is for every protocol.
pub(crate) fn protocol_of(command: &Command) -> Option<&'static str> {
    match command {
        Command::Start | Command::Stop => None,
        Command::Ping(_) => Some(ping::NAME),
        Command::Banner(_) => Some(banner::NAME),
        Command::Bgp(_) => Some(bgp::NAME),
    }
}
