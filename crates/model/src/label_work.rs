//! Describes in words what a router does with the labels of a packet.
//!
//! # Labels
//!
//! The entries of a port's `labels` are `LabelConfig` (packets with a label) and `FecConfig` (packets to a network get
//! labels); in the role they are `LabelRoute` and `PushedRoute`. The TTL model of labels (RFC 3443) is a parameter of
//! the kind (`lab/src/kinds/mod.rs`).

/// Describes how a router gets from one incoming label (or none, if not `came`) to the outgoing labels `out`, the
/// outermost first, in the words of RFC 3031: `swap to 300, push 200`, or `pop`. The innermost label replaces the
/// incoming one.
pub fn label_work(came: bool, out: &[u32]) -> String {
    if out.is_empty() {
        return "pop".to_owned();
    }
    let word = |(at, label): (usize, &u32)| format!("{} {label}", if came && at == 0 { "swap to" } else { "push" });
    out.iter().rev().enumerate().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_label_takes_the_place_of_the_one_that_came() {
        assert_eq!(label_work(true, &[]), "pop");
        assert_eq!(label_work(true, &[200, 300]), "swap to 300, push 200");
        assert_eq!(label_work(false, &[7, 8]), "push 8, push 7");
    }
}
