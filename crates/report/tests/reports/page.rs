//! The page: its first screen, and the parts that are built only when they are opened.

use crate::synthetic::files;
use drophammer_store::Run;

/// The page and the JSON report of a run.
fn report(run: &Run) -> (String, serde_json::Value) {
    let [html, json] = files(run, ["report.html", "report.json"]);
    (html, serde_json::from_str(&json).unwrap())
}

/// The page before its list of contents.
fn first_screen(html: &str) -> &str {
    &html[..html.find("<nav>").unwrap()]
}

#[test]
fn the_first_screen_has_verdict_conclusion_figures_devices_and_ports() {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(3), 6);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    run.started.about.facts = vec![pair("by", "Jane Doe"), pair("place", "lab <3>")];
    run.started.about.duts = vec![("frr".into(), vec![pair("serial number", "A&1")])];
    let (html, json) = report(&run);
    let first = first_screen(&html);
    for text in [
        "2 of 3 criteria of the suite met",
        "linux and frr lead in Throughput, 64 bytes",
        "<dt>by</dt><dd>Jane Doe</dd>",
        "<dd>lab &lt;3&gt;</dd>",
        "serial number: <b>A&amp;1</b>",
        "frr 10.3",
        "10 Gbit/s, af_packet",
        "3 DUTs in turn",
    ] {
        assert!(first.contains(text), "{text}");
    }
    // One figure of each test that has ranks: throughput, latency, route flap.
    let drawn: Vec<_> = first.split("<figure class=\"key\"").skip(1).collect();
    assert_eq!(drawn.len(), 3);
    for (figure, (test, rows)) in drawn.iter().zip([("throughput", 3), ("latency", 2), ("route_flap", 2)]) {
        assert!(figure.contains(&format!("href=\"#test-{test}\"")), "{test}");
        // A dot per round, an interval and a median for each DUT that has the figure.
        assert_eq!(figure.matches("class=\"dot\"").count(), rows * 6, "{test}");
        assert_eq!(figure.matches("class=\"median\"").count(), rows, "{test}");
        assert_eq!(figure.matches("class=\"interval\"").count(), rows, "{test}");
        assert!(!figure.contains("NaN") && !figure.contains("inf\""), "{test}");
    }
    assert_eq!(json["started"]["about"]["facts"][0][1], "Jane Doe");
    // Without facts, criteria or a device that came up, the screen omits them and invents nothing.
    let mut bare = crate::synthetic::run(1);
    bare.duts.clear();
    bare.tests.iter_mut().for_each(|t| t.outcome.verdicts.clear());
    let (html, _) = report(&bare);
    let first = first_screen(&html);
    assert!(first.contains("did not come up") && !first.contains("criteria") && !first.contains("class=\"topology\""));
}

#[test]
fn many_trials_are_text_until_they_are_opened() {
    let mut run = crate::synthetic::run(2);
    crate::synthetic::lengthen(&mut run, 1_000);
    let (html, _) = report(&run);
    // The content that scripts build is in `noscript`, so the page's tree contains no trial before that.
    let mut outside = String::new();
    let mut lists = 0;
    for (i, part) in html.split("<noscript>").enumerate() {
        let (list, rest) = part.split_once("</noscript>").unwrap_or(("", part));
        assert_eq!(i > 0, !list.is_empty());
        assert!(list.matches("<tbody").count() <= 250, "a part is built at once");
        lists += list.matches("<tbody").count();
        outside += rest;
    }
    assert_eq!(lists, 1_000);
    assert!(!outside.contains("<tbody id=\"t"));
    assert!(html.contains("Trials 1 to "), "parts are named");
}

#[test]
fn published_figures_stand_beside_those_of_their_test() {
    let mut run = crate::synthetic::run(2);
    run.started.about.published.push(drophammer_model::environment::Published {
        test: "latency".into(),
        title: "Routers of 1989".into(),
        source: "a document".into(),
        meaning: Some("Under light load.".into()),
        columns: vec!["router".into(), "delay".into()],
        rows: vec![vec!["old one".into(), "< 3 ms".into()]],
        ..Default::default()
    });
    let [html, text, markdown] = files(&run, ["report.html", "report.txt", "report.md"]);
    let (from, to) = (
        html.find("<section id=\"test-latency\"").unwrap(),
        html.find("<section id=\"test-frame_loss_rate\"").unwrap(),
    );
    assert_eq!(html.matches("Routers of 1989").count(), 1);
    for part in ["Routers of 1989", "published: a document", "Under light load.", "old one", "&lt; 3 ms"] {
        assert!(html[from..to].contains(part), "{part}");
    }
    for words in [text, markdown] {
        for part in ["Routers of 1989 (published: a document). Under light load.", "old one"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
}

#[test]
fn the_conclusion_names_what_is_not_compared() {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), 6);
    let names: Vec<_> = run.duts.iter().map(|dut| dut.name.clone()).collect();
    let (routes, loads) = ("Figures of routes compare different work", "measured at different loads");
    let html = report(&run).0;
    assert!(!first_screen(&html).contains(routes) && !first_screen(&html).contains(loads));
    // One installs its routes in the forwarding plane, the other does not; one is measured at half of the other's load.
    for (dut, installs) in run.duts.iter_mut().zip([true, false]) {
        dut.installs_routes = Some(installs);
    }
    for record in run.tests.iter_mut().filter(|record| record.test == "latency") {
        let load = if record.dut == names[0] { 100_000.0 } else { 50_000.0 };
        record.outcome.ranks.iter_mut().for_each(|rank| rank.load_pps = Some(load));
    }
    let (html, json) = report(&run);
    let first = first_screen(&html);
    let label = |at: usize| json["duts"][at]["label"].as_str().unwrap_or(&names[at]).to_owned();
    assert!(first.contains(&format!("{routes}: only {} put", label(0))), "{first}");
    assert!(first.contains(loads), "{first}");
    let figures = json["ranking"]["figures"].as_array().unwrap();
    let latency: Vec<_> = figures.iter().filter(|f| f["key"].as_str().unwrap().starts_with("latency_")).collect();
    assert!(!latency.is_empty());
    for figure in latency {
        for dut in figure["duts"].as_array().unwrap() {
            assert!(dut["rank"].is_null(), "{figure}");
        }
    }
}

#[test]
fn lost_frames_are_told_with_their_causes() {
    use drophammer_model::trial::{Held, LossEpisode, Losses};
    let mut run = crate::synthetic::run(1);
    let (html, _) = report(&run);
    assert!(!html.contains("without overload") && !html.contains("class=\"loss\""), "older runs have no times");
    let at = run.trials.iter().position(|t| t.test == "throughput" && t.result.validity.is_valid()).unwrap();
    let trial = &mut run.trials[at];
    let episode = |from_ns, lost| LossEpisode { from_ns, to_ns: from_ns + 1_000, lost, flows: 2, groups: vec![0] };
    trial.result.losses =
        Losses { within_ns: 2_000_000, episodes: vec![episode(100_000_000, 7), episode(600_000_000, 1)] };
    trial.result.health.gap_times = vec![Held { from_ns: 598_000_000, ns: 3_000_000 }];
    let number = trial.result.trial;
    let (html, json) = report(&run);
    let text = "trials lost frames without overload, in 2 episodes: 1 near a gap of the tester, 1 unexplained";
    assert!(html.contains(text));
    for words in files(&run, ["report.txt", "report.md"]) {
        assert!(words.contains(&format!("{text}.")), "{words}");
    }
    for part in ["class=\"cause unexplained\"", "class=\"cause tester\"", "2 flows of IPv4"] {
        assert!(html.contains(part), "{part}");
    }
    let tests = json["tests"].as_array().unwrap();
    let losses = &tests.iter().find(|t| t["test"] == "throughput").unwrap()["results"][0]["losses"];
    assert_eq!(losses["below_overload"], 1);
    assert!(losses["text"].as_str().unwrap().ends_with(text), "{losses}");
    assert_eq!(losses["lossy"], serde_json::json!([{"trial": number, "causes": ["unexplained", "tester"]}]));
}
