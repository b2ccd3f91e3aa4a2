//! Two tables about the whole run: the places of the DUTs in each test with its winner (as in the first table of the core
//! router test of 2001), and facts about the DUTs other than figures, such as their price.

use crate::format::{DASH, number};
use crate::grid::{self, Grid};
use crate::grouped;
use crate::rank::Ranked;
use crate::view::{Section, Standing, View};
use drophammer_judge::distinct;
use drophammer_model::outcome::{Cell, Row};
use drophammer_model::record::TestStatus;

/// Heading of the places by test.
pub const PLACES: &str = "Ranks by test";
/// Heading of the facts.
pub const FACTS: &str = "The devices";
/// Explanation of the places.
pub const HOW: &str = "1 is best; DUTs that cannot be told apart share a place (=). The place in a test follows the mean rank over the figures \
of the test in which all of its DUTs have a rank. N/A: not applicable or not ranked; the reasons are below.";

/// Place of a DUT in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Place, starting at 1, and true if DUTs share it.
    Ranked(u32, bool),
    /// Why it has no place.
    None(String),
}

/// The places of the DUTs in one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Index of the section.
    pub section: usize,
    /// One place per DUT, in the order of the DUTs.
    pub places: Vec<Place>,
    /// DUTs that are first, and proven to be better than another DUT in some figure.
    pub best: Vec<usize>,
}

/// The places in every test with figures; empty if fewer than two DUTs can be compared.
pub fn places(view: &View) -> Vec<Line> {
    if !(0..view.duts.len()).any(|dut| grid::ranked_kind(view, dut)) {
        return Vec::new();
    }
    let of_section = |section: usize| {
        let figures: Vec<&Ranked> = view.ranking.figures.iter().filter(|f| f.section == section).collect();
        let several = view.sections[section].results.len() > 1;
        (several && !figures.is_empty()).then(|| line(view, section, &figures))
    };
    (0..view.sections.len()).filter_map(of_section).collect()
}

fn line(view: &View, section: usize, figures: &[&Ranked]) -> Line {
    let mut places: Vec<Place> =
        (0..view.duts.len()).map(|dut| Place::None(why(view, section, figures, dut))).collect();
    let mut best = Vec::new();
    for simulated in [false, true] {
        let has_rank = |dut: &usize| figures.iter().any(|figure| figure.entries[*dut].rank.is_some());
        let own = (0..view.duts.len()).filter(|dut| view.duts[*dut].simulated == simulated);
        let own: Vec<usize> = own.filter(|dut| grid::ranked_kind(view, *dut) && has_rank(dut)).collect();
        let all_have = |figure: &&&Ranked| own.iter().all(|dut| figure.entries[*dut].rank.is_some());
        let counted: Vec<&&Ranked> = figures.iter().filter(all_have).collect();
        if own.is_empty() || counted.is_empty() {
            continue;
        }
        // Sums of integers over the same figures, so that rounding cannot decide.
        let sum = |dut: usize| counted.iter().filter_map(|figure| figure.entries[dut].rank).sum::<u32>();
        let ahead = |dut: usize| own.iter().filter(|other| sum(**other) < sum(dut)).count();
        for dut in &own {
            let tied = own.iter().any(|other| other != dut && sum(*other) == sum(*dut));
            places[*dut] = Place::Ranked(u32::try_from(ahead(*dut) + 1).unwrap_or(u32::MAX), tied);
        }
        if best.is_empty() && own.iter().any(|dut| ahead(*dut) > 0) {
            // A DUT in first place wins only if it is proven to be better than another DUT.
            let proven = |dut: usize| counted.iter().any(|figure| grid::is_best(figure, dut));
            best = own.iter().copied().filter(|dut| ahead(*dut) == 0 && proven(*dut)).collect();
        }
    }
    Line { section, places, best }
}

/// Why a DUT has no place in a test.
fn why(view: &View, section: usize, figures: &[&Ranked], dut: usize) -> String {
    let result = view.sections[section].results.iter().find(|result| result.dut == dut);
    let standing = result.map_or(&Standing::NotRun, |result| &result.standing);
    if let Standing::Ended(TestStatus::Skipped(why)) = standing {
        return why.clone();
    }
    // A round that the tester spoilt is not the reason.
    if !standing.is_measured() {
        return standing.text();
    }
    let any = |of: &dyn Fn(&Ranked) -> bool| figures.iter().any(|figure| of(figure));
    let known = |figure: &Ranked| figure.entries[dut].is_known();
    if !grid::ranked_kind(view, dut) {
        "there is no other DUT of its kind to compare with".into()
    } else if any(&known) && !any(&|figure| figure.entries[dut].rounds.len() > 1) {
        "one round proves nothing".into()
    } else if any(&|figure| figure.entries[dut].refuted()) {
        "refuted figures: other trials contradict them".into()
    } else if any(&|figure| figure.entries[dut].doubtful()) {
        "doubtful figures: frames were lost while the processor was idle".into()
    } else if !any(&known) {
        "the test gave no figure".into()
    } else if any(&|figure| figure.different_loads) {
        "different loads: the DUTs were not measured at the same load".into()
    } else if figures.iter().all(|figure| grid::all_failed(view, figure, dut)) {
        "failed on all: no DUT of its kind has a figure".into()
    } else if figures.iter().all(|figure| grid::all_limited(view, figure, dut)) {
        match figures.iter().all(|figure| figure.entries[dut].suite_limited()) {
            true => "the limit of the suite: all figures are bounds".into(),
            false => "limits of the tester: all figures are bounds".into(),
        }
    } else if figures.iter().all(|figure| figure.entries[dut].has_only_failed()) {
        "failed: no other DUT of its kind has a figure to compare with".into()
    } else {
        "its figures cannot be compared with the figures of another DUT".into()
    }
}

/// The places as a table, and the reasons for missing places.
pub fn places_grid(view: &View) -> Option<(Grid, Vec<String>)> {
    let lines = places(view);
    if lines.is_empty() {
        return None;
    }
    let order = &view.ranking.order;
    let mut head = grid::head_of_duts("Test", view, order);
    head.push("Best".into());
    let mut reasons: Vec<(String, String)> = Vec::new();
    let mut rows = Vec::new();
    for line in &lines {
        let title = section_title(view, line.section);
        let mut row = vec![title.clone()];
        for dut in order {
            row.push(match &line.places[*dut] {
                Place::Ranked(place, tied) => format!("{}{place}", if *tied { "=" } else { "" }),
                Place::None(_) if !view.order_of(&view.sections[line.section]).contains(dut) => DASH.into(),
                Place::None(why) => {
                    reasons.push((format!("{}: {why}", view.duts[*dut].label()), title.clone()));
                    "N/A".into()
                }
            });
        }
        let best: Vec<String> = line.best.iter().map(|dut| view.duts[*dut].label()).collect();
        row.push(if best.is_empty() { DASH.into() } else { best.join(", ") });
        rows.push(row);
    }
    let mut right = vec![true; head.len()];
    right[0] = false;
    *right.last_mut()? = false;
    let reasons = grouped(reasons);
    let reasons = reasons.into_iter().map(|(who, tests)| format!("{who} ({})", tests.join(", "))).collect();
    Some((Grid { head, right, rows }, reasons))
}

/// Title of a section, with a number if the suite contains the test twice.
fn section_title(view: &View, section: usize) -> String {
    let Section { id, test, title, .. } = &view.sections[section];
    let twin = view.sections.iter().filter(|other| other.title == *title).count() > 1;
    match id.strip_prefix(test.as_str()).and_then(|rest| rest.strip_prefix('-')) {
        Some(number) if twin && !title.contains(number) => format!("{title} ({number})"),
        _ => title.clone(),
    }
}

/// Facts about the DUTs (`about:`), one column per DUT, and the price per rate if there is a price; `None` without facts.
pub fn facts_grid(view: &View) -> Option<Grid> {
    let about = &view.run.started.about;
    let order = &view.ranking.order;
    let names = distinct(order.iter().flat_map(|dut| about.dut(view.duts[*dut].name)).map(|(name, _)| name.as_str()));
    if names.is_empty() {
        return None;
    }
    let fact = |dut: usize, name: &str| {
        about.dut(view.duts[dut].name).iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
    };
    let row = |name: &str, of: &dyn Fn(usize) -> Option<String>| {
        let cells = order.iter().map(|dut| of(*dut).unwrap_or_else(|| DASH.into()));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let mut rows = Vec::new();
    for name in names {
        rows.push(row(name, &|dut| fact(dut, name)));
        if is_price(name) && order.iter().any(|dut| per_rate(view, *dut, &fact(*dut, name)).is_some()) {
            rows.push(row(&format!("{name} per million frames per second"), &|dut| {
                per_rate(view, dut, &fact(dut, name))
            }));
        }
    }
    let head = grid::head_of_duts("Fact", view, order);
    Some(Grid { right: vec![false; head.len()], head, rows })
}

/// True if a fact with this name is a price.
fn is_price(name: &str) -> bool {
    name.split_whitespace().any(|word| word.eq_ignore_ascii_case("price"))
}

/// A price divided by the DUT's highest throughput, summed over its sending ports, in millions of frames per second:
/// for a router that forwards two million per second, `86,000 USD` becomes `43,000 USD`. An upper bound (`≤`) if the
/// DUT may be faster. A rate that is refuted or doubtful in any round is marked.
fn per_rate(view: &View, dut: usize, price: &Option<String>) -> Option<String> {
    let (before, amount, after) = amount(price.as_ref()?)?;
    let (pps, row) = highest(view, dut)?;
    let (bound, mark) = match (row.is_refuted(), row.is_doubtful(), row.is_limited()) {
        (true, ..) => ("", " (refuted)"),
        (_, true, _) => ("\u{2264} ", " (doubtful)"),
        (.., true) => ("\u{2264} ", ""),
        (false, false, false) => ("", ""),
    };
    Some(format!("{bound}{before}{}{after}{mark}", number(amount / (pps / 1e6), "")))
}

/// Splits a price such as `USD 86,000` into the text before, the number, and the text after. `None` if the number is
/// ambiguous: it is better to show no price than one that is wrong by a factor of 1,000.
fn amount(price: &str) -> Option<(&str, f64, &str)> {
    let begin = price.find(|c: char| c.is_ascii_digit())?;
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, ',' | '.' | '_');
    let length = price[begin..].find(|c: char| !is_part(c)).unwrap_or(price.len() - begin);
    let digits = price[begin..begin + length].trim_end_matches([',', '.', '_']);
    let (before, after) = (&price[..begin], &price[begin + digits.len()..]);
    // Other digits mean the end of a range, another group of this number, or a year.
    if before.ends_with([',', '.', '_']) || before.chars().chain(after.chars()).any(char::is_numeric) {
        return None;
    }
    let value = grouped_number(digits).filter(|value| *value > 0.0 && value.is_finite())?;
    Some((before, value, after))
}

/// Parses `86000`, `86,000` and `1,200.50`: a comma separates groups of three digits, and a point starts a fraction.
/// Refuses everything else, including `86.000`, which means 86 thousand in some countries.
fn grouped_number(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut groups = whole.split([',', '_']);
    let first = groups.next()?;
    let is_grouped = whole.len() > first.len();
    let can_be_group = (1..=3).contains(&first.len()) && !first.starts_with('0');
    if (is_grouped && !can_be_group) || groups.any(|group| group.len() != 3) {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if !is_grouped && can_be_group && fraction.len() == 3 {
        return None;
    }
    format!("{}.{fraction}", whole.replace([',', '_'], "")).parse().ok()
}

/// Highest throughput of a DUT over all patterns of the run, summed over its sending ports, in frames per second, and
/// its row.
fn highest<'a>(view: &View<'a>, dut: usize) -> Option<(f64, &'a Row)> {
    let tables = view.sections.iter().flat_map(|section| &section.tables).filter(|table| table.key == "throughput");
    let rates = tables.flat_map(|table| {
        let at = table.columns.iter().position(|column| column.key == "aggregate_pps");
        let own = table.rows.iter().filter(move |row| row.dut == dut);
        own.filter_map(move |row| match row.cells.get(at?)? {
            Cell::Number(pps) if *pps > 0.0 => Some((*pps, row.row)),
            _ => None,
        })
    });
    rates.max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_as_people_write_them() {
        assert_eq!(amount("USD 86,000"), Some(("USD ", 86_000.0, "")));
        assert_eq!(amount("1200.50 EUR, used"), Some(("", 1_200.5, " EUR, used")));
        assert_eq!(amount("86,000, list"), Some(("", 86_000.0, ", list")));
        assert_eq!((amount("free"), amount("0 EUR"), amount("1.2.3")), (None, None, None));
        assert!(is_price("List Price") && !is_price("priceless"));
    }

    #[test]
    fn ambiguous_prices_are_refused() {
        for (price, value) in [
            ("86,000 USD", 86_000.0),
            ("1,200.50 EUR", 1_200.5),
            ("1,234,567", 1_234_567.0),
            ("1_200 EUR", 1_200.0),
            ("86,000.125 EUR", 86_000.125),
            ("1234.567 EUR", 1_234.567),
            ("0.125 EUR", 0.125),
            ("1.5 M EUR", 1.5),
            ("86,000,- EUR", 86_000.0),
        ] {
            assert_eq!(amount(price).map(|(_, value, _)| value), Some(value), "{price}");
        }
        for price in [
            "86.000 EUR",
            "1.200,50 EUR",
            "1.200.000 EUR",
            "1,5 M EUR",
            "1200,50 EUR",
            "0,500 EUR",
            "1000,000 EUR",
            "80,000 to 90,000 USD",
            "80,000-90,000 USD",
            "86 000 EUR",
            "86'000 CHF",
            "86,000 USD (2019)",
            "2 x 43,000 USD",
            "5e6 EUR",
            ".50 EUR",
            "1.,5 EUR",
        ] {
            assert_eq!(amount(price), None, "{price}");
        }
    }
}
