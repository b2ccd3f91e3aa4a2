//! Which processor is whose.

use crate::LabError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors of tester and DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// The tester's packet loop: the first processor that we may use.
    pub tester: usize,
    /// The DUT: the last processor that we may use.
    pub dut: usize,
}

impl CpuPlan {
    /// The plan for the processors that this process may use.
    pub(crate) fn make() -> Result<CpuPlan, LabError> {
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(LabError::io("cannot read the processor affinity"))?;
        let usable: Vec<usize> = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect();
        match (usable.first(), usable.last()) {
            (Some(first), Some(last)) => Ok(CpuPlan { tester: *first, dut: *last }),
            _ => Err(LabError::Unusable {
                what: "no processor may be used by this process".into(),
                remedy: "start it without a restricting taskset or cpuset".into(),
            }),
        }
    }

    /// True when tester and DUT do not share a processor.
    pub fn separate(&self) -> bool {
        self.tester != self.dut
    }
}

/// Pins the thread or process `pid` (0: the calling thread) to one processor.
pub(crate) fn pin(pid: u32, cpu: usize) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set))
        .map_err(LabError::io(format!("cannot pin a thread to processor {cpu}")))
}

/// `cpu` as the kernel writes a set of processors: hexadecimal words of 32 bits, the highest first.
pub(crate) fn mask(cpu: usize) -> String {
    let mut words = vec![format!("{:x}", 1u32 << (cpu % 32))];
    words.extend(std::iter::repeat_n("00000000".to_owned(), cpu / 32));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_as_the_kernel_reads_them() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(31), "80000000");
        assert_eq!(mask(32), "1,00000000");
        assert_eq!(mask(70), "40,00000000,00000000");
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        let plan = CpuPlan::make().unwrap();
        std::thread::spawn(move || {
            pin(0, plan.dut).unwrap();
            assert_eq!(nix::sched::sched_getcpu().unwrap(), plan.dut);
        })
        .join()
        .unwrap();
    }
}
