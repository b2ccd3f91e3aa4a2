//! Captures of ports: in memory of this process, or of the host of the port.

use drophammer_model::trial::PortIndex;
use drophammer_rig::{Capture, CaptureOrder, CaptureSettings, Captured, Rig};
use std::sync::Arc;

/// The captures of all ports.
pub enum Captures {
    /// The ports are on this machine.
    Here(Vec<Arc<Capture>>),
    /// The ports are on other hosts: whether each capture was started, and whether it runs.
    Elsewhere(Vec<(bool, bool)>),
}

/// A file of captured frames, or its way here.
pub enum File {
    Here(Vec<u8>),
    OnItsWay(Captured),
}

impl Captures {
    /// Starts or ends the capture of a port. `origin_ns` is the wall clock at instant 0.
    ///
    /// # Errors
    /// The host of the port does not answer.
    pub fn switch(
        &mut self,
        rig: &mut Rig,
        port: PortIndex,
        start: Option<CaptureSettings>,
        origin_ns: u64,
    ) -> Result<(), String> {
        let begins = start.is_some();
        match (self, start) {
            (Captures::Here(all), Some(settings)) => all[port].start(settings, origin_ns),
            (Captures::Here(all), None) => all[port].stop(),
            (Captures::Elsewhere(all), _) if !begins && !all[port].0 => {}
            (Captures::Elsewhere(all), start) => {
                let order = start.map_or(CaptureOrder::Stop, |settings| CaptureOrder::Start { settings, origin_ns });
                rig.capture(port, &order).map_err(|e| e.to_string())?;
                all[port] = (true, begins);
            }
        }
        Ok(())
    }

    /// True while frames of a port are captured.
    pub fn is_running(&self, port: PortIndex) -> bool {
        match self {
            Captures::Here(all) => all[port].is_running(),
            Captures::Elsewhere(all) => all[port].1,
        }
    }

    /// Ends the capture of a port, and returns its file. Without a capture, it has no frames.
    ///
    /// # Errors
    /// The host of the port no longer lends it.
    pub fn file(&mut self, rig: &mut Rig, port: PortIndex, settings: &CaptureSettings) -> Result<File, String> {
        match self {
            Captures::Here(all) => {
                all[port].stop();
                Ok(File::Here(all[port].file()))
            }
            Captures::Elsewhere(all) if !all[port].0 => {
                let nothing = Capture::default();
                nothing.start(settings.clone(), 0);
                Ok(File::Here(nothing.file()))
            }
            Captures::Elsewhere(all) => {
                all[port].1 = false;
                rig.captured(port).map(File::OnItsWay).map_err(|e| e.to_string())
            }
        }
    }
}
