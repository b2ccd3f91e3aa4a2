//! Plots of routes: skylines, stairs, sorted curves, events, long series and long lists.

#[path = "../synthetic/routes.rs"]
mod routes;

use drophammer_model::outcome::{PlotKind, Point, Span};
use drophammer_report::view::{MergedPlot, View};
use drophammer_report::write_all;
use drophammer_store::Run;
use roxmltree::{Document, Node};
use std::fs;

/// Points of a long series.
const LONG: u32 = 20_000;

fn run(duts: usize) -> Run {
    run_of(duts, 1_000)
}

fn run_of(duts: usize, points: u32) -> Run {
    let mut run = crate::synthetic::run(duts);
    run.trials.clear();
    run.tests.clear();
    run.started.tests.clear();
    routes::add(&mut run, points);
    run
}

fn merged<'v>(view: &'v View, key: &str) -> &'v MergedPlot {
    view.sections[0].plots.iter().find(|p| p.plot.key == key).unwrap()
}

/// The files of these names of the report of a run.
fn files(run: &Run, names: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    write_all(run, folder.path()).unwrap();
    names.iter().map(|n| fs::read_to_string(folder.path().join(n)).unwrap()).collect()
}

/// The drawing of the plot of this title.
fn drawing(html: &str, title: &str) -> String {
    let figure = html.split("<figure>").find(|f| f.starts_with(&format!("<figcaption>{title}"))).unwrap();
    let start = figure.find("<svg class=\"plot\"").unwrap();
    figure[start..start + figure[start..].find("</svg></div>").unwrap() + 6].to_owned()
}

fn classes<'a>(svg: &'a Document, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |n: &Node| n.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class));
    svg.descendants().filter(has).collect()
}

/// Points that a path of absolute moves visits.
fn visited(d: &str) -> Vec<(f64, f64)> {
    let mut at = (0.0, 0.0);
    let mut out = Vec::new();
    let mut rest = d.trim_end_matches('z');
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(['M', 'L', 'H', 'V']).map_or(rest.len(), |e| e + 1);
        let numbers: Vec<f64> = rest[1..end].split(' ').map(|n| n.parse().unwrap()).collect();
        at = match (command, numbers.as_slice()) {
            ('H', [x]) => (*x, at.1),
            ('V', [y]) => (at.0, *y),
            ('M' | 'L', [x, y]) => (*x, *y),
            other => panic!("{other:?}"),
        };
        out.push(at);
        rest = &rest[end..];
    }
    out
}

#[test]
fn long_series_are_thinned_on_the_page_and_whole_in_the_file() {
    let run = run_of(2, LONG);
    let all = files(&run, &["report.html", "csv/plot-flap_rate.csv", "csv/plot-convergence.csv"]);
    let page = crate::synthetic::without_data(&all[0]).len();
    assert!(page < 600_000, "{page} bytes");
    for csv in &all[1..] {
        let points = csv.lines().skip(1).filter(|l| !l.split(',').nth(1).unwrap().starts_with("event")).count();
        assert_eq!(points, 2 * 2 * LONG as usize);
    }
    // The first and the last point of a series, exactly.
    let View { sections, .. } = &View::new(&run);
    let series = &sections[0].plots.iter().find(|p| p.plot.key == "flap_rate").unwrap().plot.series[0];
    for p in [&series.points[0], series.points.last().unwrap()] {
        let line = format!("linux,linux flapped,false,false,,{},{},,,", p.x, p.y);
        assert!(all[1].lines().any(|l| l == line), "{line}");
    }
    // The whole depth of the flap is drawn.
    let svg = drawing(&all[0], "Forwarding rate with a route flap");
    let svg = Document::parse(&svg).unwrap();
    let line = visited(classes(&svg, "line")[0].attribute("d").unwrap());
    let (top, bottom) = line.iter().fold((f64::MAX, 0.0f64), |(a, b), p| (a.min(p.1), b.max(p.1)));
    assert!(bottom - top > 260.0, "{top} to {bottom}");
}

#[test]
fn a_dot_for_each_of_20_000_points_does_not_make_the_page_huge() {
    let mut run = run_of(1, LONG);
    run.tests[0].outcome.plots.swap(0, 1);
    run.tests[0].outcome.plots.truncate(1);
    let plot = &mut run.tests[0].outcome.plots[0];
    (plot.kind, plot.title) = (PlotKind::Dots, "A cloud".into());
    let html = crate::synthetic::without_data(&files(&run, &["report.html"])[0]);
    assert!(html.len() < 600_000, "{} bytes", html.len());
    let svg = drawing(&html, "A cloud");
    let svg = Document::parse(&svg).unwrap();
    assert_eq!(classes(&svg, "cloud").len(), 2);
    assert!(classes(&svg, "dot").is_empty());
}

#[test]
fn a_skyline_is_filled_down_to_zero_and_holds_between_its_points() {
    let mut run = run(2);
    for test in &mut run.tests {
        let points = &mut test.outcome.plots[0].series[0].points;
        points.truncate(3);
        for (p, (x, y)) in points.iter_mut().zip([(0.0, 100.0), (60.0, 200.0), (120.0, 50.0)]) {
            (p.x, p.y) = (x, y);
        }
    }
    let html = &files(&run, &["report.html"])[0];
    let svg = drawing(html, "Routes present over time");
    let svg = Document::parse(&svg).unwrap();
    let (fills, lines) = (classes(&svg, "fill"), classes(&svg, "line"));
    assert_eq!((fills.len(), lines.len()), (2, 2));
    let line = visited(lines[0].attribute("d").unwrap());
    // Level, up, level, down.
    assert_eq!(line.len(), 5);
    assert!(line[0].1 == line[1].1 && line[1].0 == line[2].0 && line[2].1 == line[3].1 && line[3].0 == line[4].0);
    assert!(line[2].1 < line[0].1 && line[4].1 > line[0].1, "{line:?}");
    let fill = visited(fills[0].attribute("d").unwrap());
    assert_eq!(fill[..5], line[..]);
    assert!(fill[5].1 == fill[6].1 && fill[6].0 == line[0].0 && fill[5].1 > line[4].1, "{fill:?}");
    // All fills come before all lines.
    let place = |n: &Node| n.range().start;
    assert!(fills.iter().map(place).max() < lines.iter().map(place).min());
    // Colours of the DUTs.
    let colour = |n: &Node| n.parent().unwrap().attribute("class").unwrap().to_owned();
    assert_eq!(fills.iter().map(colour).collect::<Vec<_>>(), ["c0", "c1"]);
}

#[test]
fn stairs_lead_up_to_each_point() {
    let html = &files(&run(2), &["report.html"])[0];
    let svg = drawing(html, "Time per step of 100 k routes");
    let svg = Document::parse(&svg).unwrap();
    let lines = classes(&svg, "line");
    assert_eq!(lines.len(), 2);
    let path = visited(lines[0].attribute("d").unwrap());
    // The first tread begins at the axis and ends at the first point; ten treads and nine risers.
    assert_eq!(path.len(), 2 * 10);
    assert_eq!(path[0].1, path[1].1);
    assert_eq!(path[1].0, path[2].0);
    assert_eq!(classes(&svg, "mark").len(), 10 + 7);
    let ticks: Vec<_> = classes(&svg, "tick").iter().filter_map(|n| n.text()).collect();
    assert!(ticks.contains(&"200k") && ticks.contains(&"1M"), "{ticks:?}");
    assert!(ticks.contains(&"frr: the session ended: hold timer expired"));
}

#[test]
fn a_sorted_curve_tells_its_four_figures_and_what_never_came() {
    let html = &files(&run(2), &["report.html"])[0];
    let svg = drawing(html, "Convergence time of every route");
    let svg = Document::parse(&svg).unwrap();
    // Four marks on the curves that reach 100 %, three on those that end before 99 %.
    assert_eq!(classes(&svg, "mark").len(), 2 * 4 + 2 * 3);
    let guides: Vec<_> =
        classes(&svg, "guide").iter().filter_map(|g| g.last_child()).filter_map(|t| t.text()).collect();
    assert_eq!(guides, ["median", "99 %"]);
    assert_eq!(html.matches("frr withdrawn</").count(), 2, "the table is the legend; the other is in the drawing");
    let table = &html[html.find("<table class=\"figures\">").unwrap()..];
    let table = &table[..table.find("</table>").unwrap()];
    let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
    let cells = |row: &str| -> Vec<String> {
        row.split("<td class=\"n\">").skip(1).map(|c| c[..c.find("</td>").unwrap()].to_owned()).collect()
    };
    assert_eq!(cells(rows[0]), ["20 ms", "207.5 ms", "1.743 s", "3.52 s", "100 %"]);
    assert_eq!(cells(rows[2]), ["40 ms", "445 ms", "\u{2013}", "7.04 s", "97.50 %"]);
}

#[test]
fn events_of_several_duts_are_one_where_they_are_the_same() {
    let run = run(2);
    let view = View::new(&run);
    let texts: Vec<_> = merged(&view, "skyline").plot.events.iter().map(|e| e.1.as_str()).collect();
    let cycle = ["advertise 200 k", "linux: complete", "frr: complete", "withdraw 200 k"];
    assert_eq!(texts, [cycle, cycle].concat());
    // 40.02 s on one DUT and 40.04 s on the other are drawn in the middle.
    let withdraw = &merged(&view, "skyline").events[3];
    assert_eq!(withdraw.at, [(0, 40.02), (1, 40.04)]);
    assert!((withdraw.x - 40.03).abs() < 1e-9 && withdraw.owners.is_empty());
    assert_eq!(merged(&view, "skyline").events[2].owners, [1]);
    let [html, csv] = files(&run, &["report.html", "csv/plot-skyline.csv"]).try_into().unwrap();
    let svg = drawing(&html, "Routes present over time");
    let svg = Document::parse(&svg).unwrap();
    let events = classes(&svg, "event");
    assert_eq!(events.len(), 8);
    assert!(events.iter().all(|e| e.descendants().any(|n| n.has_tag_name("text"))), "each has room for its text");
    assert_eq!(events.iter().filter(|e| e.attribute("class") == Some("event c1")).count(), 2);
    // The CSV file has each event with its own time.
    for line in ["linux,event,,,withdraw 200 k,40.02,,,,", "frr,event,,,withdraw 200 k,40.04,,,,"] {
        assert!(csv.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn times_in_which_the_tester_did_something_are_shaded() {
    let mut run = run(2);
    for (dut, to) in [(0, 22.5), (1, 25.0)] {
        let plot = run.tests[dut].outcome.plots.iter_mut().find(|plot| plot.key == "flap_rate").unwrap();
        plot.spans = vec![Span { x: (20.0, to), text: "withdrawn: the tester sends".into() }];
    }
    let [html, csv] = files(&run, &["report.html", "csv/plot-flap_rate.csv"]).try_into().unwrap();
    let svg = drawing(&html, "Forwarding rate with a route flap");
    let svg = Document::parse(&svg).unwrap();
    let spans = classes(&svg, "span");
    let width = |span: &Node<'_, '_>| span.attribute("width").unwrap().parse::<f64>().unwrap();
    let [one, two] = spans.as_slice() else { panic!("{spans:?}") };
    assert!((width(two) / width(one) - 2.0).abs() < 0.01, "{} and {}", width(one), width(two));
    assert!([one, two].iter().all(|span| span.parent().unwrap().attribute("class").unwrap().starts_with('c')));
    assert_eq!(html.matches("shaded: withdrawn: the tester sends").count(), 1);
    for line in
        ["linux,span,,,withdrawn: the tester sends,20,,20,22.5,", "frr,span,,,withdrawn: the tester sends,20,,20,25,"]
    {
        assert!(csv.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn two_events_of_one_dut_stay_two() {
    let mut run = run(2);
    run.tests[0].outcome.plots[0].events = vec![(10.0, "flap".into()), (10.1, "flap".into()), (10.1, "flap".into())];
    run.tests[1].outcome.plots[0].events = vec![(10.05, "flap".into()), (f64::NAN, "flap".into())];
    let view = View::new(&run);
    let texts: Vec<_> = merged(&view, "skyline").plot.events.iter().map(|e| e.1.as_str()).collect();
    assert_eq!(texts, ["flap", "linux: flap"]);
}

#[test]
fn events_without_room_are_numbered_and_told_below() {
    let mut run = run(1);
    for kind in [PlotKind::Area, PlotKind::Line, PlotKind::Steps, PlotKind::Dots] {
        let plot = &mut run.tests[0].outcome.plots[0];
        plot.kind = kind;
        plot.events = (0..40).map(|i| (60.0 + f64::from(i) * 0.1, format!("session {i} ended"))).collect();
        let html = &files(&run, &["report.html"])[0];
        let svg = drawing(html, "Routes present over time");
        let svg = Document::parse(&svg).unwrap();
        let named = classes(&svg, "event").iter().filter(|e| e.descendants().any(|n| n.has_tag_name("text"))).count();
        assert!((4..=8).contains(&named), "{named}");
        assert!(!classes(&svg, "number").is_empty());
        assert_eq!(html.matches("<li>session ").count(), 24);
        assert!(html.contains(&format!("{} more events are in the CSV file.", 40 - named - 24)));
    }
}

#[test]
fn plots_and_tables_lead_to_their_files() {
    let run = run(2);
    let folder = tempfile::tempdir().unwrap();
    write_all(&run, folder.path()).unwrap();
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    let attribute =
        |tag: &str, name: &str| tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let links: Vec<&str> = html.split("<a class=\"csv\"").skip(1).map(|l| l.split('>').next().unwrap()).collect();
    assert!(links.len() >= 5, "{links:?}");
    for link in links {
        // The data within the page is the same, byte by byte.
        let file = fs::read(folder.path().join("csv").join(attribute(link, "download"))).unwrap();
        let address = attribute(link, "href");
        assert_eq!(decoded(address.strip_prefix("data:text/csv;charset=utf-8,").unwrap()), file);
    }
}

#[test]
fn what_is_too_large_for_the_page_is_beside_it() {
    let mut run = run(1);
    let plot = &mut run.tests[0].outcome.plots[0];
    let point = |i: u32| Point { x: f64::from(i) / 3.0, y: f64::from(i % 977) / 7.0, ..Default::default() };
    plot.series[0].points = (0..220_000).map(point).collect();
    let [html, csv] = files(&run, &["report.html", "csv/plot-skyline.csv"]).try_into().unwrap();
    assert!(csv.len() > 6 << 20);
    assert!(html.len() < 8 << 20, "{}", html.len());
    assert!(html.contains("href=\"csv/plot-skyline.csv\"") && !html.contains("download=\"plot-skyline.csv\""));
    assert!(
        html.contains(&format!("csv/plot-skyline.csv ({:.1} MB)", csv.len() as f64 / 1e6)),
        "it is named at the end"
    );
    assert!(html.contains("download=\"trials.csv\""), "the others are within");
}

/// The bytes of a `data:` address.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'%' => {
                out.push(u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
                rest = &after[2..];
            }
            byte => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

#[test]
fn a_long_list_is_cut_on_the_page_and_whole_in_the_files() {
    let run = run(2);
    let names = ["report.html", "report.txt", "report.md", "csv/unreachable.csv", "report.json"];
    let [html, text, md, csv, json] = files(&run, &names).try_into().unwrap();
    // Page and data are checked separately.
    let html = crate::synthetic::without_data(&html);
    let more = format!("frr: {} more rows", "1,214");
    for report in [&html, &text, &md] {
        assert!(report.contains(&more));
        assert!(!report.contains("linux: 1 more") && report.contains("unreachable.csv"));
        // The last shown prefix of the second DUT, and the first that is left out.
        assert!(report.contains("20.0.19.0/24") && !report.contains("20.0.20.0/24"));
    }
    assert_eq!(csv.lines().count(), 1 + 3 + routes::UNREACHABLE as usize);
    assert_eq!(json.matches("\"prefix\": \"20.").count(), 3 + routes::UNREACHABLE as usize);
}
