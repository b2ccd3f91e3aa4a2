//! `expect:`, the criteria of a test for pass or fail, and the cells of tables that they name.

use super::errors::{Problems, did_you_mean, list, quote};
use super::fields::{Fields, such_as};
use super::raw::{Entry, Node, Value};
use drophammer_model::modifier::Modifier;
use drophammer_model::param::ParamType;
use drophammer_model::quantity::{grouped_number, parse_duration, parse_frame_rate, parse_percent};
use drophammer_model::registry::{TableShape, TestSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{BaselineFigure, Cells, Expectation, ParamValue, Params};
use std::ops::Range;

const EXAMPLE: &str = "throughput_64_pps: \">= 100 kfps\"";
/// Maximum number of figures listed in a help text.
const MOST_LISTED: usize = 12;

/// Reads the criteria of a test with these parameters. `duts` are the names of the suite's DUTs, if they could be read.
pub(crate) fn read(
    node: &Node,
    spec: &TestSpec,
    params: &Params,
    duts: Option<&[&str]>,
    problems: &mut Problems,
) -> Option<Vec<Expectation>> {
    let fields = Fields::of(node, "`expect`", &format!("expect: {{{EXAMPLE}}}"), problems)?;
    let sizes = Sizes::Sent(sizes(params));
    let mut expectations = Vec::new();
    let mut whole = true;
    for entry in fields.entries {
        let Some((figure, cells)) = named(entry, spec, &sizes, problems) else {
            whole = false;
            continue;
        };
        // The unit is the end of the name.
        let key = cells.as_ref().map_or(figure.as_str(), |cells| cells.column.as_str());
        let expected = |bound: Bound, dut: Option<&String>| Expectation {
            figure: figure.clone(),
            at_least: bound.at_least,
            bound: bound.value,
            dut: dut.cloned(),
            cells: cells.clone(),
            baseline: bound.is_share.then(BaselineFigure::default),
        };
        // A single bound for all DUTs, or a bound for each named DUT.
        let bounds: Vec<(&Node, Option<&Entry>)> = match &entry.value.value {
            Value::Map(of_duts) => of_duts.iter().map(|of_dut| (&of_dut.value, Some(of_dut))).collect(),
            _ => vec![(&entry.value, None)],
        };
        for (node, of_dut) in bounds {
            let unknown = of_dut.zip(duts).filter(|(of_dut, duts)| !duts.contains(&of_dut.key.as_str()));
            let bound = match unknown {
                Some((of_dut, duts)) => {
                    let message = format!("there is no DUT {}", quote(&of_dut.key));
                    problems.refuse(&of_dut.key_span, message, did_you_mean(&of_dut.key, duts.iter().copied()))
                }
                None => bound(node, key, problems),
            };
            whole &= bound.is_some();
            expectations.extend(bound.map(|bound| expected(bound, of_dut.map(|of_dut| &of_dut.key))));
        }
    }
    whole.then_some(expectations)
}

/// The sizes that keys of figures of a test with these parameters contain.
pub(crate) fn sizes(params: &Params) -> Vec<String> {
    let lists = params.0.values().filter_map(|value| match value {
        ParamValue::Sizes(sizes) => Some(sizes.iter().map(ToString::to_string)),
        _ => None,
    });
    // Figures for a modifier have the name of the modifier after the size.
    let modifiers: Vec<Modifier> = params.0.get("modifiers").and_then(ParamType::read).unwrap_or_default();
    let with = |size: &String| modifiers.iter().map(|modifier| modifier.size_word(size)).collect::<Vec<_>>();
    let sizes: Vec<String> = lists.flatten().collect();
    if modifiers.is_empty() { sizes } else { sizes.iter().flat_map(with).collect() }
}

/// The sizes that keys of figures can contain.
pub(crate) enum Sizes {
    /// The sizes that the test sends.
    Sent(Vec<String>),
    /// Any size.
    Any,
}

impl Sizes {
    fn has(&self, size: &str) -> bool {
        match self {
            Sizes::Sent(sizes) => sizes.iter().any(|sent| sent == size),
            Sizes::Any => {
                let modified =
                    Modifier::SOME.iter().find_map(|modifier| size.split_once(&format!("_{}", modifier.word())));
                modified.map_or(size, |(size, _)| size).parse::<PacketSize>().is_ok()
            }
        }
    }

    /// All sizes, or some examples.
    fn listed(&self) -> Vec<&str> {
        match self {
            Sizes::Sent(sizes) => sizes.iter().map(String::as_str).collect(),
            Sizes::Any => vec!["64", "ip40", "imix"],
        }
    }
}

/// The figure or the cells of a table that a key refers to.
pub(crate) fn named(
    entry: &Entry,
    spec: &TestSpec,
    sizes: &Sizes,
    problems: &mut Problems,
) -> Option<(String, Option<Cells>)> {
    if spec.figures.iter().any(|figure| is_figure(figure.key, &entry.key, sizes)) {
        return Some((entry.key.clone(), None));
    }
    if Cells::is_meant(&entry.key) {
        return cells_of(entry, spec, problems).map(|cells| (cells.to_string(), Some(cells)));
    }
    unknown(&entry.key, spec, sizes, problems, &entry.key_span);
    None
}

/// Longest key that is examined.
const LONGEST_KEY: usize = 200;

/// True if `key` has the form of a figure with one of these sizes.
fn is_figure(pattern: &str, key: &str, sizes: &Sizes) -> bool {
    key.len() <= LONGEST_KEY && matches(pattern, key, &|size| sizes.has(size))
}

/// Reports a key that is not a figure of this test.
fn unknown(key: &str, spec: &TestSpec, sizes: &Sizes, problems: &mut Problems, span: &Range<usize>) {
    if spec.figures.is_empty() {
        let help = match spec.tables.first().and_then(|table| Some((table, table.numbers().next()?))) {
            Some((table, column)) => format!("name a column of a table, for instance `{}.{column}`", table.key),
            None => format!("the test `{}` gives no figure to compare; leave `expect` out", spec.name),
        };
        problems.add(span, format!("{} is not a figure of this test", quote(key)), help);
    } else if key.len() <= LONGEST_KEY && spec.figures.iter().any(|f| matches(f.key, key, &|_| true)) {
        let listed = list(sizes.listed());
        let (problem, help) = match sizes {
            Sizes::Sent(_) => ("is about a size that this test does not send", format!("sizes of this test: {listed}")),
            Sizes::Any => ("names no size of frames", format!("sizes are for instance {listed}")),
        };
        problems.add(span, format!("{} {problem}", quote(key)), help);
    } else {
        let expanded: Vec<String> = spec
            .figures
            .iter()
            .flat_map(|f| match f.key.contains("{size}") {
                true => sizes.listed().iter().map(|s| f.key.replace("{size}", s)).collect(),
                false => vec![f.key.to_owned()],
            })
            .take(MOST_LISTED)
            .collect();
        let help = did_you_mean(key, expanded.iter().map(String::as_str));
        problems.add(span, format!("{} is not a figure of the test `{}`", quote(key), spec.name), help);
    }
}

/// True if `key` matches `pattern`, in which `{size}` stands for text that `is_size` accepts, and any other `{…}` for any text.
pub(crate) fn matches(pattern: &str, key: &str, is_size: &dyn Fn(&str) -> bool) -> bool {
    let Some((literal, rest)) = pattern.split_once('{') else { return pattern == key };
    let Some(key) = key.strip_prefix(literal) else { return false };
    let Some((name, rest)) = rest.split_once('}') else { return false };
    key.char_indices().map(|(i, c)| i + c.len_utf8()).any(|end| {
        let (filled, tail) = key.split_at(end);
        (name != "size" || is_size(filled)) && matches(rest, tail, is_size)
    })
}

/// The bound of a criterion.
struct Bound {
    at_least: bool,
    /// In the unit of the figure, or in per cent of the baseline's figure.
    value: f64,
    is_share: bool,
}

/// Text after the share, for a bound relative to a baseline.
const OF_BASELINE: &str = "of baseline";

/// Reads `>= 100 kfps` as a bound in the unit of the figure, `>= 95 % of baseline` as a share.
fn bound(node: &Node, key: &str, problems: &mut Problems) -> Option<Bound> {
    let unit = key.rsplit('_').next().unwrap_or_default();
    let example = match unit {
        "pps" => "\">= 100 kfps\"",
        "ns" | "us" | "ms" | "s" => "\"<= 500 us\"",
        _ => "\">= 10\"",
    };
    let help = format!("write for instance `{key}: {example}`, with `>=` for at least and `<=` for at most, in quotes");
    let Value::Scalar { text, .. } = &node.value else {
        return problems.refuse(&node.span, format!("a criterion is a text, not {}", node.what()), help);
    };
    let text = text.trim();
    let (at_least, rest) = match (text.strip_prefix(">="), text.strip_prefix("<=")) {
        (Some(rest), _) => (true, rest.trim()),
        (_, Some(rest)) => (false, rest.trim()),
        _ => return problems.refuse(&node.span, format!("{} is not a criterion", quote(text)), help),
    };
    if let Some(share) = rest.strip_suffix(OF_BASELINE) {
        let percent = share.trim().strip_suffix('%').and_then(parse_percent);
        return match percent.filter(|percent| *percent > 0.0) {
            Some(value) => Some(Bound { at_least, value, is_share: true }),
            None => {
                let message = format!("{} is not a share of a baseline", quote(rest));
                let sign = if at_least { ">= 95" } else { "<= 105" };
                problems.refuse(&node.span, message, such_as(format!("{key}: \"{sign} % {OF_BASELINE}\"")))
            }
        };
    }
    // A bare number is in the unit at the end of the figure's name; a quantity is converted to that unit.
    let seconds = |per_second: f64| parse_duration(rest).ok().map(|d| d.as_secs_f64() * per_second);
    let value = grouped_number(rest).or_else(|| match unit {
        _ if rest.len() > 100 => None,
        "pps" => parse_frame_rate(rest).ok().map(|r| r.pps()),
        // Whole nanoseconds are exact, unlike a conversion through seconds.
        "ns" => parse_duration(rest).ok().map(|d| d.as_nanos() as f64),
        "us" => seconds(1e6),
        "ms" => seconds(1e3),
        "s" => seconds(1.0),
        "percent" => parse_percent(rest),
        _ => None,
    });
    match value {
        Some(value) => Some(Bound { at_least, value, is_share: false }),
        None => {
            let what = match unit {
                "pps" => "frame rate",
                "ns" | "us" | "ms" | "s" => "duration",
                _ => "number",
            };
            let message = format!("{} is not a {what} to compare {} with", quote(rest), quote(key));
            problems.refuse(&node.span, message, help)
        }
    }
}

/// The help for a criterion with a condition on the DUT.
const BY_DUT: &str = "a map gives each DUT its own bound, for instance `{frr: \">= 5\"}`";

/// The cells that the key of a criterion refers to. If the test does not declare its tables, the names are checked
/// after it has run.
fn cells_of(entry: &Entry, spec: &TestSpec, problems: &mut Problems) -> Option<Cells> {
    let span = &entry.key_span;
    let cells = parse_cells(&entry.key, span, || example(spec), problems)?;
    if spec.tables.is_empty() {
        return Some(cells);
    }
    let table = table_of(&cells, spec, span, BY_DUT, problems)?;
    if !table.numbers().any(|key| key == cells.column) {
        let message = format!("the column {} of the table `{}` contains words", quote(&cells.column), table.key);
        return problems.refuse(span, message, format!("columns with numbers: {}", list(table.numbers())));
    }
    Some(cells)
}

/// Reads the cells from a text, without checking that the table and the columns exist.
pub(crate) fn parse_cells(
    text: &str,
    span: &Range<usize>,
    example: impl FnOnce() -> String,
    problems: &mut Problems,
) -> Option<Cells> {
    match text.parse::<Cells>() {
        Ok(cells) => Some(cells),
        Err(why) => {
            let message = format!("{} names no cells of a table: {why}", quote(text));
            problems.refuse(span, message, format!("write for instance `{}`", example()))
        }
    }
}

/// The table of the cells; an error if the test does not have this table, or the table does not have one of the
/// columns. `by_dut` is the help for a condition on the DUT, because a table has no such column.
pub(crate) fn table_of(
    cells: &Cells,
    spec: &TestSpec,
    span: &Range<usize>,
    by_dut: &str,
    problems: &mut Problems,
) -> Option<&'static TableShape> {
    let Some(table) = spec.tables.iter().find(|table| table.key == cells.table) else {
        let message = format!("{} is not a table of the test `{}`", quote(&cells.table), spec.name);
        return problems.refuse(span, message, did_you_mean(&cells.table, spec.tables.iter().map(|table| table.key)));
    };
    let before = problems.len();
    for column in cells.rows.iter().map(|(column, _)| column).chain([&cells.column]) {
        if table.columns.contains(&column.as_str()) {
            continue;
        }
        let message = format!("{} is not a column of the table `{}`", quote(column), table.key);
        let help = match column.as_str() {
            "dut" => by_dut.to_owned(),
            _ => did_you_mean(column, table.columns.iter().copied()),
        };
        problems.add(span, message, help);
    }
    (problems.len() == before).then_some(table)
}

/// An example of cells, written as in a suite.
fn example(spec: &TestSpec) -> String {
    let of = |table: &TableShape| {
        let number = table.numbers().last()?;
        let first = table.columns.first().copied().filter(|key| *key != number)?;
        Some(format!("{}[{first}=64].{number}", table.key))
    };
    spec.tables.first().and_then(of).unwrap_or_else(|| "frame_loss_rate[frame_size=64].loss_percent".into())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn placeholders_stand_for_sizes_and_other_text() {
        let size = |s: &str| s == "64" || s == "imix-2001";
        assert!(matches("throughput_{size}_pps", "throughput_64_pps", &size));
        assert!(matches("throughput_{size}_pps", "throughput_imix-2001_pps", &size));
        assert!(!matches("throughput_{size}_pps", "throughput_65_pps", &size));
        assert!(!matches("throughput_{size}_pps", "throughput__pps", &size));
        assert!(matches("latency_{size}_at_{load}_ns", "latency_64_at_50_ns", &size));
        assert!(!matches("recovery_s", "recovery_ms", &size));
    }
}
