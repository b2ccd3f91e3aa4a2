//! For any text, the reader returns a suite, or errors whose places lie within the text.
use crate::common::{FULL, QUICK_LOOK, suite};
use proptest::prelude::*;

fn sound(text: &str) {
    if let Err(errors) = suite(text) {
        assert!(!errors.errors.is_empty());
        for e in &errors.errors {
            assert!(text.get(e.span.clone()).is_some(), "{e:?}");
            assert_eq!(e.line, text[..e.span.start].matches('\n').count() + 1);
            assert!(e.column >= 1 && !e.message.is_empty() && !e.help.is_empty());
        }
        assert!(errors.errors.windows(2).all(|w| w[0].span.start <= w[1].span.start));
        assert!(errors.to_string().lines().count() >= 4 * errors.errors.len());
    }
}

/// Fragments of suites and YAML.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "\n", "\n  ", "\n  - ", ": ", "{", "}", "[", "]", ", ", "#", "*sizes", "&a ", "*a", "!!int ", "? ", "| ", "> ",
    "\"", "'", "\t", "---\n", "...\n", "<<: ", "-", "%", "~", "0", "1", "64", "1e9", "-1", "0.5",
    "9999999999999999999999", "imix", "imix:7x64,", "ip40", "60 s", "10 Gbit/s", "duts", "ports", "tests", "defaults",
    "name", "kind", "frr", "external", "interfaces", "throughput", "latency", "expect", "frame_sizes", "ipv4", "ipv6",
    "off", "dut", "host", "behind", "bgp", "routes", "tester_as", "destinations", "vlans", "id", "tpid", "0x88a8",
    "10.0.0.0/8", "0.0.0.0/0", "::/0", "255.255.255.255/32", "::1/128", "10.0.0.0/31", ">= 100 kfps",
    "throughput_64_pps", "true", "null", "ä", "\u{feff}", "\u{1b}", "\r",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        sound(&text);
    }

    #[test]
    fn arbitrary_pieces_never_panic(picks in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        sound(&picks.concat());
    }

    #[test]
    fn mutated_suites_never_panic(
        full in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(PIECES)), 1..6),
    ) {
        let mut text = String::from(if full { FULL } else { QUICK_LOOK });
        for (at, remove, insert) in edits {
            let from = text.floor_char_boundary(at.index(text.len() + 1));
            let to = text.ceil_char_boundary((from + remove).min(text.len()));
            text.replace_range(from..to, insert);
        }
        sound(&text);
    }

    #[test]
    fn lines_that_are_swapped_or_doubled_never_panic(moves in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index, bool)>(), 1..4)) {
        let mut lines: Vec<&str> = FULL.lines().collect();
        for (a, b, double) in moves {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            if double { lines.insert(a, lines[b]) } else { lines.swap(a, b) }
        }
        sound(&lines.join("\n"));
    }

    /// The reader returns what was written: sizes, loads and durations survive unchanged.
    #[test]
    fn values_survive_the_reading(
        sizes in prop::collection::btree_set(64u16..=1518, 1..6),
        loads in prop::collection::btree_set(1u32..=1000, 1..6),
        millis in 1u64..1_000_000,
        seed in any::<u64>(),
    ) {
        let sizes: Vec<u16> = sizes.into_iter().collect();
        let loads: Vec<f64> = loads.into_iter().map(|l| f64::from(l) / 10.0).collect();
        let text = format!(
            "suite: s\nseed: {seed}\nduts: [{{name: a, kind: frr}}]\nports: [{{name: p, speed: 1 Gbit/s}}, {{name: q, speed: 1 Gbit/s}}]\n\
             tests: [latency: {{frame_sizes: {sizes:?}, loads: {loads:?}, duration: {millis} ms}}]\n"
        );
        let suite = suite(&text).unwrap_or_else(|e| panic!("{e}"));
        let params = &suite.tests[0].params;
        let read: Vec<String> = params.sizes("frame_sizes").unwrap().iter().map(ToString::to_string).collect();
        prop_assert_eq!(read, sizes.iter().map(ToString::to_string).collect::<Vec<_>>());
        prop_assert_eq!(params.numbers("loads").unwrap(), loads);
        prop_assert_eq!(params.duration("duration").unwrap(), std::time::Duration::from_millis(millis));
        prop_assert_eq!(suite.seed, seed);
    }
}
