//! What the command does during a run: stores records, shows progress, watches for Ctrl-C.

use crate::live::{Live, of_progress, of_record};
use crate::output::out;
use crate::progress::Display;
use drophammer_model::record::Record;
use drophammer_store::{RunWriter, utc_now};
use drophammer_testbed::{Observer, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The observer of `drophammer run`.
pub struct Watcher {
    /// The run's folder.
    pub writer: RunWriter,
    /// The display.
    pub display: Display,
    /// The page on loopback, if there is one.
    pub live: Option<Live>,
    /// Whether events are printed to standard output.
    pub json: bool,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
}

impl Observer for Watcher {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        if let Record::Dut(dut) = record {
            for (name, text) in &dut.config {
                let path = format!("duts/{}/{name}", dut.name);
                self.writer.save_text(&path, text).map_err(|e| e.to_string())?;
            }
        }
        self.writer.write(record).map_err(|e| e.to_string())?;
        self.tell(of_record(record));
        Ok(())
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        self.display.show(progress);
        self.tell(of_progress(progress));
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn time(&self) -> String {
        utc_now()
    }
}

impl Watcher {
    /// Sends an event to the page and to standard output.
    pub fn tell(&self, event: Option<serde_json::Value>) {
        let Some(event) = event else { return };
        if self.json {
            out!("{event}");
        }
        if let Some(live) = &self.live {
            live.tell(event);
        }
    }
}

/// Ctrl-C and SIGTERM set the flag; the second one ends the program at once (the lab ends with it).
///
/// # Errors
/// Errors of installing a handler.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
