//! The same routes through a real router, learned and forwarded to on the ports of one process, of two agents and of four.

use crate::common::{kind_of, records};
use crate::same_on_hosts::{PLACES, run_in_places};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Few routes and low rates: the router holds and forwards them all, wherever the ports are.
const SUITE: &str = "\
suite: routes
profile: quick
rounds: 1
seed: 7
ports:
  - {name: p1, speed: 10 Mbit/s}
  - {name: p2, speed: 10 Mbit/s}
  - {name: p3, speed: 10 Mbit/s}
  - {name: p4, speed: 10 Mbit/s}
bgp: {families: [ipv4]}
defaults: {families: [ipv4], rate: 2 kfps}
tests:
  - bgp_table_capacity: {step: 2000, max_routes: 4000}
  - rib_fib_capacity: {step: 1000, max_routes: 2000, frames_per_route: 2}
  - longest_match: {routes: 2000, covering: 200, frames_per_route: 2}
";

/// Tables, and their columns that do not depend on time.
const COUNTS: [(&str, &[&str]); 3] = [
    ("bgp_table_capacity", &["routes", "verified", "missing", "wrong"]),
    ("rib_fib_capacity", &["routes", "verified", "lost", "stray", "unreachable"]),
    ("longest_match", &["state", "routes", "wrong", "lost"]),
];
/// Numbers of frames: offered, and received in the right place.
const FRAMES: [(&str, &[&str]); 2] = [("rib_fib_capacity", &["offered"]), ("longest_match", &["offered", "right"])];

const RUNS: &str = "\
for place in one two four; do
    begun=$SECONDS
    access=$controller
    [ $place = two ] || [ $place = four ] || access=
    $D run $place.yaml $access --out $place --busy-host --plain > $place.said 2> $place.errors
    echo \"$place: $((SECONDS - begun)) s\"
done
";

/// Cells of a run, by table: one list for each row.
fn cells(
    folder: &Path,
    wanted: &'static [(&'static str, &'static [&'static str])],
) -> BTreeMap<&'static str, Vec<Vec<Value>>> {
    let tests: Vec<Value> = records(folder).into_iter().filter(|record| kind_of(record) == "test").collect();
    let of_table = |key: &str, columns: &[&str]| {
        let mut tables = tests.iter().flat_map(|test| test["outcome"]["tables"].as_array().unwrap());
        let table = tables.find(|table| table["key"] == key).unwrap_or_else(|| panic!("no table {key}"));
        let all = table["columns"].as_array().unwrap();
        let at = columns.iter().map(|column| all.iter().position(|one| one["key"] == *column).unwrap());
        let at: Vec<usize> = at.collect();
        let rows = table["rows"].as_array().unwrap().iter();
        rows.map(|row| at.iter().map(|at| row["cells"][*at].clone()).collect()).collect()
    };
    wanted.iter().map(|(key, columns)| (*key, of_table(key, columns))).collect()
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn one_process_two_agents_and_four_learn_the_same_routes() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    // A machine that takes the processor from the router for a while makes it lose frames, but not every time.
    const TRIES: usize = 3;
    for attempt in 1..=TRIES {
        match learn() {
            Ok(()) => return,
            Err(why) if attempt == TRIES => panic!("{why}"),
            Err(why) => eprintln!("attempt {attempt}: {why}"),
        }
    }
}

/// Runs the suite in all places, and says what differs.
fn learn() -> Result<(), String> {
    let files = [("bird.py", include_str!("routes_on_hosts/bird.py"))];
    let ran = run_in_places(SUITE, &files, RUNS, |links| {
        format!("setup: python3 bird.py start {links}, teardown: python3 bird.py stop")
    });
    let folders = PLACES.map(|(place, ..)| ran.folder.path().join(place));
    let [one, two, four] = folders.each_ref().map(|folder| cells(folder, &COUNTS));
    let whole =
        one["bgp_table_capacity"][1] == [4000, 4000, 0, 0] && one["rib_fib_capacity"][1] == [2000, 2000, 0, 0, 0];
    if !whole || two != one || four != one {
        return Err(format!("one process {one:?}\ntwo agents {two:?}\nfour agents {four:?}\n{}", ran.said));
    }
    for folder in &folders {
        let frames = cells(folder, &FRAMES);
        // Two for each route. A busy machine sends a few less, but none is lost.
        let all = [&[2_000, 4_000][..], &[4_000, 4_000, 1_036][..]];
        for (rows, all) in FRAMES.iter().map(|(key, _)| &frames[key]).zip(all) {
            let offered: Vec<u64> = rows.iter().map(|row| row[0].as_u64().unwrap()).collect();
            let enough = |(offered, all): (&u64, &u64)| offered <= all && offered * 100 >= all * 99;
            let sent = offered.len() == all.len() && offered.iter().zip(all).all(enough);
            if !sent || !rows.iter().all(|row| row.iter().all(|cell| *cell == row[0])) {
                return Err(format!("{frames:?}\n{}", ran.said));
            }
        }
    }
    Ok(())
}
