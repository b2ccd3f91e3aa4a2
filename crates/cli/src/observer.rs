//! What the command does during a run: stores records, shows progress, watches for Ctrl-C.

use crate::live::{Live, Rates, Trial, of_progress, of_record};
use crate::masked::without_secrets;
use crate::output::out;
use crate::progress::Display;
use drophammer_model::record::Record;
use drophammer_model::suite::Mask;
use drophammer_store::{RunWriter, utc_now};
use drophammer_testbed::{Observer, Progress};
use serde_json::Value;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The observer of `drophammer run`.
pub struct Watcher {
    /// The run's folder.
    pub writer: RunWriter,
    /// The display.
    pub display: Display,
    /// The page on loopback, if there is one.
    pub live: Option<Live>,
    /// Tells the rates of trials under way, if anybody is told events.
    pub rates: Option<Rates>,
    /// Whether events are printed to standard output.
    pub json: bool,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    /// Hides secrets in texts of others, such as the output of a router.
    pub mask: Mask,
}

impl Observer for Watcher {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        let masked = without_secrets(&self.mask, record)?;
        let record = &*masked;
        if let Record::Dut(dut) = record {
            for (name, text) in &dut.config {
                let path = format!("duts/{}/{name}", dut.name);
                self.writer.save_text(&path, text).map_err(|e| e.to_string())?;
            }
        }
        let Watcher { writer, rates, .. } = self;
        stored_first(|| writer.write(record).map_err(|e| e.to_string()), || end_of_trial(rates.as_mut(), record))?;
        self.tell(of_record(record));
        Ok(())
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        let hide = |text: &str| self.mask.text(text).into_owned();
        let (text, problem);
        let progress = match progress {
            Progress::Note { text: said, problem } => {
                text = hide(said);
                &Progress::Note { text: &text, problem: *problem }
            }
            Progress::TestEnded { dut, title, problem: Some(why) } => {
                problem = hide(why);
                &Progress::TestEnded { dut, title, problem: Some(&problem) }
            }
            other => other,
        };
        if let (Some(rates), Progress::Traffic { dut, test, spec, live }) = (&mut self.rates, progress) {
            rates.begin(Trial::new(dut, test, spec, live));
        }
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
    pub fn tell(&self, event: Option<Value>) {
        if let Some(event) = event {
            tell(self.live.as_ref(), self.json, event);
        }
    }
}

/// Sends an event to the page, and with `json` to standard output.
pub fn tell(live: Option<&Live>, json: bool, event: Value) {
    if json {
        out!("{event}");
    }
    if let Some(live) = live {
        live.tell(event);
    }
}

/// Stores a record, then does what may wait for a reader of events who does not read; also if it cannot be stored.
fn stored_first(store: impl FnOnce() -> Result<(), String>, then: impl FnOnce()) -> Result<(), String> {
    let stored = store();
    then();
    stored
}

/// No more rates of the trial that the record ends. One without a record of its own ends with its test.
fn end_of_trial(rates: Option<&mut Rates>, record: &Record) {
    if let (Some(rates), Record::Trial(_) | Record::Test(_) | Record::Ended(_)) = (rates, record) {
        rates.end();
    }
}

/// Signals within this time are one request. `timeout` sends its signal twice, to the program and to its process group; `make` and a
/// terminal do the same.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Ctrl-C, SIGTERM and SIGHUP set the flag. Another Ctrl-C or SIGTERM after more than a second ends the program immediately (the lab
/// ends with it). Another SIGHUP does not, because a closed terminal causes two: one from its shell, and one from the kernel when
/// the shell ends.
///
/// # Errors
/// Errors of installing a handler or of starting a thread.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let (stop, second) = first_signal()?;
    second.listen()?;
    Ok(stop)
}

/// What [`stop_flag`] does without a thread, for a process that must not have one yet. Until [`SecondSignal::listen`] no signal
/// ends the program.
///
/// # Errors
/// Errors of installing a handler.
pub fn first_signal() -> io::Result<(Arc<AtomicBool>, SecondSignal)> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (stop, ends_now) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (signals, handler) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, ends_now.clone())?;
    }
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
        signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
    }
    Ok((stop, SecondSignal { signals, ends_now }))
}

/// Decides when another signal ends the program immediately.
pub struct SecondSignal {
    /// Each signal writes a byte.
    signals: UnixStream,
    ends_now: Arc<AtomicBool>,
}

impl SecondSignal {
    /// Waits for the first signal in a thread.
    ///
    /// # Errors
    /// Errors of starting it.
    pub fn listen(mut self) -> io::Result<()> {
        let wait = move || {
            if self.signals.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ONE_REQUEST);
                self.ends_now.store(true, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_record_is_stored_before_anybody_is_waited_for() {
        let done = RefCell::new(Vec::new());
        let note = |what| done.borrow_mut().push(what);
        let store = |result: Result<(), String>| {
            note("stored");
            result
        };
        assert_eq!(stored_first(|| store(Ok(())), || note("rates ended")), Ok(()));
        assert_eq!(stored_first(|| store(Err("full".into())), || note("rates ended")), Err("full".into()));
        assert_eq!(*done.borrow(), ["stored", "rates ended", "stored", "rates ended"]);
    }
}
