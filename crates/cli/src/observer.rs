//! What the command does during a run: stores records, shows progress, watches for Ctrl-C.

use crate::live::{Live, Rates, Trial, of_progress, of_record};
use crate::output::out;
use crate::progress::Display;
use drophammer_model::record::Record;
use drophammer_model::suite::Mask;
use drophammer_store::{RunWriter, utc_now};
use drophammer_testbed::{Observer, Progress};
use serde_json::Value;
use std::borrow::Cow;
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
        // A trial that ends without a record of its own ends with its test.
        if let (Some(rates), Record::Trial(_) | Record::Test(_) | Record::Ended(_)) = (&mut self.rates, record) {
            rates.end();
        }
        let record = &*without_secrets(&self.mask, record);
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

/// The record with its secrets hidden.
fn without_secrets<'r>(mask: &Mask, record: &'r Record) -> Cow<'r, Record> {
    let text = if mask.is_empty() { None } else { serde_json::to_string(record).ok() };
    let Some(text) = text.filter(|text| !mask.leaves(text)) else { return Cow::Borrowed(record) };
    let masked = serde_json::from_str(&text).and_then(|mut value| {
        mask.json(&mut value);
        serde_json::from_value(value)
    });
    // A secret that is a word of the format is no secret there.
    masked.map_or(Cow::Borrowed(record), Cow::Owned)
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

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::record::Note;

    #[test]
    fn a_secret_in_a_text_of_others_is_not_recorded() {
        let note = |text: &str| {
            Record::Note(Note { time: "2026-01-01T00:00:00Z".into(), dut: None, text: text.into(), problem: true })
        };
        let said = note("% Unknown command: neighbor 198.18.1.2 password sesame");
        let mask = Mask::of(["sesame"]);
        assert_eq!(*without_secrets(&mask, &said), note("% Unknown command: neighbor 198.18.1.2 password <secret>"));
        assert_eq!(*without_secrets(&Mask::default(), &said), said);
        // A record stays one, even if the key is a word of the format.
        assert_eq!(*without_secrets(&Mask::of(["note"]), &note("x")), note("x"));
    }
}
