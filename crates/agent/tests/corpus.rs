//! Hostile messages: replays the corpus of the fuzz target `agent` (see `fuzz/`), and tries random changes.

#[path = "../../../fuzz/src/agent.rs"]
mod agent;
#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;

use proptest::prelude::*;

#[test]
fn agent() {
    corpus::replay("agent", agent::run);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_change_of_reports_brings_the_controller_down(changes in prop::collection::vec(any::<[u8; 4]>(), 1..4)) {
        agent::run(&[&[1], &changes.concat()[..]].concat());
    }

    /// Replaces numbers anywhere in the message with numbers of any size.
    #[test]
    fn no_number_in_reports_does(places in prop::collection::vec((any::<u16>(), any::<u8>()), 1..3)) {
        let changes = places.iter().flat_map(|(at, digit)| [(at >> 8) as u8, *at as u8, 2, *digit]);
        agent::run(&[1].into_iter().chain(changes).collect::<Vec<u8>>());
    }
}
