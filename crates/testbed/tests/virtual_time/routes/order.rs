//! The order of a table and its attribute sets: the configured order is the one that is sent, and forwarded to.

use super::{completed, figure, full, rows};
use drophammer_model::outcome::{Cell, Outcome};

/// The outcome's text about the order.
fn order(outcome: &Outcome) -> &Cell {
    let table = outcome.tables.iter().find(|table| table.key == "routes_sent").unwrap();
    let at = table.columns.iter().position(|column| column.key == "order").unwrap();
    &rows(outcome, "routes_sent")[0].cells[at]
}

fn notes<'a>(outcome: &'a Outcome, of: &str) -> Vec<&'a String> {
    outcome.notes.iter().filter(|note| note.contains(of)).collect()
}

#[test]
fn in_every_order_each_route_is_verified_and_forwarded_to() {
    for word in ["sorted", "clustered", "scattered"] {
        for table in ["internet", "uniform"] {
            let test = format!("rib_fib_capacity: {{step: 1000, max_routes: 2000, table: {table}, order: {word}}}");
            let (_, outcome) = completed("", 2, &test);
            assert_eq!(figure(&outcome, "rib_fib_ipv4_routes"), Some(2_000.0), "{word}, {table}");
            assert_eq!(full(&outcome, "rib_fib_capacity", "lost"), [0.0, 0.0], "{word}, {table}");
            assert_eq!(order(&outcome), &Cell::Text(word.into()));
        }
    }
}

#[test]
fn attribute_sets_of_a_size_fill_updates_of_that_size() {
    let capacity = |more: &str| {
        let test = format!("bgp_table_capacity: {{step: 2500, max_routes: 5000, routes_per_update: 500{more}}}");
        completed("", 2, &test).1
    };
    let sent =
        |outcome: &Outcome| ["advertised", "updates", "sets"].map(|column| full(outcome, "routes_sent", column)[0]);
    let full_sets = capacity(", routes_per_set: 500");
    assert_eq!(sent(&full_sets), [5_000.0, 10.0, 10.0]);
    assert!(notes(&full_sets, "routes_per_update").is_empty(), "{:?}", full_sets.notes);
    let few = capacity("");
    let [advertised, updates, sets] = sent(&few);
    assert_eq!((advertised, updates), (5_000.0, sets));
    assert!((700.0..900.0).contains(&sets), "{sets} sets");
    let told = notes(&few, "`routes_per_update: 500` has no full effect");
    assert!(told.len() == 1 && told[0].contains("give `routes_per_set`"), "{:?}", few.notes);
}
