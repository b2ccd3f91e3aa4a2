//! Ends caused by this speaker.

use super::*;

#[test]
fn stop_says_goodbye_and_stays() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut session = session_in(state, config());
        session.stop(at(2.), cease::ADMINISTRATIVE_SHUTDOWN);
        assert_eq!(written(&mut session, at(2.)), [(kind::NOTIFICATION, vec![6, 2])]);
        assert_eq!(tcp_actions(&mut session, at(2.)), [TcpAction::Close]);
        assert_eq!((session.state(), session.next_deadline()), (State::Idle, None));
        assert!(matches!(session.ended(), Some(Cause::LocalStop(Some(_)))));
        session.start(at(9.));
        assert_eq!(tcp_actions(&mut session, at(9.)), [TcpAction::Connect]);
    }
    let mut session = session_in(State::Connect, config());
    session.stop(at(2.), cease::ADMINISTRATIVE_SHUTDOWN);
    assert_eq!(tcp_actions(&mut session, at(2.)), [TcpAction::Abort]);
    assert_eq!((session.state(), session.ended()), (State::Idle, Some(&Cause::LocalStop(None))));
    let mut session = session_in(State::Established, config());
    session.closed(at(2.), Closed::ByPeer);
    session.stop(at(2.5), cease::ADMINISTRATIVE_SHUTDOWN);
    assert_eq!((session.next_deadline(), session.ended()), (None, Some(&Cause::TcpClosed)), "it was over before");
}

#[test]
fn reset_and_abort_come_back() {
    let mut session = session_in(State::Established, config());
    session.reset(at(2.), Notification::cease(cease::ADMINISTRATIVE_RESET, "again"));
    assert_eq!(ends_with(&mut session, at(2.)), (6, 4, b"\x05again".to_vec()));
    let mut session = session_in(State::Established, config());
    session.abort(at(2.));
    assert_eq!((tcp_actions(&mut session, at(2.)), session.wants_write()), (vec![TcpAction::Abort], false));
    assert_eq!((session.ended(), session.next_deadline()), (Some(&Cause::LocalAbort), Some(at(3.))));
}

#[test]
fn a_peer_that_does_not_read_cannot_hold_the_end_up() {
    let idle_hold = Duration::from_secs(60);
    let mut session = session_in(State::Established, SessionConfig { idle_hold, ..config() });
    session.stop(at(2.), cease::ADMINISTRATIVE_SHUTDOWN);
    assert_eq!(session.next_deadline(), Some(at(2.) + LINGER));
    assert_eq!(tcp_actions(&mut session, at(2.) + LINGER), [TcpAction::Abort]);
    assert_eq!((session.next_deadline(), session.wants_write()), (None, false));
    // With a shorter IdleHoldTime, the next attempt starts earlier.
    let mut session = session_in(State::Established, config());
    session.reset(at(2.), Notification::bare(6, 4));
    assert_eq!(tcp_actions(&mut session, at(3.)), [TcpAction::Abort, TcpAction::Connect]);
    assert!(!session.wants_write());
    // So does a manual start.
    let mut session = session_in(State::Established, config());
    session.stop(at(2.), cease::ADMINISTRATIVE_SHUTDOWN);
    session.start(at(2.5));
    assert_eq!(
        (tcp_actions(&mut session, at(2.5)), session.wants_write()),
        (vec![TcpAction::Abort, TcpAction::Connect], false)
    );
    // A connection that is gone need not be closed.
    let mut session = session_in(State::Established, config());
    session.stop(at(2.), cease::ADMINISTRATIVE_SHUTDOWN);
    session.closed(at(3.), Closed::Reset);
    assert_eq!((tcp_actions(&mut session, at(9.)), session.wants_write()), (vec![], false));
}

#[test]
fn an_open_that_cannot_be_written_is_said() {
    let mut session = session_in(State::Connect, SessionConfig { local_as: 0, ..config() });
    assert!(session.connected(at(2.)));
    assert_eq!(tcp_actions(&mut session, at(2.)), [TcpAction::Abort]);
    assert_eq!((session.state(), session.ended()), (State::Idle, Some(&Cause::BadConfiguration("AS 0 is reserved"))));
}

#[test]
fn old_events_are_forgotten() {
    let mut session = session_in(State::Established, config());
    for second in 0..100 {
        session.closed(at(f64::from(second)), Closed::Refused);
        session.connected(at(f64::from(second)));
        let now = at(f64::from(second) + 0.99);
        tcp_actions(&mut session, now + Duration::from_secs(1));
    }
    assert_eq!(session.events().len(), EVENTS_MAX);
    assert!(session.events_dropped() > 100);
}
