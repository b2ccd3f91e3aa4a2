//! The links between the tester and a process that handles their frames itself.

use crate::dut::TesterInterface;
use crate::probe::ThreadTimes;
use crate::topology::Topology;
use crate::{LabError, Netns, probe};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

/// The links of a process.
pub(crate) enum Ends {
    /// veth pairs, as for any DUT in a namespace: the process opens `d0 d1 ...` in its own namespace.
    Veth(Topology),
    /// Taps `t0 t1 ...` in the tester's namespace; the process reads their far ends.
    Tap {
        tester: Netns,
        interfaces: Vec<TesterInterface>,
        /// The DUT's processor if the tester does not share it.
        cpu: Option<usize>,
    },
}

impl Ends {
    /// Namespace of the process.
    pub fn netns(&self) -> &Netns {
        match self {
            Ends::Veth(topology) => topology.netns(),
            Ends::Tap { tester, .. } => tester,
        }
    }

    /// The tester's interfaces.
    pub fn interfaces(&self) -> &[TesterInterface] {
        match self {
            Ends::Veth(topology) => topology.interfaces(),
            Ends::Tap { interfaces, .. } => interfaces,
        }
    }

    /// The first link without carrier. A link that the tester has switched off does not count.
    pub fn link_not_up(&self) -> Option<String> {
        match self {
            Ends::Veth(topology) => topology.link_not_up(),
            Ends::Tap { tester, interfaces, .. } => {
                let is_down = |name: &String| match fs::read_to_string(tester.sys(&format!("class/net/{name}/carrier")))
                {
                    Ok(carrier) => carrier.trim() != "1",
                    // The carrier of an interface that is switched off cannot be read.
                    Err(e) => e.kind() == ErrorKind::NotFound,
                };
                interfaces.iter().map(|interface| interface.name.clone()).find(is_down)
            }
        }
    }

    /// The DUT's processor if the tester does not share it.
    pub fn processor(&self) -> Option<usize> {
        match self {
            Ends::Veth(topology) => topology.processor(),
            Ends::Tap { cpu, .. } => *cpu,
        }
    }

    /// Processor time of the kernel's work for the process at its links.
    pub fn cpu_time(&self) -> Option<Duration> {
        match self {
            Ends::Veth(topology) => topology.cpu_time(),
            Ends::Tap { .. } => Some(Duration::ZERO),
        }
    }

    /// Times of the threads that do this work.
    pub fn threads(&self) -> Option<Vec<ThreadTimes>> {
        match self {
            Ends::Veth(topology) => topology.threads(),
            Ends::Tap { .. } => Some(Vec::new()),
        }
    }

    /// Counters of this machine's kernel.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        match self {
            Ends::Veth(topology) => topology.counters(),
            Ends::Tap { tester, interfaces, .. } => {
                let mut counters = BTreeMap::new();
                interfaces.iter().try_for_each(|i| probe::interface(tester, &i.name, &mut counters))?;
                Ok(counters)
            }
        }
    }

    /// Frames that the process sent and the tester's end of the link had no room for, by port.
    pub fn lost_by_tester(&self) -> Result<Option<Vec<u64>>, LabError> {
        match self {
            Ends::Veth(topology) => topology.lost_by_tester().map(Some),
            // The tester's port counts frames that the tap received and the port did not.
            Ends::Tap { .. } => Ok(None),
        }
    }
}
