//! The prefixes of a table like the Internet's in order of addresses.
//!
//! Within a block, the layout is a sequence of classes, and the mask of the block swaps the halves of aligned pieces.
//! So a prefix is found by bisection, from the whole block down: a piece has two halves, the mask determines which of
//! them is lower, and the layout gives the number of prefixes that begin in each. The search ends at a piece that lies
//! within one class.

use super::Prefix;
use super::internet::{Internet, Region};
use super::prefix::{number, width};
use super::space::blocks;
use crate::trial::Family;

/// The layout of one block.
struct Block<'a> {
    region: &'a Region,
    /// The first unit of the block in the region.
    first: u64,
    /// Rows of the region in this block.
    rows: u32,
    bits: u8,
    mask: u64,
    finest: u8,
}

impl Block<'_> {
    /// Number of the region's prefixes that begin below a unit.
    fn below(&self, unit: u64) -> u32 {
        let mut sum = 0;
        for (class, end) in self.region.classes(self.rows) {
            let Some(within) = unit.checked_sub(class.unit).filter(|within| *within > 0) else { break };
            let units = self.finest - class.length;
            let before = (within + (1 << units) - 1) >> units;
            sum += before.min(u64::from(end - class.start)) as u32;
        }
        sum
    }

    /// Host bits of the prefixes, if all prefixes in the piece belong to one class and fill the piece.
    fn host_bits(&self, first: u64, size: u64) -> Option<u8> {
        let found = self.region.classes(self.rows).find(|(class, end)| {
            let units = self.finest - class.length;
            class.unit <= first && first + size <= class.unit + (u64::from(end - class.start) << units)
        });
        found.map(|(class, _)| self.finest - class.length).filter(|units| size >> units > 0)
    }

    /// Number of prefixes in the block below the one that begins at `address`, in units from the start of the block.
    fn rank(&self, address: u64) -> u32 {
        let mut rank = 0;
        let (mut piece, mut bits) = (self.first, self.bits);
        while bits > 0 {
            if let Some(units) = self.host_bits(piece, 1 << bits) {
                return rank + ((address & ((1 << bits) - 1)) >> units) as u32;
            }
            bits -= 1;
            let half = 1u64 << bits;
            let (lower, upper) = self.halves(piece, half);
            if address & half == 0 {
                piece = lower;
            } else {
                rank += self.below(lower + half) - self.below(lower);
                piece = upper;
            }
        }
        rank
    }

    /// Address in the block and host bits of the prefix with this rank.
    fn at_rank(&self, mut rank: u32) -> (u64, u8) {
        let (mut piece, mut bits, mut address) = (self.first, self.bits, 0);
        while bits > 0 {
            if let Some(units) = self.host_bits(piece, 1 << bits) {
                return (address | u64::from(rank) << units, units);
            }
            bits -= 1;
            let half = 1u64 << bits;
            let (lower, upper) = self.halves(piece, half);
            let there = self.below(lower + half) - self.below(lower);
            if rank < there {
                piece = lower;
            } else {
                rank -= there;
                piece = upper;
                address |= half;
            }
        }
        (address, 0)
    }

    /// The halves of a piece, the one with the lower addresses first.
    fn halves(&self, piece: u64, half: u64) -> (u64, u64) {
        if self.mask & half == 0 { (piece, piece + half) } else { (piece + half, piece) }
    }
}

impl Internet {
    /// The block at this index, in order of addresses.
    fn block(&self, family: Family, index: u32) -> Block<'_> {
        let at = self.block_order.place(index);
        let (bits, mask) = self.mask(family, at);
        let [coarse, fine] = &self.regions;
        let finest = self.finest;
        match at.checked_sub(fine.at) {
            Some(copy) if copy < fine.copies.get() => {
                Block { region: fine, first: 0, rows: self.rows.of(copy), bits, mask, finest }
            }
            Some(_) => Block { region: fine, first: 0, rows: 0, bits, mask, finest },
            None => Block {
                region: coarse,
                first: u64::from(at) << bits,
                rows: fine.start - coarse.start,
                bits,
                mask,
                finest,
            },
        }
    }

    /// Number of prefixes in all blocks before each block, in order of addresses, followed by the total.
    pub fn before_blocks(&self, family: Family) -> Vec<u32> {
        let mut sum = 0;
        let mut before = vec![0];
        for index in 0..blocks::count(family) {
            let block = self.block(family, index);
            sum += block.below(block.first + (1 << block.bits)) - block.below(block.first);
            before.push(sum);
        }
        before
    }

    /// Number of prefixes below this prefix of the table.
    pub fn rank(&self, family: Family, before: &[u32], prefix: &Prefix) -> Option<u32> {
        let units = (number(prefix.address()) >> (width(family) - self.finest)) as u64;
        let bits = self.finest - blocks::length(family);
        let index = blocks::index(family, (units >> bits) as u32)?;
        Some(before[index as usize] + self.block(family, index).rank(units & ((1 << bits) - 1)))
    }

    /// The prefix with this rank, which must be below the total number.
    pub fn at_rank(&self, family: Family, before: &[u32], rank: u32) -> Prefix {
        let index = before.partition_point(|before| *before <= rank).saturating_sub(1);
        let block = self.block(family, index as u32);
        let (address, units) = block.at_rank(rank - before[index]);
        let bits = u64::from(blocks::bits(family, index as u32)) << block.bits;
        let length = self.finest - units;
        Prefix::trusted(family, u128::from(bits | address) << (width(family) - self.finest), length)
    }
}
