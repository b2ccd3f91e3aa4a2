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
    ("rib_fib_capacity", &["routes", "verified", "offered", "lost", "stray", "unreachable"]),
    ("longest_match", &["state", "routes", "offered", "right", "wrong", "lost"]),
];

const RUNS: &str = "\
for place in one two four; do
    begun=$SECONDS
    access=$controller
    [ $place = two ] || [ $place = four ] || access=
    $D run $place.yaml $access --out $place --busy-host --plain > $place.said 2> $place.errors
    echo \"$place: $((SECONDS - begun)) s\"
done
";

/// The counts of a run, by table: one list for each row.
fn counts(folder: &Path) -> BTreeMap<&'static str, Vec<Vec<Value>>> {
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
    COUNTS.iter().map(|(key, columns)| (*key, of_table(key, columns))).collect()
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn one_process_two_agents_and_four_learn_the_same_routes() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let files = [("bird.py", include_str!("routes_on_hosts/bird.py"))];
    let ran = run_in_places(SUITE, &files, RUNS, |links| {
        format!("setup: python3 bird.py start {links}, teardown: python3 bird.py stop")
    });
    let said = || &ran.said;
    let [one, two, four] = PLACES.map(|(place, ..)| counts(&ran.folder.path().join(place)));
    assert_eq!(one["bgp_table_capacity"][1], [4000, 4000, 0, 0], "{}", said());
    assert_eq!(one["rib_fib_capacity"][1], [2000, 2000, 4000, 0, 0, 0], "{}", said());
    assert_eq!((two, four), (one.clone(), one), "{}", said());
}
