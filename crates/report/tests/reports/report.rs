//! Reports of a made-up run: exact figures, well-formed files, escaped hostile texts.

use crate::synthetic::{HOSTILE, SIZES, rate, report};
use drophammer_model::environment::{DutRecord, TESTER};
use drophammer_model::outcome::{Cell, PlotKind};
use drophammer_model::record::{SELF_TEST, TestRecord, TestStatus};
use drophammer_model::trial::Validity;
use drophammer_report::view::{Standing, View};
use drophammer_report::{summary_text, write_all};
use drophammer_store::Run;
use roxmltree::Document;
use std::fs;

/// The plots of a page.
fn drawings(html: &str) -> Vec<String> {
    let end = |s: &str| s.find("</svg></div>").unwrap() + 6;
    html.split("<svg class=\"plot\"").skip(1).map(|s| format!("<svg{}", &s[..end(s)])).collect()
}

#[test]
fn every_promised_file_is_there_and_nothing_else() {
    let files = report(&crate::synthetic::run(2));
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "csv/plot-forwarding.csv",
            "csv/plot-frame_loss.csv",
            "csv/plot-latency_by_size.csv",
            "csv/plot-latency_percentiles.csv",
            "csv/plot-throughput.csv",
            "csv/summary.csv",
            "csv/throughput.csv",
            "csv/trials.csv",
            "junit.xml",
            "report.html",
            "report.json",
            "report.md",
            "report.txt"
        ]
    );
}

#[test]
fn csv_holds_the_raw_figures_of_both_duts() {
    let run = crate::synthetic::run(2);
    let files = report(&run);
    let lines: Vec<&str> = files["csv/throughput.csv"].split("\r\n").collect();
    assert_eq!(
        lines[0],
        "dut,frame_bytes,theoretical_pps,offered_pps,throughput_pps,of_line_percent,width_percent,frames_per_cpu_s,marks,trials"
    );
    assert_eq!(lines.len(), 1 + 2 * SIZES.len() + 1);
    let line_rate = 1e10 / (8.0 * 84.0);
    let share = rate(0, 64) / line_rate * 100.0;
    let result = |number| &run.trials.iter().find(|t| t.result.trial == number).unwrap().result;
    let busy = |number| result(number).groups.iter().map(|g| g.received).sum::<u64>() as f64 / 0.97;
    let busy = (busy(1) + busy(2)) / 2.0;
    assert_eq!(lines[1], format!("linux,64,{line_rate},{r},{r},{share},0.25,{busy},,1 2", r = rate(0, 64)));
    // The missing cell is empty, not 0.
    let last: Vec<&str> = lines[14].split(',').collect();
    assert_eq!((&last[..2], &last[6..7], &last[8..]), (&["frr", "1518"][..], &[""][..], &["", "113 114"][..]));
    let plot = &files["csv/plot-throughput.csv"];
    assert_eq!(plot.matches(",theoretical,true,").count(), SIZES.len(), "the reference is there once");
    assert_eq!(plot.lines().count(), 1 + 3 * SIZES.len());
    assert!(plot.contains(&format!("\r\nfrr,frr,false,false,64,0,{},,,\r\n", rate(1, 64))), "{plot}");
}

#[test]
fn markdown_sets_the_table() {
    let files = report(&crate::synthetic::run(2));
    let md = &files["report.md"];
    assert!(md.contains("| DUT | Frame size \\[bytes\\] | Theoretical \\[fps\\] |"), "{md}");
    assert!(md.contains("| linux | 64 | 14,880,952 | 809,150 | 809,150 | 5.44 | 0.25 |"), "{md}");
    assert!(md.contains("| 89.77 | \u{2013} |"), "a missing cell is a dash: {md}");
    assert!(
        md.contains("> **NOT RFC-conformant (profile quick).**") && md.contains("\n- trials of 1 s instead of 60 s\n")
    );
}

#[test]
fn junit_has_a_case_per_dut_and_test() {
    let mut run = crate::synthetic::run(3);
    run.tests[1].status = TestStatus::Skipped("no <latency> here\u{1}".into());
    let files = report(&run);
    let xml = Document::parse(&files["junit.xml"]).unwrap();
    let cases: Vec<_> = xml.descendants().filter(|n| n.has_tag_name("testcase")).collect();
    assert_eq!(cases.len(), 12);
    let result = |dut: &str, test: &str| {
        let case = cases
            .iter()
            .find(|c| c.attribute("classname") == Some(dut) && c.attribute("name") == Some(test))
            .unwrap_or_else(|| panic!("{dut} {test}"));
        let child = case.children().find(|n| n.is_element() && !n.has_tag_name("system-out"));
        child.map(|n| (n.tag_name().name().to_owned(), n.attribute("message").unwrap().to_owned()))
    };
    let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
    assert_eq!(result("linux", "throughput"), None);
    assert_eq!(result("linux", "latency"), pair("skipped", "no <latency> here\u{fffd}"));
    assert_eq!(result("bird-2.17", "throughput"), pair("failure", "throughput of 64 >= 700,000 fps; found 652579 fps"));
    assert_eq!(result("bird-2.17", "route_flap"), pair("error", "the DUT died: SIGSEGV"));
    let root = xml.root_element();
    let counts = ["tests", "failures", "errors", "skipped"].map(|a| root.attribute(a).unwrap().to_owned());
    assert_eq!(counts, ["12", "1", "1", "1"]);
}

#[test]
fn html_is_one_well_formed_file_that_lets_nothing_hostile_through() {
    let mut run = crate::synthetic::run(4);
    // Every text that comes from outside, hostile.
    run.started.title = HOSTILE.into();
    run.started.deviations.push(HOSTILE.into());
    run.started.duts[0] = HOSTILE.into();
    run.duts[0].name = HOSTILE.into();
    run.duts[0].version = HOSTILE.into();
    run.duts[0].config.insert(HOSTILE.into(), HOSTILE.into());
    for t in &mut run.trials {
        t.spec.purpose = HOSTILE.into();
        t.result.groups[0].group = HOSTILE.into();
        t.dut = t.dut.replace("linux", HOSTILE);
    }
    for t in run.tests.iter_mut() {
        t.dut = t.dut.replace("linux", HOSTILE);
        for p in &mut t.outcome.plots {
            p.title = HOSTILE.into();
            p.events.push((1.0, HOSTILE.into()));
            for s in &mut p.series {
                s.name = HOSTILE.into();
                s.points.iter_mut().filter(|p| p.label.is_some()).for_each(|p| p.label = Some(HOSTILE.into()));
            }
        }
        for table in &mut t.outcome.tables {
            table.title = HOSTILE.into();
            table.rows[0].cells[0] = Cell::from(HOSTILE);
            table.rows[0].marks.push(HOSTILE.into());
        }
    }
    let files = report(&run);
    let html = &files["report.html"];
    assert_eq!(html.matches("<script").count(), 1, "our own and no other");
    assert!(html.matches("&lt;script&gt;alert(").count() > 100);
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    // Every drawing is well-formed XML by itself.
    let drawings = drawings(html);
    assert_eq!(drawings.len(), 5);
    for d in drawings {
        let text = d.replace('\u{1b}', "");
        if let Err(e) = Document::parse(&text) {
            panic!("{e}");
        }
    }
    assert!(!files["report.txt"].contains('\u{1b}'), "no escape sequence reaches the terminal");
    assert!(!files["report.md"].contains("<script"));
    Document::parse(&files["junit.xml"]).unwrap();
}

#[test]
fn html_tells_figures_conditions_and_marks() {
    let files = report(&crate::synthetic::run(4));
    let html = &files["report.html"];
    for text in [
        "NOT RFC-conformant (profile quick).",
        "<li>1 repetition instead of 20</li>",
        "14,880,952",
        "tester-limited",
        "invalid: held off the processor for 12 ms",
        "184 \u{b5}s",
        "210 ns / 5.4 \u{b5}s",
        ">simulated<",
        "Route flap on bird-2.17: failed: the DUT died: SIGSEGV",
        "frr: converged",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(drawings(html).iter().all(|d| !d.contains("NaN") && !d.contains("inf")));
}

#[test]
fn json_is_complete_and_raw() {
    let run = crate::synthetic::run(3);
    let rounds = crate::synthetic::in_rounds(&run, 6);
    let ranked: serde_json::Value = serde_json::from_str(&report(&rounds)["report.json"]).unwrap();
    assert_eq!(ranked["ranking"]["figures"][0]["duts"][1]["tied"], true);
    assert_eq!(ranked["ranking"]["figures"][0]["duts"][1]["rounds"].as_array().unwrap().len(), 6);
    let json: serde_json::Value = serde_json::from_str(&report(&run)["report.json"]).unwrap();
    assert_eq!(json["state"], "complete");
    assert_eq!(json["trials"].as_array().unwrap().len(), run.trials.len());
    assert_eq!(json["tests"][0]["tables"][0]["rows"][13]["cells"]["width_percent"], serde_json::Value::Null);
    assert_eq!(json["tests"][0]["tables"][0]["rows"][0]["cells"]["throughput_pps"], rate(0, 64));
    assert_eq!(json["ranking"]["overall"][0]["dut"], "linux");
    assert_eq!(json["ranking"]["figures"][0]["duts"][1]["rank"], serde_json::Value::Null, "one round");
}

#[test]
fn a_cut_off_run_reports_what_there_is_and_is_not_green() {
    let mut run = crate::synthetic::run(2);
    run.ended = None;
    run.warnings = vec!["the last record (line 9) was cut off in mid-write and is left out".into()];
    // Killed within the throughput test of the second DUT.
    run.tests.truncate(4);
    run.trials.retain(|t| t.dut == "linux" || t.test == "throughput");
    let view = View::new(&run);
    assert_eq!(view.sections[0].results[1].standing, Standing::CutOff);
    assert_eq!(view.sections[1].results[1].standing, Standing::NotReached);
    assert!(view.ranking.figures.iter().all(|f| f.entries[1].value().is_none()));
    assert_eq!(view.ranking.figures[2].entries[1].rank, None, "not reached is not ranked");
    let files = report(&run);
    for file in ["report.html", "report.txt", "report.md"] {
        assert!(files[file].contains("cut off: the run has no end record"), "{file}");
        assert!(files[file].contains("cut off in mid-write"), "{file}");
    }
    assert_eq!(files["csv/trials.csv"].lines().filter(|l| l.contains(",frr,throughput,")).count(), 28);
    let xml = Document::parse(&files["junit.xml"]).unwrap();
    assert_eq!(xml.root_element().attribute("errors"), Some("4"));
    let summary = summary_text(&run, false);
    assert!(summary.contains("not measured") && summary.contains("Continue this run"), "{summary}");
    // A self-test cannot be resumed.
    run.started.profile = SELF_TEST.into();
    assert!(!summary_text(&run, false).contains("Continue this run"));
}

#[test]
fn an_empty_run_reports() {
    let mut run = crate::synthetic::run(1);
    run.duts.clear();
    run.trials.clear();
    run.tests.clear();
    run.ended = None;
    let files = report(&run);
    assert!(files["report.html"].contains("It did not come up."));
    assert!(files["report.html"].contains("not reached before the run ended"));
}

#[test]
fn plots_of_nothing_of_zeros_and_of_one_point_are_drawn() {
    let mut run = crate::synthetic::run(2);
    for t in &mut run.tests {
        for p in &mut t.outcome.plots {
            p.log_y = true;
            for s in &mut p.series {
                s.points.truncate(if p.kind == PlotKind::Percentiles { 0 } else { 1 });
                s.points.iter_mut().for_each(|p| (p.y, p.range) = (0.0, None));
            }
        }
    }
    let html = &report(&run)["report.html"];
    assert!(html.contains("No points: nothing was measured."));
    let drawings = drawings(html);
    assert_eq!(drawings.len(), 4);
    assert!(drawings.iter().all(|d| !d.contains("NaN") && !d.contains("inf")), "no coordinate is lost");
}

#[test]
fn a_folder_that_cannot_be_made_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = write_all(&crate::synthetic::run(1), &file.join("report")).unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("choose another folder"), "{error}");
}

#[test]
fn a_run_that_went_through_the_store_gives_the_same_report() {
    use drophammer_model::record::Record;
    let made = crate::synthetic::run(4);
    let folder = tempfile::tempdir().unwrap();
    let mut writer = drophammer_store::RunWriter::create_exact(folder.path()).unwrap();
    let mut records = vec![Record::Started(Box::new(made.started.clone()))];
    records.extend(made.duts.iter().cloned().map(Record::Dut));
    records.extend(made.trials.iter().cloned().map(|t| Record::Trial(Box::new(t))));
    records.extend(made.tests.iter().cloned().map(|t| Record::Test(Box::new(t))));
    records.extend(made.notes.iter().cloned().map(Record::Note));
    records.push(Record::Ended(made.ended.clone().unwrap()));
    records.iter().for_each(|r| writer.write(r).unwrap());
    let read = drophammer_store::RunReader::open(folder.path()).unwrap();
    assert_eq!(read.trials, made.trials);
    assert_eq!(read.tests, made.tests);
    assert!(report(&read) == report(&made));
}

/// Adds the tester's own loop before a run, as the runner does.
fn with_ceiling(mut run: Run) -> Run {
    let record = |name: &str| {
        let kind = drophammer_model::environment::TESTER_KIND.to_owned();
        let confinement = "loop on processor 1 alone".to_owned();
        DutRecord { name: name.into(), kind, confinement, ..Default::default() }
    };
    run.duts.insert(0, record(TESTER));
    run.trials.insert(0, crate::synthetic::trial(5_000, TESTER, "tester_ceiling", 64, 3e5, 0));
    let mut test = run.tests[0].clone();
    (test.dut, test.test, test.title) = (TESTER.into(), "tester_ceiling".into(), "Tester ceiling".into());
    test.outcome.plots.clear();
    test.outcome.verdicts.clear();
    let table = &mut test.outcome.tables[0];
    (table.key, table.title) = ("tester_ceiling".into(), "Without router".into());
    table.rows.truncate(1);
    table.rows[0].trials = vec![5_000];
    // Even with a figure for the ranking the tester is not a router.
    run.tests.insert(0, test);
    run
}

#[test]
fn the_tester_is_no_router() {
    let plain = crate::synthetic::run(3);
    let run = with_ceiling(plain.clone());
    let (before, after) = (View::new(&plain), View::new(&run));
    assert_eq!(after.ranking, before.ranking);
    assert_eq!(after.problems(), before.problems());
    let one_more = summary_text(&plain, false).replace("Of 133 trials", "Of 134 trials");
    assert_eq!(summary_text(&run, false), one_more);
    assert_eq!(after.sections.len(), before.sections.len());
    assert_eq!((after.ceiling.len(), after.ceiling[0].results.len()), (1, 1));
    let files = report(&run);
    let html = &files["report.html"];
    for text in ["<h2>Tester ceiling</h2>", "loop on processor 1 alone", "<h3>Without router <a ", "<b>3</b> DUTs"] {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("<h2>").count(), report(&plain)["report.html"].matches("<h2>").count() + 1);
    assert!(files["csv/tester_ceiling.csv"].contains("\r\ntester,64,"));
    assert_eq!(files["junit.xml"], report(&plain)["junit.xml"]);
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    assert_eq!(json["tester"]["tests"][0]["results"][0]["dut"], TESTER);
    assert_eq!(json["duts"].as_array().unwrap().len(), 3);
    // A failed ceiling is a problem of the tester, not of a router.
    let mut broken = run.clone();
    broken.tests[0].status = TestStatus::Failed("no room".into());
    let new: Vec<_> = View::new(&broken).problems().into_iter().filter(|p| !before.problems().contains(p)).collect();
    assert_eq!(new, ["Tester ceiling on tester: failed: no room"]);
    // The kind and the suite's list decide: a router of the suite with this name is still a router.
    let mut named = run.clone();
    named.started.duts.push(TESTER.into());
    assert!(View::new(&named).tester.is_none());
    assert_eq!(View::new(&named).duts.len(), 4);
}

#[test]
fn deviations_are_grouped_and_short_in_the_terminal() {
    let mut run = crate::synthetic::run(1);
    let lines = ["Throughput: pause of 100 ms", "Latency: pause of 100 ms", "Latency: 1 frame size", "all of it"];
    run.started.deviations = lines.map(str::to_owned).to_vec();
    let view = View::new(&run);
    let expected = [("pause of 100 ms", vec!["Throughput", "Latency"]), ("1 frame size", vec!["Latency"])];
    assert_eq!(view.deviations()[..2], expected.map(|(text, tests)| (text.to_owned(), tests)));
    assert_eq!(view.deviations()[2], ("all of it".into(), vec![]));
    let text = summary_text(&run, false);
    assert!(text.contains("NOT RFC-conformant (profile quick): 3 deviations, listed in the report\n"), "{text}");
    assert!(!text.contains("pause of"), "{text}");
    let files = report(&run);
    assert!(files["report.html"].contains("<li>pause of 100 ms <small>Throughput, Latency</small></li>"));
    assert!(files["report.txt"].contains("\npause of 100 ms \u{2013} Throughput, Latency\n"));
    run.started.conformant = true;
    assert!(!summary_text(&run, false).contains("RFC-conformant"));
}

#[test]
fn a_run_that_did_less_than_it_was_asked_is_not_conformant() {
    let mut asked = crate::synthetic::run(2);
    (asked.started.conformant, asked.started.deviations) = (true, vec![]);
    asked.started.profile = "conformant".into();
    let found = |run: &Run| {
        let json: serde_json::Value = serde_json::from_str(&report(run)["report.json"]).unwrap();
        let marked = summary_text(run, false).contains("NOT RFC-conformant (profile conformant): 1 deviation, listed");
        let green = report(run)["report.html"].contains("RFC durations");
        assert_eq!((json["conformant"] == false, green), (marked, !marked));
        json["deviations"].as_array().unwrap().iter().map(|d| d.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(found(&asked).is_empty());
    let mut retreated = asked.clone();
    retreated.tests[0].outcome.deviations.push("64 bytes: loads up to 500 kfps instead of line rate".into());
    let line = "linux: 64 bytes: loads up to 500 kfps instead of line rate \u{2013} Throughput";
    assert_eq!(found(&retreated), [line]);
    assert_eq!(found(&crate::synthetic::in_rounds(&retreated, 6)), [line], "once, not once per round");
    let mut spoilt = asked.clone();
    spoilt.tests[1].status = TestStatus::Unfit("the host was busy".into());
    assert_eq!(found(&spoilt), ["linux: not completed \u{2013} Latency"]);
    // The death of a DUT is a failure of the DUT.
    let mut died = asked.clone();
    died.tests[1].status = TestStatus::Failed("the DUT died".into());
    assert!(found(&died).is_empty());
}

#[test]
fn the_summary_fits_a_terminal_of_100_columns() {
    let mut run = crate::synthetic::run(4);
    run.started.title = "A long title, ".repeat(20);
    run.tests[0].status = TestStatus::Failed("much to tell ".repeat(40));
    for test in &mut run.tests {
        for figure in &mut test.outcome.ranks {
            figure.title += " that says very much of how it was found and where";
            figure.tester_limited = true;
        }
    }
    let text = summary_text(&run, false);
    assert!(text.contains("\u{2020} tester-limited"), "{text}");
    for line in text.lines() {
        let width = if line.starts_with("! ") { 160 } else { 100 };
        assert!(line.chars().count() <= width, "{}: {line}", line.chars().count());
    }
    for name in crate::synthetic::NAMES {
        assert!(text.lines().any(|l| l.contains("\u{2506}") && l.contains(name)), "{name} has a column: {text}");
    }
    assert!(report(&run)["report.txt"].contains(&"much to tell ".repeat(40)), "the report has it in full");
}

#[test]
fn an_id_of_the_suite_names_the_section() {
    let mut run = crate::synthetic::run(1);
    for (id, title) in [("2", "Throughput"), ("small", "Throughput")] {
        run.started.tests.push(("throughput".into(), title.into()));
        let again = TestRecord { id: Some(id.into()), ..run.tests[0].clone() };
        run.tests.push(again);
    }
    let names = |run: &Run| -> Vec<(String, String, bool)> {
        let view = View::new(run);
        let of_test = view.sections.iter().filter(|s| s.test == "throughput");
        of_test.map(|s| (s.id.clone(), s.title.clone(), s.first)).collect()
    };
    let section = |id: &str, title: &str, first| (id.to_owned(), title.to_owned(), first);
    let plain = section("throughput", "Throughput", true);
    let small = section("throughput-small", "Throughput (small)", false);
    assert_eq!(names(&run), [plain, section("throughput-2", "Throughput (2)", false), small.clone()]);
    // The first has the number of the second as its id, and the second has none.
    let at: Vec<_> = (0..run.tests.len()).filter(|i| run.tests[*i].id.as_deref() == Some("2")).collect();
    run.tests[at[0]].id = None;
    for test in run.tests.iter_mut().filter(|t| t.test == "throughput" && t.dut == crate::synthetic::NAMES[0]).take(1) {
        test.id = Some("2".into());
    }
    let first = section("throughput-2", "Throughput (2)", true);
    assert_eq!(names(&run), [first, section("throughput-2-again", "Throughput (2)", false), small]);
}

#[test]
fn a_test_twice_has_its_own_trials_twice() {
    let mut run = crate::synthetic::run(1);
    let first = run.trials.iter().filter(|t| t.test == "throughput").count();
    run.started.tests.push(("throughput".into(), "Throughput".into()));
    run.tests.push(run.tests[0].clone());
    for number in [7_000, 7_001] {
        run.trials.push(crate::synthetic::trial(number, crate::synthetic::NAMES[0], "throughput", 64, 3e5, 0));
        run.earlier.insert(number, 1);
    }
    let view = View::new(&run);
    let twice: Vec<_> = view.sections.iter().filter(|s| s.test == "throughput").collect();
    assert_eq!((twice[0].id.as_str(), twice[0].results[0].trials.len()), ("throughput", first));
    assert_eq!((twice[1].id.as_str(), twice[1].results[0].trials.len()), ("throughput-2", 2));
    // Cut off within the second: its trials are not lost, and the first stays complete.
    run.tests.pop();
    let view = View::new(&run);
    assert_eq!(view.sections[0].results[0].standing, Standing::Ended(TestStatus::Completed));
    assert_eq!(view.sections[4].results[0].standing, Standing::CutOff);
    assert_eq!(view.sections[4].results[0].trials.len(), 2);
}

#[test]
fn what_was_not_measured_is_a_gap_and_an_invalid_trial_is_hollow() {
    let mut run = crate::synthetic::run(2);
    let bars = &mut run.tests[4].outcome.plots[0].series[0];
    assert_eq!(bars.name, "");
    bars.points.remove(3);
    let html = &report(&run)["report.html"];
    assert_eq!(html.matches(">n/a<title>frr, 512: no value</title>").count(), 1);
    assert_eq!(report(&crate::synthetic::run(2))["report.html"].matches(">n/a<").count(), 0);
    assert_eq!(html.matches("class=\"dot invalid\"").count(), 0);
    let number = run.tests[2].outcome.plots[0].series[1].points[5].trial.unwrap();
    let spoilt = run.trials.iter_mut().find(|t| t.result.trial == number).unwrap();
    spoilt.result.validity = Validity::Invalid(vec!["late".into()]);
    let html = &report(&run)["report.html"];
    assert_eq!(html.matches("class=\"dot invalid\"").count(), 1);
    assert!(html.contains("hollow: 1 invalid trials"));
}

#[test]
fn every_trial_is_told_once_and_rows_refer_to_it() {
    let run = crate::synthetic::run(4);
    let html = &report(&run)["report.html"];
    for t in &run.trials {
        assert_eq!(html.matches(&format!("<tbody id=\"t{}\"", t.result.trial)).count(), 1);
    }
    for reference in html.split("href=\"#t").skip(1).filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        let number = reference.split('"').next().unwrap();
        assert!(html.contains(&format!("id=\"t{number}\"")), "{number}");
    }
    assert!(html.contains("href=\"#t1\">1</a>"));
    let each = crate::synthetic::without_data(html).len() / run.trials.len();
    assert!(each < 3_000, "{each} bytes per trial");
}
