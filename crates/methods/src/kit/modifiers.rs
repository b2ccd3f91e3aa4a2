//! Modifiers of RFC 2544 section 11: additional tasks for the router. A test by frame size runs once without and once
//! with each of them.
//!
//! Tests do not handle modifiers themselves: [`Testbed::trial`] adds the modifier of the running pattern and counts its
//! traffic separately.

mod applied;
mod broadcast;

pub use applied::Applied;
pub use broadcast::{SHARE, flows};

use crate::columns;
use crate::filter_lists::MOST_CONDITIONS;
use crate::parameters::FRAME_SIZES;
use crate::pattern::Pattern;
use crate::report::{note_of, percent_of};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use drophammer_model::modifier::Modifier;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Param;
use drophammer_model::registry::TableShape;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;

/// `modifiers`
pub const MODIFIERS: Param<Option<Vec<Modifier>>> = Param::optional(
    "modifiers",
    "additional tasks for the router, tested one after the other: `none`, `broadcast` (1 % of the frames), `management`, `routing_update`, \
     `filters` (RFC 2544 section 11)",
);
/// `filter_conditions`
pub const FILTER_CONDITIONS: Param<u64> = Param::fixed(
    "filter_conditions",
    "25",
    "number of conditions of the modifier `filters`; the last condition permits the test frames (RFC 2544 section 11.4: 1 and 25)",
)
.at_most(MOST_CONDITIONS);

/// The modifiers of a test; only [`Modifier::None`] if the test has no such parameter.
pub fn modifiers(params: &Params) -> Vec<Modifier> {
    let listed = MODIFIERS.find(params).flatten().unwrap_or_else(|| vec![Modifier::None]);
    let counted = |modifier| match modifier {
        Modifier::Filters { .. } => Modifier::Filters { conditions: FILTER_CONDITIONS.get(params) },
        other => other,
    };
    listed.into_iter().map(counted).collect()
}

/// Patterns of a test by frame size: each size with each modifier.
pub fn patterns(params: &Params) -> Vec<Pattern> {
    let of_size = |size: PacketSize| {
        let with = move |modifier| Pattern { modifier, ..Pattern::new(size.clone(), params) };
        modifiers(params).into_iter().map(with)
    };
    FRAME_SIZES.get(params).into_iter().flat_map(of_size).collect()
}

/// Number of these patterns, for progress and estimates; 1 for a test with one size.
pub fn count(params: &Params) -> usize {
    FRAME_SIZES.find(params).map_or(1, |sizes| sizes.len()) * modifiers(params).len()
}

/// Appends the modifier to the `name` of a pattern: `64 bytes with 1 % broadcast frames`.
pub(crate) fn named(name: String, modifier: Modifier) -> String {
    match modifier {
        Modifier::None => name,
        Modifier::Broadcast => format!("{name} with 1 % broadcast frames"),
        Modifier::Management => format!("{name} with management frames"),
        Modifier::RoutingUpdate => format!("{name} with routing updates"),
        Modifier::Filters { conditions: 1 } => format!("{name} through a filter of 1 condition"),
        Modifier::Filters { conditions } => format!("{name} through filters of {conditions} conditions"),
    }
}

columns! {
    /// Result of the modifier of one pattern, over all its trials.
    struct ModifierRow {
        frame_size: PacketSize,
        protocol: String,
        trials: u64,
        offered: u64 = "Test frames" ["frames"],
        sent: Option<u64> = "Additional frames sent" ["frames"],
        share_percent: Option<f64> = "Share of all frames" ["%"],
        forwarded: Option<u64> = "Additional frames forwarded" ["frames"],
        asked: Option<u64> = "Queries",
        answered: Option<u64>,
        updates: Option<u64> = "Route changes",
        processed: Option<u64> = "Route changes re-advertised",
        matched: Option<u64> = "Matched by a filter" ["frames"],
    }
}

const TABLE: TableSpec<ModifierRow> = TableSpec::new("modifiers", "Additional tasks (modifiers)");
/// The table of tests that have the parameter [`MODIFIERS`].
pub(crate) const SHAPE: TableShape = TABLE.shape();

/// Runs `each` with the modifier of the pattern, and reports the result of the modifier.
///
/// # Errors
/// Errors of `each` and of the modifier: [`TestError::NotApplicable`] if the router or the suite does not support it.
pub(crate) fn with(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    outcome: &mut Outcome,
    each: impl FnOnce(&mut dyn Testbed, &mut Outcome) -> Result<(), TestError>,
) -> Result<(), TestError> {
    if pattern.modifier == Modifier::None {
        return each(bed, outcome);
    }
    let applied = Applied::begin(bed, pattern)?;
    bed.known().ongoing.modifier = Some(applied);
    // The same figures without the modifier must not be taken for those of this pattern.
    let before = std::mem::take(&mut outcome.ranks);
    let ended = each(bed, outcome);
    let size = pattern.size.to_string();
    for rank in &mut outcome.ranks {
        rank.key = pattern.modifier.figure_key(&rank.key, &size);
    }
    outcome.ranks.splice(0..0, before);
    let Some(applied) = bed.known().ongoing.modifier.take() else { return ended };
    let ended = applied.end(bed, ended);
    let seen = &applied.seen;
    if seen.trials == 0 {
        return ended;
    }
    if outcome.tables.iter().all(|table| table.key != "modifiers") {
        TABLE.begin(outcome);
    }
    let broadcast = pattern.modifier == Modifier::Broadcast;
    let routes = pattern.modifier == Modifier::RoutingUpdate;
    let management = pattern.modifier == Modifier::Management;
    let mut marks = Vec::new();
    if broadcast && seen.forwarded > 0 {
        marks.push(format!("the router forwarded {} broadcast frames", seen.forwarded));
    }
    if management && seen.answered < seen.asked {
        marks.push(format!("{} unanswered queries", seen.asked - seen.answered));
    }
    if routes && seen.processed < seen.updates {
        marks.push(format!("{} route changes were not re-advertised", seen.updates - seen.processed));
    }
    let filters = matches!(pattern.modifier, Modifier::Filters { .. });
    if let Some(matched) = seen.matched.filter(|matched| filters && *matched < seen.received) {
        marks.push(format!("{} test frames passed no filter", seen.received - matched));
    }
    for mark in &marks {
        note_of(outcome, pattern, mark);
    }
    let row = ModifierRow {
        frame_size: pattern.size.clone(),
        protocol: pattern.protocol(),
        trials: seen.trials,
        offered: seen.offered,
        sent: broadcast.then_some(seen.sent),
        share_percent: percent_of(seen.sent, seen.sent + seen.offered).filter(|_| broadcast),
        forwarded: broadcast.then_some(seen.forwarded),
        asked: management.then_some(seen.asked),
        answered: management.then_some(seen.answered),
        updates: routes.then_some(seen.updates),
        processed: routes.then_some(seen.processed),
        matched: seen.matched.filter(|_| filters),
    };
    TABLE.add(outcome, row, [], marks);
    ended
}
