//! Exchanges between peers: dumps, single routes, trains of changes.

use super::*;

#[test]
fn a_new_peer_has_the_table_when_its_session_is_up() {
    for family in ["ipv4", "ipv6"] {
        let test = format!("bgp_table_dump: {{families: [{family}], routes: 5000, repeats: 3}}");
        let (_, outcome) = completed(", propagation_delay: 300 ms", 2, &test);
        let column = |name| full(&outcome, "bgp_table_dump", name);
        assert_eq!((column("routes"), column("missing")), (vec![5_000.0; 3], vec![0.0; 3]));
        // A peer whose session comes up late receives the routes at once.
        column("last_s").iter().for_each(|s| about(*s, 0.0, 20.0 * TICK_S));
        column("first_s").iter().zip(column("last_s")).for_each(|(first, last)| assert!(*first <= last));
        assert!(figure(&outcome, &format!("bgp_dump_{family}_s")).is_some());
        let curve = points(&outcome, "bgp_table_dump", if family == "ipv4" { "IPv4" } else { "IPv6" });
        assert_eq!(curve.last().unwrap().y, 5_000.0);
        assert!(curve.windows(2).all(|w| w[0].x <= w[1].x && w[0].y <= w[1].y));
    }
}

#[test]
fn a_single_route_takes_the_propagation_delay() {
    for delay_us in [0u32, 700, 12_345, 900_000] {
        let (_, outcome) =
            completed(&format!(", propagation_delay: {delay_us} us"), 2, "bgp_pass_through: {samples: 20}");
        let delay_ms = f64::from(delay_us) / 1e3;
        for name in ["min_ms", "median_ms", "mean_ms", "p99_ms", "max_ms"] {
            // Advertised and withdrawn.
            let found = full(&outcome, "bgp_pass_through", name);
            assert_eq!(found.len(), 2);
            found.iter().for_each(|ms| about(*ms, delay_ms, 0.06));
        }
        about(figure(&outcome, "bgp_pass_through_ipv4_median_ms").unwrap(), delay_ms, 0.06);
        assert_eq!(full(&outcome, "bgp_pass_through", "samples"), [20.0; 2]);
    }
}

const RATE: &str =
    "bgp_update_rate: {routes: 500, first_rate: 1000, max_rate: 8000, duration: 1 s, lag: 250 ms, refinements: 2}";

#[test]
fn whoever_is_late_by_less_than_the_lag_keeps_up_with_any_pace() {
    for delay_ms in [0, 200] {
        let (_, outcome) = completed(&format!(", propagation_delay: {delay_ms} ms"), 2, RATE);
        let column = |name| full(&outcome, "bgp_update_rate", name);
        assert_eq!(column("intended_rps"), [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
        for (sent, intended) in column("sent_rps").iter().zip(column("intended_rps")) {
            assert!((sent / intended - 1.0).abs() < 0.02, "{sent} of {intended}");
        }
        column("lag_ms").iter().for_each(|ms| about(*ms, f64::from(delay_ms), 1.0));
        assert_eq!(figure(&outcome, "bgp_update_rate_ipv4_rps"), Some(8_000.0));
        assert!(noted(&outcome, &["at least 8,000 changes per second"]));
    }
}

#[test]
fn whoever_is_late_by_more_than_the_lag_keeps_up_with_none() {
    let (_, outcome) = completed(", propagation_delay: 400 ms", 2, RATE);
    let column = |name| full(&outcome, "bgp_update_rate", name);
    assert_eq!(column("intended_rps"), [1_000.0, 500.0, 250.0]);
    column("lag_ms").iter().for_each(|ms| about(*ms, 400.0, 1.0));
    assert_eq!(figure(&outcome, "bgp_update_rate_ipv4_rps"), None);
}
