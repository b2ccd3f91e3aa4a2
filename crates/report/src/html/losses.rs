//! Draws lost frames over time, and what tester and host did meanwhile.

use crate::format::nanoseconds;
use crate::losses::{Lossy, explained};
use drophammer_judge::losses::Cause;
use drophammer_model::quantity::group_digits;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::Held;
use maud::{Markup, html};

/// Maximum number of trials in drawings.
const MOST: usize = 40;
/// Dimensions of the drawing in its own units: width, height of the highest episode, height of a row below.
const WIDTH: f64 = 720.0;
const HIGHEST: f64 = 44.0;
const ROW: f64 = 14.0;
/// Space for the names of the rows.
const LEFT: f64 = 110.0;

/// The lossy trials of one DUT, folded: a sentence, and a drawing for each trial, starting with trials without
/// overload. Empty if all loss is due to overload.
pub fn section(who: &Markup, trials: &[&TrialRecord]) -> Markup {
    let (mut lossy, summary) = explained(trials);
    let all = lossy.len();
    lossy.sort_by_key(|lossy| !lossy.below_overload());
    lossy.truncate(MOST);
    html! {
        @if let Some(text) = summary.text() {
            details.all.losses {
                summary { (who) ": " (text) }
                p.legend { @for cause in Cause::ALL { span class={ "cause " (cause.key()) } { (cause.name()) } } }
                @if all > MOST { p.muted { (MOST) " of " (all) " lossy trials are drawn." } }
                noscript { @for lossy in &lossy { (drawing(lossy)) } }
            }
        }
    }
}

fn drawing(lossy: &Lossy<'_>) -> Markup {
    let result = &lossy.trial.result;
    let episodes = &result.losses.episodes;
    let end_ns = episodes.iter().map(|e| e.to_ns as f64).fold((result.sending_s * 1e9).max(1.0), f64::max);
    let x = |ns: f64| LEFT + (WIDTH - LEFT - 2.0) * (ns / end_ns).clamp(0.0, 1.0);
    let most = episodes.iter().map(|e| e.lost).max().unwrap_or(1) as f64;
    let high = |lost: u64| 4.0 + (HIGHEST - 4.0) * (lost as f64).ln_1p() / most.ln_1p();
    let nothing: &[Held] = &[];
    let stalls = result.health.dut_processor.as_ref().map_or(nothing, |processor| &processor.stall_times);
    let rows = [("host stalls", stalls), ("tester gaps", &result.health.gap_times[..])];
    let row_y = |row: usize| HIGHEST + 5.0 + row as f64 * ROW;
    let untold = result.lost().saturating_sub(result.losses.lost());
    html! {
        figure.loss {
            figcaption {
                a href={ "#t" (result.trial) } { "Trial " (result.trial) } " "
                small {
                    (lossy.trial.spec.purpose) ": " (group_digits(result.lost())) " frames lost in " (nanoseconds(end_ns))
                    @if result.losses.within_ns > drophammer_model::trial::WITHIN_NS {
                        "; losses up to " (nanoseconds(result.losses.within_ns as f64)) " apart are drawn as one"
                    }
                    @if untold > 0 { "; for " (group_digits(untold)) " of them the time is unknown" }
                }
            }
            svg viewBox={ "0 0 " (WIDTH) " " (HIGHEST + 8.0 + 2.0 * ROW) } role="img" aria-label={ "lost frames of trial " (result.trial) " over time" } {
                text x="0" y=(HIGHEST) { "lost frames" }
                @for (row, (name, held)) in rows.iter().enumerate() {
                    text x="0" y=(row_y(row) + 10.0) { (name) }
                    @for held in held.iter() {
                        @let (from, to) = (x(held.from_ns as f64), x(held.to_ns() as f64));
                        rect.held x=(fixed(from)) y=(row_y(row) + 2.0) width=(fixed((to - from).max(1.5))) height=(ROW - 4.0) {
                            title { (name) ": " (nanoseconds(held.ns as f64)) " from " (nanoseconds(held.from_ns as f64)) }
                        }
                    }
                }
                path.axis d={ "M" (LEFT) " " (HIGHEST) "H" (WIDTH - 2.0) } {}
                @for (episode, cause) in episodes.iter().zip(&lossy.causes) {
                    @let (from, to, high) = (x(episode.from_ns as f64), x(episode.to_ns as f64), high(episode.lost));
                    rect class={ "cause " (cause.key()) } x=(fixed(from)) y=(fixed(HIGHEST - high)) width=(fixed((to - from).max(2.0))) height=(fixed(high)) {
                        title {
                            (group_digits(episode.lost)) " lost, " (cause.name()) ": "
                            (nanoseconds(episode.from_ns as f64)) " to " (nanoseconds(episode.to_ns as f64)) ", "
                            (group_digits(episode.flows)) @if episode.flows == 1 { " flow of " } @else { " flows of " }
                            (groups(lossy, &episode.groups))
                        }
                    }
                }
                @for event in &result.events {
                    path.happened d={ "M" (fixed(x(event.at_s * 1e9))) " 0V" (HIGHEST) } { title { (event.label) } }
                }
            }
        }
    }
}

fn fixed(value: f64) -> String {
    format!("{value:.1}")
}

fn groups(lossy: &Lossy<'_>, places: &[usize]) -> String {
    let groups = &lossy.trial.result.groups;
    let names: Vec<&str> = places.iter().filter_map(|place| groups.get(*place)).map(|g| g.group.as_str()).collect();
    names.join(", ")
}
