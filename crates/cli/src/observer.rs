//! The actions of the command during a run: it stores records, shows progress, and watches for Ctrl-C.

use crate::Failure;
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
    pub writer: RunWriter,
    pub display: Display,
    /// The page on loopback.
    pub live: Option<Live>,
    /// Reports the rates of the current trial, if events are sent anywhere.
    pub rates: Option<Rates>,
    /// True if events are printed to standard output.
    pub json: bool,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    /// Hides secrets in texts that do not come from the program, such as the output of a router.
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

/// Sends an event to the page, and if `json` is set to standard output.
pub fn tell(live: Option<&Live>, json: bool, event: Value) {
    if json {
        out!("{event}");
    }
    if let Some(live) = live {
        live.tell(event);
    }
}

/// Stores a record first, because `then` may have to wait for a slow reader of events. Calls `then` even if storing fails.
fn stored_first(store: impl FnOnce() -> Result<(), String>, then: impl FnOnce()) -> Result<(), String> {
    let stored = store();
    then();
    stored
}

/// Stops the rates of the trial that the record ends. A trial without its own record ends with its test.
fn end_of_trial(rates: Option<&mut Rates>, record: &Record) {
    if let (Some(rates), Record::Trial(_) | Record::Test(_) | Record::Ended(_)) = (rates, record) {
        rates.end();
    }
}

/// Signals within this time count as one request: `timeout`, `make` and a terminal send a signal twice, to the program
/// and to its process group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Ctrl-C, SIGTERM and SIGHUP set the flag. Another Ctrl-C or SIGTERM after more than a second ends the program
/// immediately, and the lab with it. Another SIGHUP does not, because closing a terminal causes two: one from its
/// shell, and one from the kernel when the shell ends.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let (stop, second) = first_signal()?;
    second.listen()?;
    Ok(stop)
}

/// Like [`stop_flag`], but without its thread, for a process that must not start a thread yet. No signal ends the
/// program until [`SecondSignal::listen`].
pub fn first_signal() -> Result<(Arc<AtomicBool>, SecondSignal), Failure> {
    register().map_err(deaf)
}

fn deaf(error: io::Error) -> Failure {
    Failure::environment(format!("cannot listen for Ctrl-C: {error}"))
}

fn register() -> io::Result<(Arc<AtomicBool>, SecondSignal)> {
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
    /// Receives a byte for each signal.
    signals: UnixStream,
    ends_now: Arc<AtomicBool>,
}

impl SecondSignal {
    /// Starts a thread that waits for the first signal.
    pub fn listen(mut self) -> Result<(), Failure> {
        let wait = move || {
            if self.signals.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ONE_REQUEST);
                self.ends_now.store(true, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(deaf)
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
