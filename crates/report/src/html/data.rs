//! CSV files embedded in the page, so that its links work without any other file.

use maud::{Markup, html};
use std::collections::HashMap;
use std::fmt::Write;

/// Maximum number of bytes of data in a page. Mail servers accept about 10 MB, and the page itself uses part of that.
const MOST: usize = 6 << 20;

/// The CSV files of a report. Small files are embedded in the page; the largest files are only next to it.
#[derive(Debug)]
pub struct Data<'a> {
    /// Embedded files, as `data:` addresses.
    within: HashMap<&'a str, String>,
    /// Files that are only next to the page, with their sizes in bytes.
    pub beside: Vec<(&'a str, usize)>,
    /// All files in the order of the report.
    files: &'a [(String, String)],
}

impl<'a> Data<'a> {
    /// Embeds files, given as `(file name, content)`, in the page, the smallest first, as long as there is room.
    pub fn new(files: &'a [(String, String)]) -> Data<'a> {
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|i| files[*i].1.len());
        let mut data = Data { within: HashMap::new(), beside: Vec::new(), files };
        let mut left = MOST;
        for (name, text) in order.into_iter().map(|i| &files[i]) {
            // Encoding never makes a text shorter.
            let address = (text.len() <= left).then(|| address(text)).filter(|address| address.len() <= left);
            match address {
                Some(address) => {
                    left -= address.len();
                    data.within.insert(name, address);
                }
                None => data.beside.push((name, text.len())),
            }
        }
        data
    }

    /// A link to a file with this text.
    pub fn link(&self, file: &str, text: &str) -> Markup {
        match self.within.get(file) {
            Some(address) => html! {
                a.csv download=(file) href=(address) title={ "all data in full precision: " (file) } { (text) }
            },
            None => html! {
                a.csv href={ "csv/" (file) } title={ "too large for this page: see csv/" (file) " next to it" } { (text) " \u{2197}" }
            },
        }
    }

    /// The section that lists the data files.
    pub fn section(&self) -> Markup {
        html! {
            section #data {
                h2 { "Data" }
                p {
                    "The CSV link of a plot or table saves its figures in full precision. This page contains them, so it can be passed on \
                     without other files. " (self.link("summary.csv", "summary.csv")) " has the figures of the summary, "
                    (self.link("trials.csv", "trials.csv")) " every trial."
                }
                @if !self.beside.is_empty() {
                    p.muted {
                        "Too large for this page, so only in the folder of the report: "
                        @for (i, (name, bytes)) in self.beside.iter().enumerate() {
                            @if i > 0 { ", " }
                            "csv/" (name) " (" (format!("{:.1} MB", *bytes as f64 / 1e6)) ")"
                        }
                        "."
                    }
                }
                p.muted { "report.json, next to this page, contains everything in a form for programs, including the data of " (self.files.len()) " CSV files." }
            }
        }
    }
}

/// `data:` address of a CSV text (RFC 2397).
fn address(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16 + 32);
    out.push_str("data:text/csv;charset=utf-8,");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.,~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_files_stay_outside() {
        let file = |name: &str, bytes: usize| (name.to_owned(), "7".repeat(bytes));
        let files = [file("big", MOST), file("small", 10), file("middle", MOST / 2)];
        let data = Data::new(&files);
        assert_eq!(data.beside, [("big", MOST)]);
        assert!(data.link("small", "CSV").into_string().contains("href=\"data:text/csv;charset=utf-8,7777777777\""));
        assert!(data.link("big", "CSV").into_string().contains("href=\"csv/big\""));
        let text = data.section().into_string();
        assert!(text.contains("csv/big (6.3 MB)") && !text.contains("csv/middle ("), "{text}");
    }

    #[test]
    fn an_address_holds_any_text() {
        assert_eq!(address("a,\"ü\"\r\n<"), "data:text/csv;charset=utf-8,a,%22%C3%BC%22%0D%0A%3C");
    }
}
