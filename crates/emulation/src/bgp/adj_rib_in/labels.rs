//! Learned labels: 4 bytes for each VRF whose routes all have one label, otherwise 4 bytes for each of its routes.

use std::collections::HashMap;
use std::sync::Arc;

/// Stands for "no label known".
const NONE: u32 = u32::MAX;
/// Numbers from here on stand for label stacks; lower ones are labels.
const STACKS: u32 = 1 << 20;
/// Maximum number of different label stacks with more than one label.
const MOST_STACKS: usize = 4096;

/// The label stacks of routes with consecutive numbers, in blocks of equal size.
#[derive(Clone, Debug)]
pub(super) struct LearnedLabels {
    per_block: u32,
    blocks: Vec<Block>,
    /// Stacks with more than one label. `numbers` has the same ones.
    stacks: Vec<Arc<[u32]>>,
    numbers: HashMap<Arc<[u32]>, u32>,
}

#[derive(Clone, Debug)]
enum Block {
    Same(u32),
    Each(Box<[u32]>),
}

impl LearnedLabels {
    /// `blocks` blocks of `per_block` routes without labels.
    pub fn new(blocks: u32, per_block: u32) -> LearnedLabels {
        let blocks = vec![Block::Same(NONE); blocks as usize];
        LearnedLabels { per_block, blocks, stacks: Vec::new(), numbers: HashMap::new() }
    }

    /// Route `route` of block `block` has these labels, as in an NLRI (RFC 8277 section 2). No label is known for a stack beyond the
    /// 4096th different one.
    #[inline]
    pub fn set(&mut self, block: u32, route: u32, labels: &[u8]) {
        let number = match *labels {
            [a, b, c] => u32::from_be_bytes([0, a, b, c]) >> 4,
            _ => self.stack(labels),
        };
        match &mut self.blocks[block as usize] {
            Block::Same(same) if *same == number => {}
            Block::Same(same) if *same == NONE => *same = number,
            Block::Same(same) => {
                let mut each = vec![*same; self.per_block as usize].into_boxed_slice();
                each[route as usize] = number;
                self.blocks[block as usize] = Block::Each(each);
            }
            Block::Each(each) => each[route as usize] = number,
        }
    }

    fn stack(&mut self, labels: &[u8]) -> u32 {
        let stack: Vec<u32> =
            labels.chunks_exact(3).map(|label| u32::from_be_bytes([0, label[0], label[1], label[2]]) >> 4).collect();
        if let Some(number) = self.numbers.get(&stack[..]) {
            return *number;
        }
        if stack.is_empty() || self.stacks.len() == MOST_STACKS {
            return NONE;
        }
        let (number, stack) = (STACKS + self.stacks.len() as u32, Arc::<[u32]>::from(stack));
        self.stacks.push(stack.clone());
        self.numbers.insert(stack, number);
        number
    }

    /// The labels of a route that was received, from the top of the stack. A route that was not received may have any.
    pub fn get(&self, block: u32, route: u32) -> Option<&[u32]> {
        let number = match self.blocks.get(block as usize)? {
            Block::Same(same) => same,
            Block::Each(each) => each.get(route as usize)?,
        };
        match *number {
            NONE => None,
            0..STACKS => Some(std::slice::from_ref(number)),
            stack => self.stacks.get((stack - STACKS) as usize).map(|stack| &stack[..]),
        }
    }

    /// Forgets all labels.
    pub fn clear(&mut self) {
        *self = LearnedLabels::new(self.blocks.len() as u32, self.per_block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(stack: &[u32]) -> Vec<u8> {
        let last = stack.len() - 1;
        let label = |(n, label): (usize, &u32)| (label << 4 | u32::from(n == last)).to_be_bytes()[1..].to_vec();
        stack.iter().enumerate().flat_map(label).collect()
    }

    proptest! {
        #[test]
        fn the_last_label_of_each_route(
            steps in prop::collection::vec((0u32..3, 0u32..4, prop::collection::vec(0u32..1 << 20, 1..4)), 0..80)
        ) {
            let (mut learned, mut expected) = (LearnedLabels::new(3, 4), HashMap::new());
            for (block, route, stack) in steps {
                learned.set(block, route, &bytes(&stack));
                expected.insert((block, route), stack);
                for ((block, route), stack) in &expected {
                    prop_assert_eq!(learned.get(*block, *route), Some(&stack[..]));
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_shared() {
        let mut learned = LearnedLabels::new(2, 1_000_000);
        (0..1_000_000).for_each(|route| learned.set(0, route, &bytes(&[77])));
        assert!(matches!(learned.blocks[0], Block::Same(77)));
        assert_eq!((learned.get(0, 999_999), learned.get(1, 0), learned.get(2, 0)), (Some(&[77][..]), None, None));
        for label in 0..5_000 {
            learned.set(1, label, &bytes(&[label, 3]));
        }
        assert_eq!((learned.stacks.len(), learned.get(1, 9), learned.get(1, 4_999)), (4096, Some(&[9, 3][..]), None));
        learned.clear();
        assert!(learned.get(0, 0).is_none() && learned.stacks.is_empty());
    }
}
