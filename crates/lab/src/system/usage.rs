//! What the processes of all routers of a system use.

use super::{SystemDut, label};
use crate::Usage;
use crate::probe::ThreadTimes;
use std::time::Duration;

impl SystemDut {
    /// Asks each router, in order; `None` if one has no answer.
    fn each<T>(&mut self, ask: impl Fn(&mut dyn Usage) -> Option<T>) -> Option<Vec<T>> {
        self.routers.iter_mut().map(|router| ask(router.usage()?)).collect()
    }
}

impl Usage for SystemDut {
    fn cpu_time(&mut self) -> Option<Duration> {
        Some(self.router_cpu()?.into_iter().sum())
    }

    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.each(|router| router.cpu_time())
    }

    fn router_memory(&mut self) -> Option<Vec<u64>> {
        Some(self.each(|router| router.router_memory())?.concat())
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        Some(self.each(|router| router.threads())?.concat())
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (index, router) in self.routers.iter_mut().enumerate() {
            let own = router.usage().map(|router| router.memory()).unwrap_or_default();
            all.extend(own.into_iter().map(|(name, bytes)| (format!("{}.{name}", label(index)), bytes)));
        }
        all
    }

    /// The processor that all routers share.
    fn processor(&mut self) -> Option<usize> {
        let all = self.each(|router| router.processor())?;
        all.first().copied().filter(|first| all.iter().all(|processor| processor == first))
    }
}
