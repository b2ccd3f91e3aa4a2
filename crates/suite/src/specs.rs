//! The defaults of tests and kinds, and checks of their descriptions.

use crate::values;
use drophammer_model::registry::{ParamKind, ParamSpec, Registry};
use drophammer_model::suite::{Params, Profile};
use std::collections::BTreeSet;

/// The defaults of `specs` for a profile, for programs that run a test without a suite. A parameter without a default is absent.
///
/// # Panics
/// If a default cannot be read. [`check_specs`] detects that earlier.
pub fn defaults(specs: &[ParamSpec], profile: Profile) -> Params {
    let value = |spec: &ParamSpec, text| match values::parse_default(spec, text) {
        Ok(value) => (spec.key.to_owned(), value),
        Err(why) => panic!("the default `{text}` of `{}` is wrong: {why}", spec.key),
    };
    Params(specs.iter().filter_map(|spec| Some(value(spec, values::default_of(spec, profile)?))).collect())
}

/// Errors in the descriptions themselves: defaults that do not parse, duplicate names, or keys with another meaning in
/// suite files. For the tests of the crates that own the specs.
pub fn check_specs(registry: &Registry) -> Vec<String> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for test in registry.tests {
        let at = format!("test `{}`", test.name);
        check_name(test.name, &at, &mut names, &mut found);
        check_params(test.params, &["expect", "id"], &at, &mut found);
        let has_sizes = test.params.iter().any(|p| p.kind == ParamKind::Sizes);
        let mut figures = BTreeSet::new();
        for figure in test.figures {
            if !figures.insert(figure.key) {
                found.push(format!("{at}: figure `{}` is listed twice", figure.key));
            }
            if figure.key.contains("{size}") && !has_sizes {
                found.push(format!("{at}: figure `{}` needs a parameter that lists sizes", figure.key));
            }
            if figure.key.matches('{').count() != figure.key.matches('}').count() {
                found.push(format!("{at}: figure `{}` has an unclosed placeholder", figure.key));
            }
        }
        let mut tables = BTreeSet::new();
        for table in test.tables {
            check_name(table.key, &format!("{at}, table `{}`", table.key), &mut tables, &mut found);
            if table.columns.len() != table.numeric.len() {
                found.push(format!("{at}: table `{}` does not say of each column what it holds", table.key));
            }
        }
    }
    let mut names = BTreeSet::new();
    for kind in registry.kinds {
        let at = format!("kind `{}`", kind.name);
        check_name(kind.name, &at, &mut names, &mut found);
        check_params(kind.params, &["name", "kind"], &at, &mut found);
    }
    found
}

fn check_name<'a>(name: &'a str, at: &str, names: &mut BTreeSet<&'a str>, found: &mut Vec<String>) {
    if !names.insert(name) {
        found.push(format!("{at} is listed twice"));
    }
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b)) {
        found.push(format!("{at}: a name is made of lower-case letters, digits, `_` and `-`"));
    }
}

fn check_params(params: &[ParamSpec], reserved: &[&str], at: &str, found: &mut Vec<String>) {
    let mut keys = BTreeSet::new();
    for param in params {
        let at = format!("{at}, parameter `{}`", param.key);
        check_name(param.key, &at, &mut keys, found);
        if reserved.contains(&param.key) {
            found.push(format!("{at}: suite files use this key for something else"));
        }
        if param.help.is_empty() {
            found.push(format!("{at}: no help"));
        }
        if param.required && (param.quick.is_some() || param.conformant.is_some()) {
            found.push(format!("{at}: a required parameter has no use for a default"));
        }
        if param.quick.is_some() != param.conformant.is_some() {
            found.push(format!("{at}: a default for one profile only"));
        }
        for (profile, text) in [("quick", param.quick), ("conformant", param.conformant)] {
            if let Some(Err(why)) = text.map(|t| values::parse_default(param, t)) {
                found.push(format!("{at}: default for {profile}: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::param::{Param, Percent};
    use drophammer_model::pattern::Direction;
    use drophammer_model::quantity::FrameRate;

    const STEP: Param<Percent> = Param::new("step", "20", "10", "step in %");
    const RATE: Param<Option<FrameRate>> = Param::optional("rate", "load");
    const WAY: Param<Direction> = Param::new("direction", "unidirectional", "bidirectional", "who sends");
    const COUNT: Param<u32> = Param::new("count", "3", "5", "how many");

    #[test]
    fn defaults_come_from_the_declaration_alone() {
        let specs = [STEP.spec(), RATE.spec(), WAY.spec(), COUNT.spec()];
        let mut params = defaults(&specs, Profile::Quick);
        assert_eq!(STEP.get(&params), Percent(20.0));
        assert_eq!((RATE.get(&params), COUNT.get(&params)), (None, 3));
        assert_eq!(WAY.get(&params), Direction::Unidirectional);
        let conformant = defaults(&specs, Profile::Conformant);
        assert_eq!((STEP.get(&conformant), WAY.get(&conformant)), (Percent(10.0), Direction::Bidirectional));
        RATE.set(&mut params, Some(FrameRate(5.0)));
        WAY.set(&mut params, Direction::Bidirectional);
        assert_eq!((RATE.get(&params), WAY.get(&params)), (Some(FrameRate(5.0)), Direction::Bidirectional));
        RATE.set(&mut params, None);
        assert_eq!(RATE.get(&params), None);
    }
}
