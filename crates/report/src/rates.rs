//! Converts frame rates to bits, shares of the line, and frames per second of the DUT's processor time. The stored trials
//! are enough for that, so runs of earlier versions have these rates too.

use crate::format::number;
use crate::rank::Ranked;
use crate::view::{MergedRow, MergedTable, Section, View};
use drophammer_judge::criteria::number as value;
use drophammer_judge::statistics::median;
use drophammer_model::outcome::{Cell, Column, FPS_PER_PORT};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::record::TrialRecord;
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::trial::{Family, FlowSpec, TrialResult};

/// Start of the key of a column that holds the DUT's forwarding rate per sending port.
const FORWARDED: [&str; 4] = ["throughput", "pdr", "forwarding", "rate_pps"];

/// A trial is near a figure if it forwarded at least this share of the figure.
const NEAR: f64 = 0.75;

/// The line that carried the frames of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Mean length of a frame in bytes, FCS included.
    frame_bytes: f64,
    /// The highest rate of such frames per port (RFC 2544 Appendix B).
    most_pps: f64,
    /// Number of ports that sent.
    senders: usize,
}

/// A rate per sending port in other units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Layer 2: bits of frames with FCS, without preamble and gap, in Mbit/s. `None` if the frames are unknown.
    pub l2_mbps: Option<f64>,
    /// Share of the line rate in per cent; `None` if the frames are unknown.
    pub line_percent: Option<f64>,
    /// Frames per second of all sending ports together.
    pub all_ports_pps: f64,
    /// Number of sending ports.
    pub senders: usize,
}

impl Rate {
    /// `149 Mbit/s, 1.95 % of line; 2 ports: 444,000 fps`, with no-break spaces between number and unit.
    pub fn text(self) -> String {
        let line = self.l2_mbps.zip(self.line_percent).map(|(mbps, percent)| {
            let (bits, unit) = if mbps >= 1e3 { (mbps / 1e3, "Gbit/s") } else { (mbps, "Mbit/s") };
            format!("{}\u{a0}{unit}, {}\u{a0}% of line", number(bits, ""), number(percent, "%"))
        });
        let ports = (self.senders > 1)
            .then(|| format!("{}\u{a0}ports: {}\u{a0}fps", self.senders, number(self.all_ports_pps, "fps")));
        line.into_iter().chain(ports).collect::<Vec<_>>().join("; ")
    }
}

impl Line {
    fn rate(self, pps: f64) -> Rate {
        Rate {
            l2_mbps: Some(pps * self.frame_bytes * 8.0 / 1e6),
            line_percent: Some(pps / self.most_pps * 100.0),
            all_ports_pps: pps * self.senders as f64,
            senders: self.senders,
        }
    }

    /// The line of a trial. `None` if flows have their own rates, or the speed of a port is unknown.
    fn of(view: &View, trial: &TrialRecord) -> Option<Line> {
        let flows = &trial.spec.flows;
        let size = |flow: &'_ FlowSpec| flow.size.as_ref().unwrap_or(&trial.spec.size).clone();
        let by_packet = |flow: &FlowSpec| size(flow).round().iter().any(|s| matches!(s, FrameSize::Ip(_)));
        if flows.iter().any(|flow| flow.schedule.is_some() || (!flow.headers.is_empty() && by_packet(flow))) {
            return None;
        }
        let dut = view.duts.iter().chain(&view.tester).find(|dut| dut.name == trial.dut)?;
        let ports = &dut.records.first()?.ports;
        let mut lines: Vec<Line> = Vec::new();
        let senders = trial.spec.senders();
        let count = senders.len();
        for from in senders {
            let port = ports.get(from).filter(|port| port.speed_bps > 0)?;
            let own = || flows.iter().filter(|flow| flow.from == from);
            let weights: f64 = own().map(|flow| flow.weight).sum();
            let mean = |bytes: &dyn Fn(&PacketSize, bool) -> f64| {
                own().map(|flow| flow.weight / weights * bytes(&size(flow), flow.family == Family::Ipv6)).sum::<f64>()
            };
            let frame_bytes = mean(&|size, v6| size.mean_frame_bytes(v6));
            let line_bytes =
                mean(&|size, v6| port.medium.line_bytes(size.mean_ip_bytes(v6), size.mean_frame_bytes(v6)));
            let most_pps = port.medium.payload_rate(Bandwidth(port.speed_bps)) / (8.0 * line_bytes);
            lines.push(Line { frame_bytes, most_pps, senders: count });
        }
        // All sending ports have the same rate, so the slowest line determines the share.
        let finite = lines.into_iter().filter(|line| line.frame_bytes.is_finite() && line.most_pps > 0.0);
        finite.min_by(|a, b| a.most_pps.total_cmp(&b.most_pps))
    }
}

fn is_figure(key: &str) -> bool {
    // Conditional throughput is a rate within a trial of a search, not a figure.
    FORWARDED.iter().any(|start| key.starts_with(start)) && !key.contains("conditional")
}

/// True if this column holds a forwarding rate of the DUT in frames per second.
pub fn is_forwarded(column: &Column) -> bool {
    column.unit == "fps" && is_figure(&column.key)
}

/// The rate of a cell in other units, by the trials of its row.
pub fn of_cell(view: &View, row: &MergedRow, cell: &Cell) -> Option<Rate> {
    let line = row.trials.iter().find_map(|trial| Line::of(view, trial))?;
    value(cell).map(|pps| line.rate(pps))
}

/// The figure of a DUT in other units. Its key contains the frame size; trials with this size give the line.
pub fn of_figure(view: &View, figure: &Ranked, dut: usize) -> Option<Rate> {
    // Earlier versions did not record that a rate is per port.
    let per_port = figure.unit == FPS_PER_PORT || (figure.unit == "fps" && is_figure(&figure.key));
    if !per_port {
        return None;
    }
    let size = figure.key.split('_').find_map(|word| word.parse::<PacketSize>().ok())?;
    let result = view.sections[figure.section].results.iter().find(|result| result.dut == dut)?;
    let same = result.trials.iter().filter(|trial| trial.spec.size == size);
    let lines: Vec<Line> = same.filter_map(|trial| Line::of(view, trial)).collect();
    let rate = lines.first()?.rate(figure.entries[dut].value()?);
    // A test with several mixes of address families has other frames of this size too, and the key does not say which.
    let alike = lines.iter().all(|line| *line == lines[0]);
    let same_senders = lines.iter().all(|line| line.senders == rate.senders);
    match alike {
        true => Some(rate),
        false => (same_senders && rate.senders > 1).then_some(Rate { l2_mbps: None, line_percent: None, ..rate }),
    }
}

/// Key and heading of [`per_processor_second`].
pub const PROCESSOR: (&str, &str, &str) = ("frames_per_cpu_s", "Per processor second", "frames");

/// Key and heading of [`tester_percent`].
pub const TESTER_SHARE: (&str, &str, &str) =
    ("tester_on_dut_percent", "Tester's share of the DUT's processor time", "%");

/// The first column of a table that holds a forwarding rate.
pub fn forwarded(table: &MergedTable) -> Option<usize> {
    table.columns.iter().position(|column| is_forwarded(column))
}

/// The valid trials of a row that forwarded about as much as the row's first forwarding rate.
fn near<'a>(table: &MergedTable, row: &MergedRow<'a>) -> Vec<&'a TrialResult> {
    let figure = forwarded(table).and_then(|column| value(row.cells[column]));
    let all = row.trials.iter().map(|trial| &trial.result);
    all.filter(|result| {
        result.validity.is_valid() && figure.is_some_and(|f| result.forwarding_rate().pps() >= NEAR * f)
    })
    .collect()
}

/// Share of the DUT's processor time, 0 to 1, that was work for the tester's ends of the links; `None` if unknown.
fn tester_share(results: &[&TrialResult]) -> Option<f64> {
    let known = results.iter().filter_map(|r| Some((r.health.tester_on_dut_ns?, r.health.dut_used_ns?)));
    let (tester, all) = known.fold((0.0, 0.0), |(tester, all), (t, a)| (tester + t as f64, all + a as f64));
    (all > 0.0).then(|| tester / all)
}

/// The tester's share of the DUT's processor time in per cent, over the trials near the row's figure.
pub fn tester_percent(table: &MergedTable, row: &MergedRow) -> Option<f64> {
    tester_share(&near(table, row)).map(|share| share * 100.0)
}

/// Frames that the DUT forwarded per second of its processor time, without the tester's share: the median over the trials
/// near the row's figure. It depends less on how much processor time the DUT got than the rate does.
pub fn per_processor_second(table: &MergedTable, row: &MergedRow) -> Option<f64> {
    let near = near(table, row);
    let own = 1.0 - tester_share(&near).unwrap_or(0.0);
    let mut all: Vec<f64> = near
        .into_iter()
        .filter_map(|result| {
            // Earlier versions measured the share over another period, so it is useless here.
            let seconds = result.health.dut_used_ns? as f64 / 1e9 * own;
            let frames = result.received();
            (seconds > 0.0 && frames > 0).then(|| frames as f64 / seconds)
        })
        .collect();
    median(&mut all)
}

/// True if any row of this table has processor time of a DUT. The tester's own loop has no DUT.
pub fn has_processor(section: &Section, view: &View, table: &MergedTable) -> bool {
    let of_duts = section.results.iter().any(|result| result.dut < view.duts.len());
    of_duts && table.rows.iter().any(|row| per_processor_second(table, row).is_some())
}

/// Columns that reports for machines add to a table.
#[derive(Debug)]
pub struct Added {
    pub columns: Vec<Column>,
    /// Their cells for each row of the table.
    pub rows: Vec<Vec<Cell>>,
}

impl Added {
    /// `<rate>_l2_mbps` and `<rate>_line_percent` for each forwarding rate, frames per processor second, and the tester's
    /// share of the DUT's processor time.
    pub fn new(view: &View, section: &Section, table: &MergedTable) -> Added {
        let mut added = Added { columns: Vec::new(), rows: vec![Vec::new(); table.rows.len()] };
        for (index, column) in table.columns.iter().enumerate().filter(|(_, c)| is_forwarded(c)) {
            let rates: Vec<_> = table.rows.iter().map(|row| of_cell(view, row, row.cells[index])).collect();
            if rates.iter().all(Option::is_none) {
                continue;
            }
            let base = column.key.strip_suffix("_pps").unwrap_or(&column.key);
            let title = |what: &str| format!("{}, {what}", column.title);
            added.columns.push(Column::new(&format!("{base}_l2_mbps"), &title("layer 2"), "Mbit/s"));
            added.columns.push(Column::new(&format!("{base}_line_percent"), &title("of line rate"), "%"));
            for (row, rate) in added.rows.iter_mut().zip(rates) {
                row.push(rate.and_then(|r| r.l2_mbps).into());
                row.push(rate.and_then(|r| r.line_percent).into());
            }
        }
        if has_processor(section, view, table) {
            added.push(PROCESSOR, table.rows.iter().map(|row| per_processor_second(table, row)).collect());
            let shares: Vec<Option<f64>> = table.rows.iter().map(|row| tester_percent(table, row)).collect();
            if shares.iter().any(Option::is_some) {
                added.push(TESTER_SHARE, shares);
            }
        }
        added
    }

    fn push(&mut self, (key, title, unit): (&str, &str, &str), values: Vec<Option<f64>>) {
        self.columns.push(Column::new(key, title, unit));
        self.rows.iter_mut().zip(values).for_each(|(cells, value)| cells.push(value.into()));
    }
}
