//! Protocols on the emulated P router behind each core port. A test installs them, and they are stopped when it ends.

use crate::bench::{Bench, Failure};
use crate::observer::Progress;
use drophammer_methods::TestError;
use drophammer_model::label_edge::{OSPF_DEAD_S, OSPF_HELLO_S, p_router, pe_router};
use drophammer_model::record::{Note, Record};
use drophammer_model::routes::Prefix;
use drophammer_model::trial::PortIndex;
use drophammer_rig::ospf::{NetworkType, OspfConfig, Topology};
use drophammer_rig::{Command, ProtocolConfig, ProtocolPlace, Until};
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long a protocol may take to end its sessions.
const ENDING: Duration = Duration::from_secs(5);
/// How often to check that the DUT is alive.
const LOOK: Duration = Duration::from_millis(50);
/// Cost of the link between the P router and the PE router.
const COST: u16 = 10;
/// Index of the P router among the devices of a core port.
pub(crate) const P_ROUTER: usize = 0;

/// A prefix from its address and length.
pub(crate) fn prefix(address: Ipv4Addr, length: u8) -> Result<Prefix, TestError> {
    Prefix::masked(address.into(), length)
        .ok_or_else(|| TestError::Failed(format!("{address}/{length} is not a prefix")))
}

/// OSPF of the P router behind `port`, on a link with this MTU, and the PE router behind it.
pub(crate) fn ospf_to(port: PortIndex, mtu: u32) -> OspfConfig {
    OspfConfig {
        network: NetworkType::PointToPoint,
        hello_interval: OSPF_HELLO_S,
        dead_interval: OSPF_DEAD_S,
        mtu: mtu.min(u16::MAX.into()) as u16,
        // Routers that make room for labels announce a larger MTU.
        ignore_mtu: true,
        topology: Some(Topology::loopback(pe_router(port), COST)),
        ..OspfConfig::new(p_router(port))
    }
}

impl Bench<'_> {
    /// Gives the P router behind `port` a protocol, or replaces it, and starts it. A protocol must be stopped before it is replaced, and the BGP
    /// sessions of the P router and of the PE router behind it must be down.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the configuration cannot be used.
    pub(crate) fn start_core(&mut self, port: PortIndex, config: &ProtocolConfig) -> Result<ProtocolPlace, TestError> {
        let failed = |e: drophammer_rig::RigError| TestError::Failed(e.to_string());
        let place = self.rig.set_protocol(port, P_ROUTER, config).map_err(failed)?;
        self.rig.command_to(place, &Command::Start).map_err(failed)?;
        self.core_protocols.retain(|known| *known != place);
        self.core_protocols.push(place);
        Ok(place)
    }

    /// Serves the devices until `until` is true, for at most `within`. Returns the time that this took; `None` after `within`.
    ///
    /// # Errors
    /// [`TestError::Interrupted`] or [`TestError::DutDied`].
    pub(crate) fn await_core(&mut self, until: &Until, within: Duration) -> Result<Option<Duration>, TestError> {
        let begun = self.rig.now();
        let end = begun + within;
        loop {
            let now = self.rig.now();
            if until.holds(now, self.rig.hosts()) {
                return Ok(Some(now.since(begun)));
            }
            if now >= end {
                return Ok(None);
            }
            let look = end.min(now + LOOK);
            match self.serve_until(&until.clone().or_at(look)) {
                Ok(_) => {}
                // The port may recover.
                Err(Failure::Port(_)) => {}
                Err(Failure::Test(e)) => return Err(e),
            }
            self.check_device()?;
        }
    }

    /// Adds a remark to the run.
    pub(crate) fn note(&mut self, text: &str) {
        let (time, dut) = (self.observer.time(), Some(self.dut.clone()));
        let note = Note { time, dut, text: text.to_owned(), problem: false };
        // If a note cannot be stored, the next trial cannot be stored either, and reports that.
        let _ = self.observer.record(&Record::Note(note));
        self.observer.progress(&Progress::Note { text, problem: false });
    }

    /// Stops all protocols that were started, and waits until their sessions have ended. If some have not after 5 s, a note says
    /// so.
    ///
    /// # Errors
    /// [`TestError::Interrupted`] or [`TestError::DutDied`].
    pub(crate) fn stop_core(&mut self) -> Result<(), TestError> {
        let places = std::mem::take(&mut self.core_protocols);
        for place in &places {
            // A protocol that does not know the command has no sessions to end.
            let _ = self.rig.command_to(*place, &Command::Stop);
        }
        if !places.is_empty() {
            let ended = places.into_iter().map(Until::Ended).collect();
            if self.await_core(&Until::All(ended), ENDING)?.is_none() {
                let within = ENDING.as_secs();
                self.note(&format!(
                    "emulated P routers had not ended their sessions after {within} s: the device may keep their state until it expires"
                ));
            }
        }
        Ok(())
    }
}
