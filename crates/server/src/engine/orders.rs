//! Orders to many streams, in few commands to the rig, because a command takes time for each flow of the traffic.

use super::windows::Order;
use drophammer_rig::{FlowSelect, Rig};

/// Orders by round, and in each round those that are the same, with the numbers of their streams. A stream has at most one order in a
/// round, so its orders keep their order.
#[derive(Debug, Default, PartialEq)]
pub struct Orders(Vec<Vec<(Order, Vec<usize>)>>);

impl Orders {
    /// Adds all orders to the stream that has this number in the traffic.
    pub fn add(&mut self, number: Option<usize>, orders: impl IntoIterator<Item = Order>) {
        let Some(number) = number else { return };
        for (round, order) in orders.into_iter().enumerate() {
            if self.0.len() == round {
                self.0.push(Vec::new());
            }
            let round = &mut self.0[round];
            match round.iter_mut().rev().find(|(known, _)| *known == order) {
                Some((_, numbers)) => numbers.push(number),
                None => round.push((order, vec![number])),
            }
        }
    }

    /// Gives the orders to the rig.
    ///
    /// # Errors
    /// The rig's.
    pub fn give(self, rig: &Rig) -> Result<(), String> {
        for (order, numbers) in self.0.into_iter().flatten() {
            let given = rig.transmit(FlowSelect::Flows(&numbers), order.action, Some(order.at));
            given.map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_rig::TransmitAction::{Start, Stop};
    use std::time::Duration;

    #[test]
    fn equal_orders_are_one_and_a_stream_keeps_its_order() {
        let order = |action, at| Order { action, at: Duration::from_secs(at) };
        let mut orders = Orders::default();
        orders.add(Some(0), [order(Start, 5), order(Stop, 9)]);
        orders.add(Some(1), [order(Start, 5), order(Stop, 7), order(Start, 9)]);
        orders.add(None, [order(Start, 5)]);
        orders.add(Some(2), [order(Stop, 9), order(Start, 9)]);
        orders.add(Some(3), [order(Start, 5), order(Stop, 9)]);
        let expected = vec![
            vec![(order(Start, 5), vec![0, 1, 3]), (order(Stop, 9), vec![2])],
            vec![(order(Stop, 9), vec![0, 3]), (order(Stop, 7), vec![1]), (order(Start, 9), vec![2])],
            vec![(order(Start, 9), vec![1])],
        ];
        assert_eq!(orders, Orders(expected));
    }
}
