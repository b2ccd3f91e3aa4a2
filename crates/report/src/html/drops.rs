//! Lost frames beside the drops of all counters of a DUT.

use crate::drops::Account;
use crate::format::number;
use drophammer_model::quantity::group_digits;
use maud::{Markup, html};

/// Counters in the table at most; JSON has all.
const MOST: usize = 30;

/// A sentence, and the drops by counter, folded. Nothing if no frames were lost.
pub fn account(who: &Markup, account: &Account) -> Markup {
    let shares = account.shares();
    let more = shares.len().saturating_sub(MOST);
    html! {
        @if let Some(text) = account.text() {
            p.muted { b { (who) } ": " (text) "." }
            @if !shares.is_empty() {
                details {
                    summary { "Drops by counter" }
                    div.scroll { table {
                        thead { tr { @for h in ["Counter", "Frames", "Share [%]"] { th scope="col" { (h) } } } }
                        tbody {
                            @for (counter, frames, share) in shares.iter().take(MOST) {
                                tr { th scope="row" { (counter) } td { (group_digits(*frames)) } td { (number(*share, "%")) } }
                            }
                            @for (name, frames) in account.sums() {
                                tr { th scope="row" { (name) } td { (group_digits(frames)) } td {} }
                            }
                        }
                    } }
                    @if more > 0 { p.muted { (more) " further counters are in the sum." } }
                }
            }
        }
    }
}
