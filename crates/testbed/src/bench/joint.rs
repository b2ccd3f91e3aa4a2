//! Trials with several devices, and the record of each device.

use super::{Bench, Failure, of_port};
use crate::observer::Progress;
use crate::together::counters_of;
use crate::validity::{self, HostTolerance};
use drophammer_methods::{Contestant, TestError};
use drophammer_model::trial::{FlowSpec, TrialResult, TrialSpec, Validity};
use std::time::Duration;

impl Bench<'_> {
    /// From now on, trials are valid whatever the host does, because it disturbs all devices alike.
    pub(crate) fn bear_host(&mut self) {
        self.tolerance.host = HostTolerance::ANY;
    }

    /// Processor time of each router of the device, or of each device if there are several.
    pub(crate) fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.device.usage()?.router_cpu()
    }

    /// Runs attempt number `attempt` at a trial with all `contestants`, judges it and stores one record for each of
    /// them.
    pub(crate) fn joint_attempt(
        &mut self,
        spec: &TrialSpec,
        contestants: &[Contestant],
        attempt: u32,
    ) -> Result<Vec<TrialResult>, TestError> {
        self.observer.progress(&Progress::TrialStarted { spec });
        let before = self.router_cpu();
        let outcome = self.serve(Duration::ZERO).and_then(|()| self.execute(spec, &[]));
        let used = before.zip(self.router_cpu());
        let used =
            used.map(|(then, now)| now.into_iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect());
        let (whole, ended) = match self.with_carriers(spec, outcome, &[]) {
            Ok(mut result) => {
                let alive = self.check_device();
                if let Err(TestError::DutDied(cause)) = &alive {
                    result.validity = Validity::Invalid(vec![format!("a device under test died: {cause}")]);
                }
                (result, alive)
            }
            Err(Failure::Port(e)) => {
                self.port_failed = true;
                (validity::spoilt(self.session.next_trial().0, spec, &of_port(&e)), Ok(()))
            }
            Err(Failure::Test(TestError::DutDied(cause))) => {
                let why = format!("a device under test died ({cause})");
                (validity::spoilt(self.session.next_trial().0, spec, &why), Err(TestError::DutDied(cause)))
            }
            Err(Failure::Test(e)) => return Err(e),
        };
        let mut parts = split(spec, &whole, contestants, used.as_ref());
        for (part, (own, result)) in parts.iter_mut().enumerate() {
            if part > 0 {
                result.trial = self.session.next_trial().0;
            }
            self.store_of(&contestants[part].name, own, result, attempt)?;
        }
        self.ended(spec, &whole, attempt);
        ended?;
        if self.observer.stopped() {
            return Err(TestError::Interrupted);
        }
        Ok(parts.into_iter().map(|(_, result)| result).collect())
    }
}

/// Splits a trial into one part for each device, as if the device had been alone at its ports: its flows, groups,
/// counters and processor time. `used` holds the processor time of each device.
///
/// Splits the kernel's work for the tester's ends of the links by the number of frames that each device forwarded,
/// because each frame costs the same.
fn split(
    spec: &TrialSpec,
    whole: &TrialResult,
    contestants: &[Contestant],
    used: Option<&Vec<Duration>>,
) -> Vec<(TrialSpec, TrialResult)> {
    let received =
        |name: &str| whole.groups.iter().filter(|group| group.group == name).map(|group| group.received).sum();
    let frames: Vec<u64> = contestants.iter().map(|one| received(&one.name)).collect();
    let all_frames = frames.iter().sum::<u64>().max(1) as f64;
    let ns = |time: &Duration| time.as_nanos() as f64;
    let all_ns: Option<f64> = used.map(|used| used.iter().map(ns).sum());
    let tester_ns = whole.health.tester_on_dut_ns.map(|ns| ns as f64);
    // If the kernel charges softirqs to the thread that they interrupt, the devices' times include them.
    let own_ns = whole.health.dut_used_ns.zip(tester_ns).map(|(all, tester)| all as f64 - tester);
    let included_ns = all_ns.zip(own_ns).map_or(0.0, |(all, own)| (all - own).clamp(0.0, tester_ns.unwrap_or(0.0)));
    let part = |(index, one): (usize, &Contestant)| {
        let shift = |port: usize| port - one.ports.start;
        let flows = spec.flows.iter().filter(|flow| one.ports.contains(&flow.from));
        let flows: Vec<FlowSpec> =
            flows.map(|flow| FlowSpec { from: shift(flow.from), to: shift(flow.to), ..flow.clone() }).collect();
        let own_spec = TrialSpec { flows, ..spec.clone() };
        let of_frames = frames[index] as f64 / all_frames;
        let tester = tester_ns.map(|ns| ns * of_frames);
        let cpu_ns = used.and_then(|used| used.get(index)).map(|time| (ns(time) - included_ns * of_frames).max(0.0));
        let used_ns = cpu_ns.map(|own| own + tester.unwrap_or(0.0));
        let load_s = whole.sending_s.max(whole.receiving_s);
        let mut result = TrialResult {
            groups: whole.groups.iter().filter(|group| group.group == one.name).cloned().collect(),
            senders: own_spec.senders().len() as u32,
            dut_counters: counters_of(&whole.dut_counters, index),
            dut_cpu: used_ns.filter(|_| load_s > 0.0).map(|ns| ns / 1e9 / load_s),
            background: Vec::new(),
            ways: Vec::new(),
            destinations: Vec::new(),
            destination_summaries: Vec::new(),
            events: Vec::new(),
            losses: Default::default(),
            misdelivered: Vec::new(),
            health: whole.health.clone(),
            validity: whole.validity.clone(),
            ..*whole
        };
        result.health.dut_used_ns = used_ns.map(|ns| ns as u64);
        result.health.tester_on_dut_ns = tester.map(|ns| ns as u64);
        // This counts the emulated devices of all ports together.
        result.health.other_sent = None;
        (own_spec, result)
    };
    contestants.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, GroupCounts, Health, Load};
    use std::collections::BTreeMap;

    #[test]
    fn each_device_gets_its_own_part() {
        let hosts = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let flow = |name: &str, from, to| FlowSpec::new(name, from, to, hosts, hosts);
        let spec = TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![flow("a", 2, 3), flow("a", 3, 2), flow("b", 0, 1)],
            load: Load::Constant { rate_pps: 1e5 },
            duration_s: 1.0,
            bin_s: None,
            drain_s: 0.0,
            events: vec![],
        };
        let group = |name: &str, received| GroupCounts { group: name.into(), received, ..GroupCounts::default() };
        let whole = |whole_ns, tester_ns| TrialResult {
            trial: 9,
            sending_s: 1.0,
            groups: vec![group("a", 300), group("b", 100)],
            senders: 3,
            dut_counters: BTreeMap::from([("0:d0.rx_packets".into(), 5), ("1:d0.rx_packets".into(), 6)]),
            health: Health { dut_used_ns: Some(whole_ns), tester_on_dut_ns: Some(tester_ns), ..Health::default() },
            ..TrialResult::default()
        };
        let contestant = |name: &str, first| Contestant { name: name.into(), ports: first..first + 2 };
        let contestants = [contestant("a", 2), contestant("b", 0)];
        let used = vec![Duration::from_nanos(6_000), Duration::from_nanos(4_000)];
        let times = |whole: &TrialResult| {
            let parts = split(&spec, whole, &contestants, Some(&used));
            parts.iter().map(|(_, r)| (r.health.dut_used_ns, r.health.tester_on_dut_ns)).collect::<Vec<_>>()
        };
        // The devices' times do not include the tester's 2,000 ns.
        assert_eq!(times(&whole(12_000, 2_000)), [(Some(7_500), Some(1_500)), (Some(4_500), Some(500))]);
        // The devices' times include them.
        assert_eq!(times(&whole(10_000, 2_000)), [(Some(6_000), Some(1_500)), (Some(4_000), Some(500))]);

        let parts = split(&spec, &whole(12_000, 2_000), &contestants, None);
        let (own, result) = &parts[0];
        assert_eq!(own.flows.iter().map(|flow| (flow.from, flow.to)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
        assert_eq!((result.senders, result.received(), result.dut_counters["d0.rx_packets"]), (2, 300, 5));
        assert_eq!(result.health.dut_used_ns, None, "nobody knows the time of one device");
        assert_eq!(parts[1].1.dut_counters["d0.rx_packets"], 6);
    }
}
