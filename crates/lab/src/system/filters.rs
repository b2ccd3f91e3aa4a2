//! Filters of a system, divided by router.

use drophammer_model::filter::FilterList;

/// The lists of the system that apply to one router, at its own interfaces, and the place of each of its rules among
/// all.
pub fn filters_of(lists: &[FilterList], ports: &std::ops::Range<usize>) -> (Vec<FilterList>, Vec<usize>) {
    let (mut own, mut rules) = (Vec::new(), Vec::new());
    let mut first = 0;
    for list in lists {
        let all = list.interfaces.is_empty();
        let at = ports.clone().filter(|port| all || list.interfaces.contains(port)).map(|port| port - ports.start);
        let interfaces: Vec<usize> = at.collect();
        // A list without interfaces would also apply at the links to other routers.
        if !interfaces.is_empty() {
            rules.extend(first..first + list.rules.len());
            own.push(FilterList { interfaces, ..list.clone() });
        }
        first += list.rules.len();
    }
    (own, rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::filter::{FilterDirection, FilterRule};

    #[test]
    fn a_list_goes_to_the_routers_with_its_ports() {
        let rules = |n| vec![FilterRule::DENY_ALL; n];
        let list = |interfaces: &[usize], n| FilterList {
            direction: FilterDirection::Ingress,
            interfaces: interfaces.to_vec(),
            rules: rules(n),
        };
        let lists = [list(&[0, 3], 2), list(&[2], 1), list(&[], 3)];
        let of = |ports| {
            let (own, rules) = filters_of(&lists, &ports);
            (own.into_iter().map(|list| list.interfaces).collect::<Vec<_>>(), rules)
        };
        assert_eq!(of(0..2), (vec![vec![0], vec![0, 1]], vec![0, 1, 3, 4, 5]));
        assert_eq!(of(2..4), (vec![vec![1], vec![0], vec![0, 1]], vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(of(2..2), (vec![], vec![]), "a router in the middle of a chain");
    }
}
