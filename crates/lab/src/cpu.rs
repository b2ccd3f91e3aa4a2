//! Assigns processors to tester and DUT.

use crate::LabError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors of tester and DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// The tester's packet loop: the first usable processor.
    pub tester: usize,
    /// Processors for the tester's threads: all usable ones except the DUT's, ascending, starting with
    /// [`CpuPlan::tester`]. If only one processor is usable, tester and DUT share it.
    pub testers: Vec<usize>,
    /// The DUT: the last usable processor.
    pub dut: usize,
    /// A processor for the tester's less urgent work: the second usable one, if there are three.
    pub spare: Option<usize>,
}

impl CpuPlan {
    /// The plan for the processors that this process may use.
    pub(crate) fn make() -> Result<CpuPlan, LabError> {
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(LabError::io("cannot read the processor affinity"))?;
        let usable: Vec<usize> = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect();
        CpuPlan::of(&usable).ok_or_else(|| {
            LabError::unusable(
                "this process may not use any processor",
                "start it without a restricting taskset or cpuset",
            )
        })
    }

    /// The plan for these processors, ascending; `None` if there are none.
    fn of(usable: &[usize]) -> Option<CpuPlan> {
        let (dut, others) = usable.split_last()?;
        let testers = if others.is_empty() { usable.to_vec() } else { others.to_vec() };
        let spare = usable.get(1).copied().filter(|second| second != dut);
        Some(CpuPlan { tester: testers[0], testers, dut: *dut, spare })
    }

    /// Returns processors for `threads` threads of the tester, or an error if there are too few.
    pub fn for_threads(&self, threads: usize) -> Result<&[usize], LabError> {
        self.testers.get(..threads.max(1)).ok_or_else(|| {
            let has = self.testers.len();
            LabError::unusable(
                format!(
                    "{threads} threads of the tester need {threads} processors in addition to the router's, but this \
                     machine has {has} for them"
                ),
                format!(
                    "use --threads {has}, or let this process use at least {} processors (number {} is the router's)",
                    threads + 1,
                    self.dut
                ),
            )
        })
    }

    /// The processor for threads that query a router during a trial: the spare one if there is one, otherwise the
    /// router's.
    pub(crate) fn for_questions(&self) -> usize {
        self.spare.unwrap_or(self.dut)
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

/// A processor mask that contains only `cpu`, in the kernel's notation: hexadecimal words of 32 bits, the highest
/// first.
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
    fn the_tester_has_all_but_the_duts() {
        let plan = |usable: &[usize]| CpuPlan::of(usable).map(|p| (p.tester, p.testers.clone(), p.dut, p.separate()));
        assert_eq!(plan(&[]), None);
        assert_eq!(plan(&[3]), Some((3, vec![3], 3, false)));
        assert_eq!(plan(&[0, 1]), Some((0, vec![0], 1, true)));
        assert_eq!(plan(&[2, 3, 5, 7]), Some((2, vec![2, 3, 5], 7, true)));
    }

    #[test]
    fn more_threads_than_processors_are_refused_with_the_remedy() {
        let plan = CpuPlan::of(&[0, 1]).unwrap();
        assert_eq!(plan.for_threads(1).unwrap(), [0]);
        let error = plan.for_threads(2).unwrap_err().to_string();
        assert!(error.contains("--threads 1") && error.contains("at least 3 processors"), "{error}");
        let plan = CpuPlan::of(&[0, 1, 2, 3]).unwrap();
        assert_eq!(plan.for_threads(3).unwrap(), [0, 1, 2]);
        assert!(plan.for_threads(4).is_err());
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
