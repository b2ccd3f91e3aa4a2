//! Tests of expectations with keys other than prefixes.

use super::*;
use std::time::Duration;

fn at(us: u64) -> Instant {
    Instant(us * 1_000)
}

/// FECs by name, as in LDP.
fn fecs() -> Expectation<KeyList<&'static str>> {
    Expectation::new(at(10), KeyList::new(["a", "b", "c", "b"]), true)
}

#[test]
fn what_is_there_missing_wrong_and_unexpected_is_known_by_key() {
    let mut fecs = fecs();
    let number = |fecs: &Expectation<KeyList<_>>, key| fecs.keys().index_of(&key).unwrap();
    assert_eq!((fecs.keys().len(), fecs.keys().index_of(&"d"), fecs.keys().is_empty()), (3, None, false));
    assert_eq!(fecs.missing().collect::<Vec<_>>(), ["a", "b", "c"]);
    let (a, b) = (number(&fecs, "a"), number(&fecs, "b"));
    assert!(fecs.received(at(12), a, false) && fecs.received(at(15), b, true) && !fecs.received(at(16), b, true));
    let now = fecs.verification();
    assert_eq!((now.expected, now.present, now.missing, now.unexpected, now.wrong), (3, 2, 1, 0, 1));
    assert_eq!((now.received, now.repeated, now.first_at, now.last_at), (3, 1, Some(at(12)), Some(at(15))));
    assert_eq!((fecs.missing().collect::<Vec<_>>(), fecs.wrong().collect::<Vec<_>>()), (vec!["c"], vec!["b"]));
    assert_eq!(fecs.times(), Some(&[2, 5, NEVER][..]));
    assert_eq!(fecs.moved_since(at(13)).collect::<Vec<_>>(), ["b"]);
    assert!(!now.is_right() && !fecs.is_complete());
    // `a` must now be absent, but stays present for a while.
    fecs.change(at(20), a..a + 1, false);
    assert_eq!(fecs.unexpected().collect::<Vec<_>>(), ["a"]);
    assert!(fecs.withdrawn(at(23), a) && !fecs.withdrawn(at(24), a));
    fecs.received(at(25), b, false);
    fecs.received(at(26), number(&fecs, "c"), false);
    let now = fecs.verification();
    assert!(fecs.is_complete() && now.is_right());
    assert_eq!((now.withdrawn, now.withdrawn_in_error, now.first_at), (2, 0, Some(at(23))));
    assert_eq!(fecs.times(), Some(&[3, NEVER, 6][..]));
    fecs.withdrawn(at(27), b);
    assert_eq!(fecs.verification().withdrawn_in_error, 1);
}

#[test]
fn what_a_refresh_leaves_out_is_withdrawn_at_its_end() {
    let mut fecs = fecs();
    (0..3).for_each(|i| _ = fecs.received(at(11), i, i == 2));
    assert_eq!(fecs.refresh_ends(at(12)), 0, "none has begun");
    fecs.refresh_begins();
    fecs.received(at(13), 0, false);
    fecs.withdrawn(at(13), 1);
    assert_eq!((fecs.present(), fecs.refresh_ends(at(14)), fecs.present()), (2, 1, 1));
    let now = fecs.verification();
    assert_eq!((now.missing, now.wrong, now.last_at), (2, 0, Some(at(14))));
    assert_eq!((now.withdrawn, now.withdrawn_in_error), (2, 2));
    // The end of a session is the end of a refresh.
    fecs.refresh_begins();
    fecs.lost(at(15));
    fecs.received(at(16), 0, false);
    assert_eq!((fecs.refresh_ends(at(17)), fecs.present()), (0, 1));
}

#[test]
fn what_a_session_brought_goes_with_it() {
    let mut fecs = fecs();
    (0..3).for_each(|i| _ = fecs.received(at(11), i, i == 2));
    fecs.lost(at(11) + Duration::from_micros(9));
    let now = fecs.verification();
    assert_eq!((now.present, now.missing, now.wrong, now.last_at), (0, 3, 0, Some(at(20))));
    assert_eq!((fecs.present(), fecs.times()), (0, Some(&[10, 10, 10][..])));
}
