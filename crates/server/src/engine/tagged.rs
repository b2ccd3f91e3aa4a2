//! Tagged metrics: the counts of a row by the values of its tagged header fields.
//!
//! The analyzer knows the values from the sequence number of a frame, so they are those with which it was sent, whatever the DUT
//! made of them.

use super::answers::latency;
use super::bench::Bench;
use super::counts::{Counts, Latencies};
use super::row::Row;
use crate::model::read::Object;
use crate::model::tag::Tags;
use drophammer_rig::PlaceCounts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// Counts by place in the cycle of each flow of the traffic.
pub type Places = BTreeMap<usize, Vec<PlaceCounts>>;

/// Counts of a row by combination of tagged values; empty without tags.
#[derive(Clone, Debug, Default)]
pub struct Tagged {
    /// The combination at each place of the cycle.
    of_place: Vec<usize>,
    /// Number of combinations.
    count: usize,
    /// Counts of the traffic when the row started, if there were any.
    base: Vec<Counts>,
    /// Counts of the traffic when it ended.
    last: Vec<Counts>,
}

impl Tagged {
    /// Counts of a row that has not started.
    pub fn new(tags: &Tags) -> Tagged {
        let (of_place, count) = (tags.of_place.clone(), tags.combinations.len());
        Tagged { of_place, count, base: Vec::new(), last: vec![Counts::default(); count] }
    }

    /// Starts again, in traffic in which the row has these counts so far.
    pub fn start(&mut self, base: Vec<Counts>) {
        self.base = base;
        self.last = vec![Counts::default(); self.count];
    }

    /// Takes the counts at the end of the traffic.
    pub fn end(&mut self, last: Vec<Counts>) {
        self.last = last;
    }

    /// Counts of the traffic: `streams` are numbers, sizes and [turns](crate::build::flows::Stream::turn) of the row's streams.
    pub fn whole<'a>(
        &self,
        places: &Places,
        streams: impl Iterator<Item = (Option<usize>, &'a [u64], (usize, usize))>,
    ) -> Vec<Counts> {
        let mut all = vec![Counts::default(); self.count];
        if self.of_place.is_empty() {
            return all;
        }
        for (number, sizes, (first, step)) in streams {
            let Some(places) = number.and_then(|number| places.get(&number)) else { continue };
            for (at, place) in places.iter().enumerate() {
                let combination = self.of_place[(first + at * step) % self.of_place.len()];
                all[combination].add_place(place, bytes(sizes, at, places.len(), place.offered));
            }
        }
        all
    }

    /// Counts since the row started, of `whole` counts of running traffic, or at the end of the last one.
    pub fn since_start(&self, whole: Option<Vec<Counts>>) -> Vec<Counts> {
        let mut counts = whole.unwrap_or_else(|| self.last.clone());
        counts.iter_mut().zip(&self.base).for_each(|(counts, base)| *counts = counts.since(base));
        counts
    }
}

/// Bytes of the first `frames` frames at place `at` of cycles of `cycle` frames, of a stream whose frames have `sizes` by turns.
fn bytes(sizes: &[u64], at: usize, cycle: usize, frames: u64) -> u64 {
    let size = |n: usize| sizes[(at + n * cycle) % sizes.len()];
    let (rounds, rest) = (frames / sizes.len() as u64, (frames % sizes.len() as u64) as usize);
    let round = if rounds > 0 { (0..sizes.len()).map(size).sum::<u64>() } else { 0 };
    rounds * round + (0..rest).map(size).sum::<u64>()
}

/// Which tagged metrics a client wants.
pub(super) struct Wanted {
    include: bool,
    empty: bool,
    columns: Vec<String>,
    /// Tags, and the values of each that are wanted; none for all.
    filters: Vec<(String, Vec<u128>)>,
}

impl Wanted {
    /// Reads `tagged_metrics` of a request. `known` are the names of all tags.
    pub(super) fn read(request: &mut Object<'_>, known: &HashSet<&str>) -> Wanted {
        let mut o = request.object_or_empty("tagged_metrics");
        let (include, empty) = (o.flag("include", true), o.flag("include_empty_metrics", false));
        let columns = o.texts("metric_names");
        let filter = |mut o: Object<'_>| {
            let (name, values) = (o.name("name"), o.texts("values"));
            if !name.is_empty() && !known.contains(name.as_str()) {
                o.wrong("name", format_args!("no flow has the tag `{name}`"));
            }
            let number = |(i, text): (usize, String)| {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(&text);
                let number = u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
                let path = format!("{}[{i}]", o.path_of("values"));
                number.or_else(|| {
                    o.errors().add(&path, format_args!("`{text}` is not a hexadecimal number"));
                    None
                })
            };
            let values = values.into_iter().enumerate().filter_map(number).collect();
            (name, values)
        };
        let filters = o.objects("filters").into_iter().map(filter).collect();
        Wanted { include, empty, columns, filters }
    }

    /// True if the metrics of this combination are wanted.
    fn has(&self, tags: &Tags, combination: &[u128]) -> bool {
        self.filters.iter().all(|(name, values)| {
            let at = tags.names.iter().position(|tag| tag == name);
            at.is_some_and(|at| values.is_empty() || values.contains(&combination[at]))
        })
    }
}

impl Bench {
    /// Names of the tags of all flows.
    pub(super) fn tag_names(&self) -> HashSet<&str> {
        self.built.flows.iter().flat_map(|flow| flow.tags.names.iter().map(String::as_str)).collect()
    }

    /// The tagged metrics of a row, if it has tags. `places` are the counts of the running traffic.
    pub(super) fn tagged_metrics(&self, row: &Row, places: &Places, wanted: &Wanted) -> Option<Value> {
        let flow = &self.built.flows[row.flow];
        if !wanted.include || flow.tags.names.is_empty() {
            return None;
        }
        let counts = self.flows.by_combination(&self.rig, row, places);
        // If the tester's own port refused frames very often, nobody knows which values the sent ones had.
        let sent_is_known = counts.iter().map(|counts| counts.frames_tx).sum::<u64>() == row.counts.frames_tx;
        let rates = self.rates_by_combination(row, places);
        let mut out = Vec::new();
        for (i, (counts, combination)) in counts.iter().zip(&flow.tags.combinations).enumerate() {
            let nothing = (counts.frames_tx, counts.frames_rx) == (0, 0);
            if nothing && !wanted.empty || !wanted.has(&flow.tags, combination) {
                continue;
            }
            let mut metric = self.measured(row, counts, rates.get(i).copied().unwrap_or_default());
            if !sent_is_known {
                metric.retain(|key, _| !depends_on_sent(key));
            }
            if flow.metrics.latency {
                let nobody = (counts.frames_rx == 0).then_some([0.0; 3]);
                let known = counts.latency_ns(Latencies::default).or(nobody);
                let mean = |ns: f64| json!({"average_ns": (ns - row.line_ns).max(0.0)});
                let figures = known.map(|figures| latency(figures, row.line_ns));
                metric.insert("latency".into(), figures.unwrap_or_else(|| mean(counts.mean_latency_ns())));
            }
            if !wanted.columns.is_empty() {
                metric.retain(|key, _| wanted.columns.contains(key));
            }
            let tag = |(name, value): (&String, &u128)| json!({"name": name, "value": {"choice": "hex", "hex": format!("{value:x}")}});
            let tags: Vec<Value> = flow.tags.names.iter().zip(combination).map(tag).collect();
            metric.insert("tags".into(), tags.into());
            out.push(Value::Object(metric));
        }
        Some(out.into())
    }
}

/// True if a number of a metric follows from the frames that were sent.
fn depends_on_sent(key: &str) -> bool {
    key == "loss" || ["frames_tx", "bytes_tx", "tx_"].iter().any(|start| key.starts_with(start))
}

#[cfg(test)]
mod tests;
