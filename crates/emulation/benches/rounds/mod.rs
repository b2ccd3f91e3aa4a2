//! Rounds of a part of a benchmark, in processor time: the work of others on a busy machine does not count.

const ROUNDS: usize = 5;

/// Processor time of this thread in ns.
fn on_processor() -> u64 {
    // The scheduler updates the figure when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_else(|| panic!("no schedstat"))
}

/// How many things a part handles per second if it handles `count` of them: the median of several rounds.
pub fn per_second(count: u64, mut part: impl FnMut()) -> f64 {
    let mut rates = [(); ROUNDS].map(|()| {
        let begun = on_processor();
        part();
        count as f64 * 1e9 / (on_processor() - begun) as f64
    });
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}
