//! The page of a run in a browser: rates that move, and the button that stops the run.

use crate::common::devtools::Page;
use crate::common::{kind_of, on_terminal, records, suite};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const DUT: &str = "  - {name: known, kind: reference, capacity: 100 kfps}\n";
/// The second one takes far longer than this test.
const TESTS: &str =
    "  - forwarding_rate: {repeats: 2, trial_duration: 100 ms}\n  - frame_loss_rate: {trial_duration: 600 s}\n";

/// A run on a terminal of its own. Dropping this ends the run.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The terminal hangs up, and the run ends.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first number of a text, without its commas.
fn number(text: &str) -> u64 {
    text.split(' ').next().unwrap().replace(',', "").parse().unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn the_page_shows_rates_as_they_move_and_its_button_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), DUT, TESTS);
    let (out, profile) = (dir.path().join("out"), dir.path().join("browser"));
    std::fs::create_dir(&profile).unwrap();
    let program = env!("CARGO_BIN_EXE_drophammer");
    let command = format!("'{program}' run '{}' --out '{}' --live --plain", path.display(), out.display());
    // The program shows the token only on a terminal.
    let Some(mut script) = on_terminal(&command) else { return };
    let mut script = script.stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(script.stdout.take().unwrap()).lines();
    let mut running = Running(script);
    let address = told.find_map(|line| line.unwrap().trim().strip_prefix("live page: ").map(str::to_owned)).unwrap();
    assert!(address.contains('#'), "{address}");
    // Read the rest, so that the run does not block.
    let rest = std::thread::spawn(move || told.map_while(Result::ok).collect::<Vec<_>>());
    let Some(mut page) = Page::open(&address, &profile) else {
        println!("NOT CHECKED: no Chromium is installed; remedy: apt-get install chromium");
        return;
    };

    let first = page.await_text("rates", "text.includes('fps offered')");
    let second = page.await_text("rates", &format!("text.includes('fps offered') && text !== {first:?}"));
    for text in [&first, &second] {
        let received = text.split("fps offered, ").nth(1).unwrap();
        // 1 Gbit/s carries 1,488,095 frames of 64 bytes per second, of which the router forwards 100,000.
        assert!(number(text).abs_diff(1_488_095) < 20_000 && number(received).abs_diff(100_000) < 5_000, "{text}");
        assert!(text.contains("known, frame_loss_rate, 64") && text.contains(" lost so far, "), "{text}");
    }
    let curves = page.evaluate("[...document.querySelectorAll('#curves polyline')].map((it) => it.points.length)");
    assert!(curves[0].as_u64().unwrap() >= 2 && curves[0] == curves[1], "{curves}");
    assert_eq!(page.evaluate("document.getElementById('title').textContent"), "A small one");
    assert_eq!(page.evaluate("document.getElementById('trials').children.length"), 2);

    // First a request fails, then requests are answered again.
    let now = page.await_text("now", "text.includes(' on known, ')");
    page.evaluate("window.asks = fetch; fetch = () => Promise.reject(new Error('no answer')); true");
    page.await_text("now", "text === 'the run does not answer'");
    page.evaluate("fetch = window.asks; true");
    assert_eq!(page.await_text("now", "text !== 'the run does not answer'"), now);
    // An error in drawing says nothing about the run, and the page goes on asking.
    page.evaluate("window.draws = draw; window.drawn = 0; draw = () => { drawn += 1; throw new Error('page'); }; true");
    page.evaluate("new Promise((done) => { const look = () => drawn > 2 ? done(1) : setTimeout(look, 20); look(); })");
    assert_eq!(page.await_text("now", "true"), now);
    page.evaluate("draw = window.draws; true");

    page.click("stop");
    page.await_text("now", "text === 'stopped; what was measured is in the report'");
    assert_eq!(page.asked, ["Stop the run? What was measured is kept."]);
    assert_eq!(
        page.evaluate("document.getElementById('running').hidden && document.getElementById('stop').hidden"),
        true
    );
    let status = running.0.wait().unwrap();
    let rest = rest.join().unwrap();
    // As after Ctrl-C.
    assert_eq!(status.code(), Some(130), "{rest:#?}");
    let records = records(&out);
    let last = records.last().unwrap();
    assert_eq!((kind_of(last), last["interrupted"].as_bool()), ("ended", Some(true)));
    let test = records.iter().find(|record| kind_of(record) == "test").unwrap();
    assert_eq!((&test["test"], &test["status"]["status"]), (&"forwarding_rate".into(), &"completed".into()), "{test}");
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("100,000"), "the figure of the test that was complete");
}
