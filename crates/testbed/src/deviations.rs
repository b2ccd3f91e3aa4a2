//! A run's deviations from the RFCs, each listed once.

/// Merges the deviations of several tests, given as `(title, deviations)`. A text that several tests share appears once, followed
/// by their titles, or "all tests", in brackets: `pause of 50 ms instead of 5 s (all tests; RFC 2544 section 23 e)`.
pub fn summary(tests: &[(&str, Vec<String>)]) -> Vec<String> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut titles: Vec<&str> = Vec::new();
    for (title, deviations) in tests {
        if !titles.contains(title) {
            titles.push(title);
        }
        for text in deviations {
            match found.iter_mut().find(|(t, _)| t == text) {
                Some((_, who)) if who.contains(title) => {}
                Some((_, who)) => who.push(title),
                None => found.push((text, vec![title])),
            }
        }
    }
    let line = |(text, who): (&str, Vec<&str>)| {
        let who = if who.len() == titles.len() && who.len() > 1 { "all tests".into() } else { who.join(", ") };
        match text.rsplit_once(" (").filter(|_| text.ends_with(')')) {
            Some((what, source)) => format!("{what} ({who}; {source}"),
            None => format!("{text} ({who})"),
        }
    };
    found.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_share_is_said_once() {
        let pause = || "pause of 50 ms instead of 5 s (RFC 2544 section 23 e)".to_owned();
        let trial = |s: &str| format!("trials of {s} instead of 60 s (RFC 2544 section 24)");
        let tests = [
            ("Throughput", vec![pause(), trial("1 s")]),
            ("Frame loss rate", vec![pause(), trial("2 s")]),
            ("Latency", vec![trial("2 s"), "own clock".into(), pause()]),
            ("Latency", vec!["own clock".into()]),
        ];
        let expected = [
            "pause of 50 ms instead of 5 s (all tests; RFC 2544 section 23 e)",
            "trials of 1 s instead of 60 s (Throughput; RFC 2544 section 24)",
            "trials of 2 s instead of 60 s (Frame loss rate, Latency; RFC 2544 section 24)",
            "own clock (Latency)",
        ];
        assert_eq!(summary(&tests), expected);
        assert_eq!(summary(&tests[..1])[0], "pause of 50 ms instead of 5 s (Throughput; RFC 2544 section 23 e)");
        assert!(summary(&[("Throughput", vec![])]).is_empty());
    }
}
