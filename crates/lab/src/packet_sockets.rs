//! Counters of the packet sockets of a program that reads links.

use crate::{LabError, Netns};
use std::collections::BTreeMap;

/// Frames dropped at full packet sockets of the links `d0 d1 ...` in a namespace: loss because their reader is too
/// slow.
///
/// # Errors
/// Those of ss(8).
pub(crate) fn dropped(netns: &Netns) -> Result<BTreeMap<String, u64>, LabError> {
    let arguments = ["--packet", "--all", "--numeric", "--memory", "--no-header"];
    netns.output("ss", "iproute2", &arguments, None).map(|text| parse(&text))
}

/// For each socket, the last field of `skmem:(r0,...,d12)` behind `*:d0`.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let of_link = |word: &str| {
        let name = word.strip_prefix("*:")?;
        name.strip_prefix('d')?.parse::<u16>().ok()?;
        Some(name.to_owned())
    };
    let (mut found, mut link) = (BTreeMap::new(), None);
    for word in text.split_whitespace() {
        if word.starts_with("p_") {
            // The next socket.
            link = None;
        } else if let Some(name) = of_link(word) {
            link = Some(name);
        } else if let (Some(name), Some(memory)) = (&link, word.strip_prefix("skmem:(")) {
            let dropped =
                memory.trim_end_matches(')').split(',').find_map(|field| field.strip_prefix('d')?.parse().ok());
            *found.entry(name.clone()).or_default() += dropped.unwrap_or(0u64);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_the_links_are_found() {
        let text = "p_raw UNCONN 0 0 *:d1 * skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d12)\n\
                    p_raw UNCONN 0 0 [0]:* * skmem:(r0,rb1,t0,tb1,f0,w0,o0,bl0,d5)\n\
                    p_raw UNCONN 0 0 *:dummy0 * skmem:(r0,d9)\n\
                    p_raw UNCONN 0 0 *:d0 *\n\t skmem:(r0,rb1,d0)\n";
        assert_eq!(parse(text), [("d0", 0), ("d1", 12)].map(|(name, n)| (name.to_owned(), n)).into());
    }
}
