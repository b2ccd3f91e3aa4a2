//! The end of a trial: fetches the reports of all hosts, compares clocks, and describes the hosts.

use super::compare::{Compared, worse};
use super::{Bond, LEAD, LONG, locked};
use crate::Problem;
use crate::find::Host;
use crate::link::patiently;
use crate::message::{LARGEST_REPORTS, Reply, Stored, What, decode_up_to};
use drophammer_model::trial::HostRecord;
use drophammer_port::PortError;
use drophammer_rig::{FarResult, Refusals};
use futures_util::future::try_join_all;
use tokio::time::timeout;

impl Bond {
    /// Asks all hosts to store their reports, and fetches them.
    pub(super) async fn collect(
        &mut self,
        refusals: Refusals,
        [waited_ns, stolen_ns]: [Option<u64>; 2],
        lost: u64,
    ) -> Result<FarResult, PortError> {
        let bond = &*self;
        locked(&bond.heard).running = None;
        let fetch = |number: usize| {
            let what = What::Report { attempt: bond.attempt, refusals: refusals.clone() };
            async move {
                let host = &bond.hosts[number];
                let Reply::Stored { parts, bytes } = bond.demand(host, what, LONG).await? else {
                    return Err(bond.lost(host, "it did not store its reports"));
                };
                let stored = timeout(LONG, bond.fetch(&parts, bytes)).await;
                let stored = stored.map_err(|_| bond.lost(host, "its reports could not be fetched in time"))?;
                let stored = stored.map_err(|e| bond.lost(host, e))?;
                if (stored.lease, stored.attempt, stored.host) != (bond.lease.id.clone(), bond.attempt, number) {
                    return Err(bond.lost(host, "its stored reports belong to another trial"));
                }
                Ok((stored.reports, stored.counts))
            }
        };
        let stored = try_join_all((0..bond.hosts.len()).map(fetch)).await?;
        let (reports, counts): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
        let (reports, counts) = (reports.concat(), counts.concat());
        let Compared { offsets: now, hosts: found } = self.compare().await?;
        let (before, at) = &self.before;
        for host in &self.hosts {
            let (now, before) = (now[host.clock], before.offsets[host.clock]);
            if now.has_moved_since(before, at.elapsed()) {
                let by_ms = now.ns.abs_diff(before.ns) as f64 / 1e6;
                return Err(self.lost(
                    host,
                    format!(
                        "its clock and the controller's moved against each other by {by_ms:.1} ms during the trial, and the \
                         comparison of the two is exact to {:.3} ms; one of these machines stood still, or its clock jumped",
                        now.error_ns.saturating_add(before.error_ns) as f64 / 1e6
                    ),
                ));
            }
        }
        for ((uncertain, now), then) in self.uncertain.iter_mut().zip(&now).zip(&self.offsets) {
            *uncertain = (*uncertain).max(now.uncertainty_since(*then));
        }
        let mut clocks = vec![(0, 0); self.all];
        for host in &self.hosts {
            host.ports.iter().for_each(|(_, port)| clocks[*port] = (host.clock, self.uncertain[host.clock]));
        }
        self.lead = (self.lead / 2).max(LEAD);
        let earlier = self.before.0.hosts.iter().map(|(_, chrony)| *chrony);
        let records = self.hosts.iter().zip(found.into_iter().zip(earlier));
        let hosts = records.map(|(host, ((one_way_ns, chrony), earlier))| HostRecord {
            chrony: worse(earlier, chrony),
            ..self.record(host, one_way_ns)
        });
        let hosts = hosts.collect();
        Ok(FarResult { reports, counts, hosts, waited_ns, stolen_ns, lost, clocks })
    }

    /// Describes a host in a trial. All hosts were ready in time, so each started when its clock showed the agreed instant.
    fn record(&self, host: &Host, one_way_ns: u64) -> HostRecord {
        let own = self.uncertain[host.clock];
        let others = self.hosts.iter().filter(|other| other.clock != host.clock);
        let apart = others.map(|other| own.saturating_add(self.uncertain[other.clock]));
        HostRecord {
            name: host.name.clone(),
            ports: host.ports.iter().map(|(interface, _)| interface.clone()).collect(),
            // The same as this one: leases of ports of any other version are refused.
            version: self.settings.version.clone(),
            clock_uncertainty_ns: own,
            start_skew_ns: apart.max().unwrap_or(0),
            one_way_ns,
            chrony: None,
        }
    }

    /// Fetches parts from the stream, and joins and decodes them.
    async fn fetch(&self, parts: &[u64], bytes: usize) -> Result<Stored, Problem> {
        if bytes > LARGEST_REPORTS || parts.len() > LARGEST_REPORTS / 1024 {
            return Err(Problem(format!("its reports have {bytes} bytes in {} parts, too many", parts.len())));
        }
        let stream = self.link.records().await?;
        let mut joined = Vec::new();
        for part in parts {
            let message = patiently("its stored reports", || stream.get_raw_message(*part)).await?;
            if joined.len() + message.payload.len() > bytes {
                return Err(Problem("its stored reports are longer than it said".into()));
            }
            joined.extend_from_slice(&message.payload);
        }
        if joined.len() != bytes {
            return Err(Problem(format!("{} of {bytes} bytes of its reports are stored", joined.len())));
        }
        decode_up_to(&joined, LARGEST_REPORTS).map_err(|e| Problem(e.to_string()))
    }
}
