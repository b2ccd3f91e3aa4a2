//! One emulated device on one interface, with one protocol, without a suite.

use drophammer_port::{Backend, PortError, SystemClock};
use drophammer_rig::{
    Command, Config, DeviceConfig, PortConfig, Ports, ProtocolPlace, Rig, RigError, State, Until, host_mac,
};
use std::time::Duration;

/// A rig with one device on `interface`; `configure` sets the device's addresses and protocols.
///
/// # Errors
/// Errors of opening the interface and of [`Config::check`].
pub(crate) fn rig_of_one(
    interface: &str,
    backend: &Backend,
    seed: u64,
    configure: impl FnOnce(&mut DeviceConfig),
) -> Result<Rig, RigError> {
    let clock = SystemClock::start();
    let ports = drophammer_rig::open(&[interface], backend, 1, clock, None)?;
    let mtu = ports.first().map_or(0, |port| port.info().mtu);
    let mut port = PortConfig::new(interface, host_mac(seed, 0), mtu);
    configure(&mut port.devices[0]);
    let config = Config { seed, ports: vec![port] };
    config.check(1).map_err(RigError::Config)?;
    Ok(Rig::new(Ports::real(ports, clock, &[]), &config))
}

/// The device.
pub struct Neighbour {
    rig: Rig,
    place: ProtocolPlace,
}

impl Neighbour {
    /// Opens `interface`, which must have carrier. `protocol` is the protocol to report on; it is not started yet.
    ///
    /// # Errors
    /// The interface cannot be opened, or the configuration is invalid.
    pub fn open(
        interface: &str,
        backend: &Backend,
        seed: u64,
        protocol: &'static str,
        configure: impl FnOnce(&mut DeviceConfig),
    ) -> Result<Neighbour, RigError> {
        let rig = rig_of_one(interface, backend, seed, configure)?;
        Ok(Neighbour { rig, place: ProtocolPlace { port: 0, device: 0, protocol } })
    }

    /// True if the interface has carrier.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn has_carrier(&mut self) -> Result<bool, PortError> {
        self.rig.has_carrier(0)
    }

    /// Gives the protocol a command.
    ///
    /// # Errors
    /// If the protocol refuses it.
    pub fn command(&mut self, command: &Command) -> Result<(), RigError> {
        self.rig.command_to(self.place, command)
    }

    /// State of the protocol.
    pub fn state(&self) -> State {
        self.rig.hosts().state(self.place).unwrap_or_default()
    }

    /// The condition that all sessions of the protocol are up.
    pub fn up(&self) -> Until {
        Until::Up(self.place)
    }

    /// Serves the device for `time`, or until `until` holds.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn serve(&mut self, time: Duration, until: Option<Until>) -> Result<(), PortError> {
        let end = Until::At(self.rig.now() + time);
        self.rig.serve(&Until::Any(until.into_iter().chain([end]).collect()), &|| false).map(|_| ())
    }

    /// Ends all sessions, and serves the device until they have ended, for at most `patience`.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn stop(&mut self, patience: Duration) -> Result<(), RigError> {
        self.command(&Command::Stop)?;
        Ok(self.serve(patience, Some(Until::Ended(self.place)))?)
    }
}
