//! The rig: ports and what is emulated behind them.

use crate::config::Config;
use crate::hosts::{Acts, Hosts};
use crate::ports::Ports;
use drophammer_model::Instant;
use drophammer_model::trial::TrialResult;
use drophammer_port::PortError;
use drophammer_traffic::{LaneError, Plan};
use std::time::Duration;

/// Ports, their clock, and the emulated devices behind them.
pub struct Rig {
    /// Ports with their clock.
    pub ports: Ports,
    /// Emulated hosts and routers, one host per port.
    pub hosts: Hosts,
}

impl Rig {
    /// A rig of these ports with what `config` says behind them.
    ///
    /// # Panics
    /// When `config` is of more or fewer ports.
    pub fn new(ports: Ports, config: &Config) -> Rig {
        assert_eq!(ports.len(), config.ports.len(), "each port is configured");
        Rig { ports, hosts: Hosts::new(config) }
    }

    /// Now, by the clock of the ports.
    pub fn now(&self) -> Instant {
        self.ports.clock().now()
    }

    /// Serves the emulated devices for `time`, or until `enough` says so; it is asked whenever they may have something new. Frames
    /// for none of them are dropped.
    ///
    /// # Errors
    /// The port's.
    pub fn serve(&mut self, time: Duration, enough: &mut dyn FnMut(Instant, &Hosts) -> bool) -> Result<(), PortError> {
        let end = self.now() + time;
        self.ports.serve(&mut self.hosts, end, enough)
    }

    /// Runs `plan` to its end, or until `stopped`; at event i the devices do what `acts[i]` says. `plan` is laid out for
    /// [`Ports::layout`] or fewer lanes.
    ///
    /// # Errors
    /// A port that stopped working, a thread that failed.
    pub fn run(&mut self, plan: Plan, acts: Acts<'_>, stopped: &dyn Fn() -> bool) -> Result<TrialResult, LaneError> {
        self.ports.run(plan, &mut self.hosts, acts, stopped)
    }

    /// Time that a hypervisor took from the processor of each thread since boot, in ns; `None` where that is not known.
    pub fn stolen(&self) -> Option<Vec<u64>> {
        crate::processors::stolen(&self.ports)
    }
}
