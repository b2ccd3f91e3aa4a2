//! `drophammer list` and `drophammer schema`, from the registries.

use crate::Exit;
use crate::args::Listing;
use crate::output::{err, out};
use crate::suite_file::with_registry;
use drophammer_methods::METHODS;
use drophammer_model::registry::ParamSpec;
use drophammer_port::backends;

fn params(params: &[ParamSpec]) {
    for p in params {
        let default = match (p.quick, p.conformant) {
            (Some(quick), Some(conformant)) if quick == conformant => format!(" [{quick}]"),
            (Some(quick), Some(conformant)) => format!(" [quick {quick}; conformant {conformant}]"),
            _ if p.required => " (required)".into(),
            _ => String::new(),
        };
        out!("      {:<22} {}{default}", p.key, p.help);
    }
}

/// Prints a list.
pub fn list(what: Listing) -> Exit {
    match what {
        Listing::Tests => {
            for method in METHODS {
                let spec = method.spec();
                out!("{}\n    {}\n    {}", spec.name, spec.summary, spec.source);
                params(spec.params);
                if !spec.figures.is_empty() {
                    out!("    figures for `expect`:");
                }
                for figure in spec.figures {
                    out!("      {:<32} {}", figure.key, figure.help);
                }
                if !spec.tables.is_empty() {
                    out!("    tables for `expect`, and their columns:");
                }
                for table in spec.tables {
                    let columns: Vec<&str> = table.columns.iter().map(|(key, ..)| *key).collect();
                    out!("      {:<32} {}", table.key, columns.join(", "));
                }
            }
        }
        Listing::Duts => {
            for spec in drophammer_testbed::kinds::specs() {
                out!("{}\n    {}", spec.name, spec.summary);
                out!("    roles: {}", spec.capabilities.words().join(", "));
                if !spec.needs.is_empty() {
                    let needs: Vec<_> =
                        spec.needs.iter().map(|(program, package)| format!("{program} ({package})")).collect();
                    out!("    needs: {}", needs.join(", "));
                }
                params(spec.params);
            }
        }
        Listing::Backends => {
            for spec in backends() {
                out!("{}\n    {}", spec.name, spec.summary);
            }
        }
    }
    Exit::Good
}

/// Prints the JSON Schema of suite files.
pub fn schema() -> Exit {
    let schema = with_registry(drophammer_suite::schema::schema);
    match serde_json::to_string_pretty(&schema) {
        Ok(text) => {
            out!("{text}");
            Exit::Good
        }
        Err(e) => {
            err!("cannot print the schema: {e}");
            Exit::Store
        }
    }
}
