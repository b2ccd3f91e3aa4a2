//! Converts results of a run to rows of texts.

use crate::common::Memory;
use drophammer_judge::losses::causes;
use drophammer_model::filter::FilterList;
use drophammer_model::outcome::Cell;
use drophammer_model::record::Record;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The rows of `source` in all runs, selected by the line `columns`.
pub fn of(ran: &[(Option<String>, Memory)], source: &str, columns: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    for (run, memory) in ran {
        let mut own = rows_of(memory, source);
        if let Some(run) = run {
            own.iter_mut().for_each(|row| _ = row.insert("run".into(), json!(run)));
        }
        let mut sum = false;
        for word in columns.split_whitespace() {
            let count = |n: &str| n.parse::<usize>().map_err(|e| format!("{word}: {e}"));
            let at = |row: &Map<String, Value>, column: &str| shown(row.get(column)).replace(' ', "_");
            if word == "sum" {
                sum = true;
            } else if let Some(n) = word.strip_prefix("first:") {
                own.truncate(count(n)?);
            } else if let Some(n) = word.strip_prefix("last:") {
                own.drain(..own.len().saturating_sub(count(n)?));
            } else if let Some(n) = word.strip_prefix("every:") {
                own = own.into_iter().step_by(count(n)?).collect();
            } else if let Some((column, text)) = word.split_once('=') {
                own.retain(|row| at(row, column) == text);
            } else if let Some((column, text)) = word.split_once('~') {
                own.retain(|row| at(row, column).contains(text));
            } else if let Some((column, text)) = word.split_once('!') {
                own.retain(|row| !at(row, column).contains(text));
            }
        }
        if sum {
            own = vec![added(own)];
        }
        rows.extend(own);
    }
    let distinct = columns.split_whitespace().any(|word| word == "distinct");
    let columns: Vec<&str> = columns.split_whitespace().filter(|word| is_column(word)).collect();
    // A counter that has not counted anything is not reported.
    let known = |column: &&str| column.contains('.') || rows.iter().any(|row| row.contains_key(*column));
    if let Some(unknown) = columns.iter().find(|column| !known(column) && !rows.is_empty()) {
        return Err(format!("{source} has no column {unknown}, but {:?}", rows[0].keys().collect::<Vec<_>>()));
    }
    let cell = |row: &Map<String, Value>, column: &&str| match row.get(*column) {
        None if column.contains('.') => "0".into(),
        value => shown(value),
    };
    let all = rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect::<Vec<_>>());
    let mut counted: Vec<(Vec<String>, usize)> = Vec::new();
    for row in all {
        let from = if distinct { 0 } else { counted.len().saturating_sub(1) };
        match counted[from..].iter_mut().find(|(known, _)| *known == row) {
            Some((_, times)) => *times += 1,
            None => counted.push((row, 1)),
        }
    }
    let with_times = |(mut row, times): (Vec<String>, usize)| {
        let times = (times > 1).then(|| format!("x{times}"));
        row.extend(times);
        row
    };
    Ok(counted.into_iter().map(with_times).collect())
}

fn is_column(word: &str) -> bool {
    word != "sum" && word != "distinct" && !word.contains(['=', '~', '!', ':'])
}

/// The line of columns and the rows below it, aligned.
pub fn aligned(columns: &str, rows: &[Vec<String>]) -> Vec<String> {
    let names: Vec<&str> = columns.split_whitespace().filter(|word| is_column(word)).collect();
    let chosen: Vec<&str> = columns.split_whitespace().filter(|word| !is_column(word)).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain(names.get(at).map(|name| name.len())).max().unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().enumerate().map(|(at, cell)| format!("{cell:<width$}", width = width(at)));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = format!("{}  {}", line(names.clone()), chosen.join(" ")).trim_end().to_owned();
    std::iter::once(head).chain(rows.iter().map(|row| line(row.iter().map(String::as_str).collect()))).collect()
}

fn rows_of(memory: &Memory, source: &str) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    for record in &memory.records {
        match (record, source) {
            (_, "records") => rows.push(of_record(record)),
            (Record::Trial(trial), "trials" | "groups") => {
                let (spec, result) = (json!(trial.spec), json!(trial.result));
                let mut row = flat(&json!(trial));
                [&spec, &result, &result["health"]].iter().for_each(|part| row.extend(flat(part)));
                if let Some(counters) = result["dut_counters"].as_object() {
                    row.extend(counters.clone());
                }
                row.insert("load".into(), json!(spec["load"].to_string().replace(['"', '{', '}'], "")));
                let ways = &trial.result.ways;
                let [least, most] =
                    [ways.iter().map(|way| way.offered).min(), ways.iter().map(|way| way.offered).max()];
                row.insert("each_way".into(), json!([least, most]));
                row.insert("even".into(), json!(most <= least.map(|least| least + 1)));
                row.insert("ways_offered".into(), json!(ways.iter().map(|way| way.offered).sum::<u64>()));
                row.insert("ways_received".into(), json!(ways.iter().map(|way| way.received).sum::<u64>()));
                let aimed: u64 = trial.spec.flows.iter().map(|flow| u64::from(flow.destinations.count())).sum();
                row.insert("destinations".into(), json!(aimed));
                row.insert("causes".into(), json!(format!("{:?}", causes(&trial.spec, &trial.result, None))));
                let pairs: BTreeSet<_> = trial.spec.flows.iter().map(|flow| (flow.from, flow.to)).collect();
                row.insert("pairs".into(), json!(pairs.len()));
                row.insert(
                    "weights".into(),
                    json!(trial.spec.flows.iter().map(|flow| flow.weight).collect::<Vec<_>>()),
                );
                let to_routes = spec["flows"][0]["destinations"].to_string().contains("routes");
                row.insert("to".into(), json!(if to_routes { "routes" } else { "hosts" }));
                let events = trial.result.events.iter().map(|event| format!("{} at {} s", event.label, event.at_s));
                row.insert("happened".into(), json!(events.collect::<Vec<_>>()));
                row.insert("headers".into(), json!(words(&spec["flows"][0]["headers"])));
                let groups =
                    [&trial.result.groups, &trial.result.background].map(|all| all.iter().map(|g| flat(&json!(g))));
                let groups: Vec<_> = groups.into_iter().flatten().collect();
                if source == "groups" {
                    rows.extend(groups.into_iter().map(|group| row.clone().into_iter().chain(group).collect()));
                    continue;
                }
                let own = groups[..trial.result.groups.len()].to_vec();
                row.extend(added(own).into_iter().filter(|(key, _)| key != "group"));
                for group in groups {
                    let name = shown(group.get("group")).replace(' ', "_");
                    row.extend(group.into_iter().map(|(key, value)| (format!("{name}/{key}"), value)));
                }
                rows.push(row);
            }
            (Record::Test(test), _) => {
                let mut of_test = flat(&json!(test));
                let status = json!(test.status);
                of_test.extend(["status", "cause"].map(|key| (key.to_owned(), status[key].clone())));
                of_test.insert("round".into(), json!(test.round));
                let mut add = |row: Map<String, Value>| rows.push(of_test.clone().into_iter().chain(row).collect());
                let outcome = &test.outcome;
                match source {
                    "tests" => add(Map::new()),
                    "figures" => outcome.ranks.iter().for_each(|rank| add(flat(&json!(rank)))),
                    "notes" => outcome.notes.iter().for_each(|note| add(flat(&json!({"text": note})))),
                    "verdicts" => outcome.verdicts.iter().for_each(|verdict| add(flat(&json!(verdict)))),
                    _ => {}
                }
                for plot in outcome.plots.iter().filter(|plot| source == format!("plot {}", plot.key)) {
                    for series in &plot.series {
                        let named = |point| flat(&point).into_iter().chain([("series".into(), json!(series.name))]);
                        series.points.iter().for_each(|point| add(named(json!(point)).collect()));
                    }
                }
                for table in outcome.tables.iter().filter(|table| table.key == source) {
                    for row in &table.rows {
                        let value = |cell: &Cell| if let Cell::None = cell { Value::Null } else { json!(cell) };
                        let cells = table.columns.iter().zip(&row.cells).map(|(c, cell)| (c.key.clone(), value(cell)));
                        add(cells
                            .chain([("marks".into(), json!(row.marks)), ("trial_numbers".into(), json!(row.trials))])
                            .collect());
                    }
                }
            }
            _ => {}
        }
    }
    rows
}

/// Converts a record. Records of filters also include the rules, as texts and by their number in each list.
fn of_record(record: &Record) -> Map<String, Value> {
    let mut row = flat(&json!(record));
    if let Record::Filter(filter) = record {
        let rules = filter.lists.iter().map(|list| list.rules.len());
        row.insert("rules".into(), json!(rules.collect::<Vec<_>>()));
        let rules = filter.lists.iter().flat_map(|list| &list.rules);
        row.insert("texts".into(), json!(rules.map(ToString::to_string).collect::<Vec<_>>()));
        let sorted = |list: &FilterList| list.rules.is_sorted_by_key(|rule| rule.deny);
        row.insert("sorted".into(), json!(filter.lists.iter().all(sorted)));
        let interfaces = filter.lists.iter().map(|list| list.interfaces.len());
        row.insert("interfaces".into(), json!(interfaces.collect::<Vec<_>>()));
    }
    row
}

/// The names of the headers, and of the headers nested in them.
fn words(headers: &Value) -> Vec<String> {
    let all = headers.as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
    let with_inner = |(name, header): (&String, &Value)| {
        let inner = header.as_object().into_iter().flatten().flat_map(|(_, value)| words(value));
        std::iter::once(name.clone()).chain(inner).collect::<Vec<_>>()
    };
    all.flat_map(with_inner).collect()
}

/// The members of an object, and the members of nested objects as `outer.inner`.
fn flat(value: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let inner = flat(value);
        all.extend(inner.into_iter().map(|(inner, value)| (format!("{key}.{inner}"), value)));
        all.insert(key.clone(), value.clone());
    }
    all
}

/// Adds up all rows into one.
fn added(rows: Vec<Map<String, Value>>) -> Map<String, Value> {
    let (mut all, count): (Map<String, Value>, usize) = (Map::new(), rows.len());
    for (key, value) in rows.into_iter().flatten() {
        let sum = match (all.get(&key), &value) {
            (Some(sum), value) if sum.is_u64() && value.is_u64() => {
                json!(sum.as_u64().zip(value.as_u64()).map(|(a, b)| a + b))
            }
            (Some(sum), value) if sum.is_number() && value.is_number() => {
                json!(sum.as_f64().zip(value.as_f64()).map(|(a, b)| a + b))
            }
            (Some(sum), _) if sum.is_number() => continue,
            _ => value,
        };
        all.insert(key, sum);
    }
    all.insert("rows".into(), json!(count));
    all
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::Number(n)) if n.is_f64() => number(n.as_f64().unwrap_or_default()),
        Some(Value::String(text)) if text.is_empty() => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) if list.iter().any(|item| item.is_object() || item.is_array()) => {
            format!("[{}]", list.len())
        }
        Some(Value::Array(list)) if list.is_empty() => "-".into(),
        Some(Value::Array(list)) => list.iter().map(|item| shown(Some(item))).collect::<Vec<_>>().join("; "),
        Some(Value::Object(map)) if map.is_empty() => "-".into(),
        Some(value) => value.to_string().replace(['"', '{', '}'], ""),
    }
}

/// Formats a number with seven digits.
fn number(x: f64) -> String {
    if x.abs() < 1e-9 {
        return "0".into();
    }
    let decimals = (6 - x.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
