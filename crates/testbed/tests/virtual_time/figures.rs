//! Every figure of the tester on simulated routers, compared with golden files.
//!
//! Each case runs suites in virtual time with a fixed seed and a fixed secret. All trials and outcomes are written as
//! JSON lines and compared with `golden/CASE.jsonl`. So the tests show whether a change of the code that should not
//! change any figure really does not.
//!
//! - `DROPHAMMER_WRITE_FIGURES=1` rewrites the golden files. Review the difference before you commit it.
//! - `DROPHAMMER_FIGURES=DIR` also writes each case to `DIR/CASE.jsonl` without abridging anything. If a digest
//!   differs, run this before and after the change, and compare the folders to find the cause.

mod cases;
mod collect;
mod golden;

use drophammer_methods::METHODS;
use drophammer_model::record::Record;
use std::collections::BTreeSet;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All cases.
        const CASES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                golden::hold(stringify!($name), &cases::$name());
            }
        )*
    };
}

cases![
    suite_quick_look,
    suite_known_router,
    suite_bgp,
    suite_routes,
    suite_full_table,
    suite_flows,
    dual_stack_imix,
    mixed_families,
    extension_headers,
    ping_delay,
    sizes,
    four_ports,
    drops,
    filters,
    classes,
    congestion,
    soak,
    modifiers,
    systems,
    loops,
    copies_and_strays,
    wrong_frames,
    order,
    together,
    times,
    routes_dual_stack,
    routes_faults,
    routes_limits,
    lsps,
    vpns,
    labels_and_igp,
    routes_sources,
    operation,
    order_and_resets,
];

#[test]
fn golden_files_are_those_of_the_cases_and_have_every_method() {
    let names: BTreeSet<String> = CASES.iter().map(|name| format!("{name}.jsonl")).collect();
    if golden::rewriting() {
        return;
    }
    let files = std::fs::read_dir(golden::folder()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
    let mut completed = BTreeSet::new();
    let (mut bytes, mut trials) = (0, 0);
    for name in &names {
        let text = std::fs::read_to_string(golden::folder().join(name)).unwrap();
        bytes += text.len();
        for line in text.lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            trials += usize::from(record["record"] == "trial");
            if record["record"] == "test" && record["status"] == "completed" {
                completed.insert(record["test"].as_str().unwrap().to_owned());
            }
        }
    }
    let methods: BTreeSet<String> = METHODS.iter().map(|m| m.spec().name.to_owned()).collect();
    assert_eq!(completed, methods, "each method completes in some case");
    assert!(bytes < 1_800_000, "the golden files have {bytes} bytes");
    assert!(trials > 500, "{trials} trials");
}

#[test]
fn the_same_case_twice_is_the_same() {
    let [a, b] = [cases::order(), cases::order()].map(|runs| golden::lines(&runs, true));
    assert!(a.len() > 20 && a == b);
}

/// Name and function of the smallest possible change of a figure of the first trial.
type Change = (&'static str, fn(&mut Record));

#[test]
fn one_changed_figure_is_named_with_file_record_and_both_values() {
    let runs = cases::order();
    let golden = golden::lines(&runs, false).join("\n") + "\n";
    assert_eq!(golden::compare("order", &golden, &golden::lines(&runs, false)), Ok(()));
    let changes: [Change; 5] = [
        ("groups/0/received", |r| first_group(r).received += 1),
        ("groups/0/reordered_3", |r| first_group(r).reordered_3 += 1),
        ("groups/0/latency/mean_ns", |r| {
            let mean = &mut first_group(r).latency.mean_ns;
            *mean = mean.next_up();
        }),
        ("groups/0/latency/percentiles/fnv", |r| first_group(r).latency.percentiles[7].1 += 1),
        ("groups/0/last_loss_ns", |r| first_group(r).last_loss_ns = Some(0)),
    ];
    for (figure, change) in changes {
        let mut runs = runs.clone();
        let records = &mut runs[0].records;
        let at = records.iter().position(|r| matches!(r, Record::Trial(_))).unwrap();
        change(&mut records[at]);
        let told = golden::compare("order", &golden, &golden::lines(&runs, false)).unwrap_err();
        assert!(told.contains("golden/order.jsonl") && told.contains("trial 1"), "{told}");
        assert!(told.contains(&format!("{figure}: golden ")) && told.contains(", now "), "{figure} is not in: {told}");
        assert!(told.contains("1 of "), "{told}");
    }
    // Changes to a cell of a table and to a point of a plot, and a missing record.
    let outcome = |change: fn(&mut drophammer_model::outcome::Outcome)| {
        let mut runs = runs.clone();
        let test = runs[0].records.iter_mut().find_map(|r| if let Record::Test(t) = r { Some(t) } else { None });
        change(&mut test.unwrap().outcome);
        golden::compare("order", &golden, &golden::lines(&runs, false)).unwrap_err()
    };
    let told = outcome(|o| o.tables[0].rows[0].cells[1] = drophammer_model::outcome::Cell::Number(0.125));
    assert!(told.contains("row 1 of table") && told.contains("now 0.125"), "{told}");
    let told = outcome(|o| {
        let y = &mut o.plots[0].series[0].points[0].y;
        *y = y.next_up();
    });
    assert!(told.contains("plot"), "{told}");
    let told = outcome(|o| o.tables[0].rows.clear());
    assert!(told.contains("records: golden "), "{told}");
}

fn first_group(record: &mut Record) -> &mut drophammer_model::trial::GroupCounts {
    match record {
        Record::Trial(trial) => &mut trial.result.groups[0],
        other => panic!("no trial: {other:?}"),
    }
}
