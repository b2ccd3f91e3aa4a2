//! Tables out of the tables of several tests.

use super::data::Data;
use super::tables::WIDE;
use crate::digest::{Filled, Value, file};
use crate::view::View;
use maud::{Markup, html};

/// Anchor of a digest, by its place among those of the report.
pub fn anchor(at: usize) -> String {
    format!("digest-{}", at + 1)
}

/// The section of a digest.
pub fn section(view: &View, (at, digest): (usize, &Filled), data: &Data) -> Markup {
    let right = digest.right();
    // The columns before the values name the row.
    let names = right.len() - digest.columns.len();
    html! {
        section id=(anchor(at)) {
            h2 { (digest.title) " " (data.link(&file(at), "CSV")) }
            div.scroll { table {
                thead { tr {
                    @for (head, right) in digest.heads().iter().zip(&right) { th.n[*right] scope="col" { (head) } }
                } }
                @for (i, row) in digest.rows.iter().enumerate() { tbody.next[i > 0 && digest.rows[i - 1].dut != row.dut] { tr {
                    th scope="row" { (super::dut_name(&view.duts[row.dut])) }
                    @if let Some(text) = digest.by_text(row) { td.n[right[1]] { (text) } }
                    @for ((text, value), right) in digest.texts(row).iter().zip(&row.values).zip(&right[names..]) {
                        td.n[*right].wrap[text.chars().count() > WIDE] title=[marks(value)] { (text) }
                    }
                } } }
            } }
            @for note in digest.notes() { p.muted { (note) } }
        }
    }
}

/// The marks of the row of a value.
fn marks(value: &Option<Value>) -> Option<String> {
    value.filter(Value::is_marked).map(|value| value.marks().join("; "))
}
