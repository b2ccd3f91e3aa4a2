//! The layout of prefixes in a table like the Internet's.
//!
//! There are two regions: a few blocks (/8, /16) with the short prefixes, and many blocks with all others. In a region,
//! prefixes follow each other from the shortest to the longest, so each is aligned and none is nested. All blocks of
//! the second region have the same layout. A different mask for each block then changes the order of its prefixes, but
//! keeps them aligned.
//!
//! A prefix has three numbers. Its *place* counts through all blocks row by row, so neighbours are far apart. Its
//! *distance* counts through one block after the other, so neighbours have nearby addresses; the blocks are in
//! pseudo-random order. Its *rank* is the number of prefixes with lower addresses.

use super::affine::{Affine, Divisor};
use super::prefix::{number, width};
use super::range::RouteError;
use super::space::blocks;
use super::{Prefix, mix};
use crate::trial::Family;
use std::net::IpAddr;

/// The layout of prefixes in a table like the Internet's.
#[derive(Clone, Debug)]
pub(super) struct Internet {
    /// Length of the longest prefixes.
    pub(super) finest: u8,
    seed: u64,
    block_order: Affine,
    regions: [Region; 2],
    rows: Rows,
}

/// Number of rows in each copy of the second region: `least`, and one more in the first `longer` copies.
#[derive(Clone, Debug)]
struct Rows {
    least: Divisor,
    more: Divisor,
    longer: u32,
}

impl Rows {
    fn new(routes: u32, copies: u32) -> Rows {
        let least = routes / copies;
        // If `least` is 0, it is never used to look up a place.
        Rows { least: Divisor::new(least), more: Divisor::new(least + 1), longer: routes % copies }
    }

    /// Rows of a copy.
    #[inline]
    fn of(&self, copy: u32) -> u32 {
        if copy < self.longer { self.more.get() } else { self.more.get() - 1 }
    }

    /// Rows of all copies before this one.
    #[inline]
    fn before(&self, copy: u32) -> u32 {
        copy * (self.more.get() - 1) + copy.min(self.longer)
    }

    /// Converts a number that counts the rows of one copy after the other to a copy and a row.
    #[inline]
    fn split(&self, number: u32) -> (u32, u32) {
        let longer = self.longer * self.more.get();
        match number.checked_sub(longer) {
            None => {
                let (copy, row) = self.more.div_rem(u64::from(number));
                (copy as u32, row)
            }
            Some(rest) => {
                let (copy, row) = self.least.div_rem(u64::from(rest));
                (self.longer + copy as u32, row)
            }
        }
    }
}

/// The places from `start` upwards are in the blocks from `at` upwards, which are `copies` of the same layout.
#[derive(Clone, Debug)]
struct Region {
    start: u32,
    at: u32,
    copies: Divisor,
    classes: Vec<Class>,
    /// Index into `classes` by length; out of range if there is no such class.
    by_length: [u8; MOST_LENGTH + 1],
}

/// Length of the longest prefixes of either family.
const MOST_LENGTH: usize = 48;

impl Region {
    fn new(start: u32, at: u32, copies: u32) -> Region {
        Region { start, at, copies: Divisor::new(copies), classes: Vec::new(), by_length: [u8::MAX; MOST_LENGTH + 1] }
    }

    /// The classes, each with the row at which it ends in a copy of this many rows.
    #[inline]
    fn classes(&self, rows: u32) -> impl Iterator<Item = (&Class, u32)> {
        let ends = self.classes.iter().skip(1).map(|next| next.start).chain([rows]);
        self.classes.iter().zip(ends).map(move |(class, end)| (class, end.min(rows).max(class.start)))
    }

    fn push(&mut self, class: Class) {
        self.by_length[usize::from(class.length)] = self.classes.len() as u8;
        self.classes.push(class);
    }
}

/// Prefixes of one length.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Its first place in a copy.
    start: u32,
    /// Offset of that place, in prefixes of the longest length.
    unit: u64,
    length: u8,
}

/// (length, routes of this length in a million) for IPv4. All other routes have the longest length. Tables of route
/// collectors have more short prefixes, because there long prefixes are nested in them.
const LENGTHS_IPV4: [(u8, u64); 16] = [
    (8, 10),
    (9, 8),
    (10, 25),
    (11, 60),
    (12, 160),
    (13, 330),
    (14, 700),
    (15, 1_300),
    (16, 13_000),
    (17, 8_000),
    (18, 13_500),
    (19, 24_500),
    (20, 43_000),
    (21, 50_000),
    (22, 118_000),
    (23, 102_000),
];
/// [`LENGTHS_IPV4`], but for IPv6.
const LENGTHS_IPV6: [(u8, u64); 24] = [
    (20, 60),
    (24, 90),
    (26, 120),
    (27, 130),
    (28, 1_200),
    (29, 42_000),
    (30, 4_000),
    (31, 2_500),
    (32, 125_000),
    (33, 18_000),
    (34, 12_000),
    (35, 8_000),
    (36, 62_000),
    (37, 4_000),
    (38, 8_000),
    (39, 3_500),
    (40, 78_000),
    (41, 3_400),
    (42, 16_000),
    (43, 3_000),
    (44, 88_000),
    (45, 8_000),
    (46, 34_000),
    (47, 19_000),
];

/// Minimum number of routes in a block of the second region, so that it can have the mix of lengths.
const LEAST_IN_BLOCK: u64 = 256;

/// (length, routes in a million) of each length, the length of all other routes, and the first length of the second
/// region.
fn mix_of(family: Family) -> (&'static [(u8, u64)], u8, u8) {
    match family {
        Family::Ipv4 => (&LENGTHS_IPV4, 24, 16),
        Family::Ipv6 => (&LENGTHS_IPV6, 48, 29),
    }
}

impl Internet {
    /// A layout of `count` prefixes, at least one.
    pub fn new(family: Family, count: u32, seed: u64) -> Result<Internet, RouteError> {
        let (lengths, finest, fine_from) = mix_of(family);
        let bits = finest - blocks::length(family);
        let all_blocks = u64::from(blocks::count(family));
        let units = |length: u8| 1u64 << (finest - length);
        let total = u64::from(count);
        let mut lengths: Vec<(u8, u64)> =
            lengths.iter().map(|(length, share)| (*length, (total * share + 500_000) / 1_000_000)).collect();

        // Leaves room for the space that is lost at the end of the first region and, by rounding, in each block of the
        // second region.
        let budget = ((all_blocks - 1) << bits) - all_blocks * 32;
        let mut needed = total + lengths.iter().map(|(length, n)| n * (units(*length) - 1)).sum::<u64>();
        for (length, n) in &mut lengths {
            let gain = units(*length) - 1;
            let fewer = needed.saturating_sub(budget).div_ceil(gain).min(*n);
            *n -= fewer;
            needed -= fewer * gain;
        }
        if needed > budget {
            return Err(RouteError::TooMany { asked: count, fit: budget as u32 });
        }

        let coarse = lengths.iter().filter(|(length, n)| *length < fine_from && *n > 0);
        let mut first = Region::new(0, 0, 1);
        let (mut places, mut unit) = (0, 0);
        for (length, n) in coarse {
            first.push(Class { start: places, unit, length: *length });
            places += *n as u32;
            unit += n * units(*length);
        }
        let coarse_blocks = unit.div_ceil(1 << bits);

        let left = total - u64::from(places);
        let copies = (all_blocks - coarse_blocks).min((left / LEAST_IN_BLOCK).max(1));
        let mut second = Region::new(places, coarse_blocks as u32, copies as u32);
        let (mut places, mut unit) = (0, 0);
        for (length, n) in lengths.iter().filter(|(length, n)| *length >= fine_from && *n >= copies) {
            second.push(Class { start: places, unit, length: *length });
            places += (n / copies) as u32;
            unit += n / copies * units(*length);
        }
        second.push(Class { start: places, unit, length: finest });
        let block_order = Affine::new(all_blocks as u32, mix(seed ^ 0xb10c));
        let rows = Rows::new(left as u32, copies as u32);
        Ok(Internet { finest, seed, block_order, regions: [first, second], rows })
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub fn heap(&self) -> usize {
        self.regions.iter().map(|r| r.classes.capacity() * size_of::<Class>()).sum()
    }

    /// Number of bits of a unit's offset in its block, and the mask of the block at position `at`.
    #[inline]
    fn mask(&self, family: Family, at: u32) -> (u8, u64) {
        let bits = self.finest - blocks::length(family);
        (bits, mix(self.seed ^ u64::from(at) << 40) & ((1 << bits) - 1))
    }

    /// Region of a place, row in a copy, and copy.
    #[inline(always)]
    fn row_of(&self, place: u32) -> (&Region, u32, u32) {
        let region = &self.regions[usize::from(place >= self.regions[1].start)];
        let (row, copy) = region.copies.div_rem(u64::from(place - region.start));
        (region, row as u32, copy)
    }

    /// The prefix at `place`.
    #[inline(always)]
    pub fn at(&self, family: Family, place: u32) -> Prefix {
        let (region, row, copy) = self.row_of(place);
        self.prefix(family, region, row, copy)
    }

    #[inline(always)]
    fn prefix(&self, family: Family, region: &Region, row: u32, copy: u32) -> Prefix {
        // Most prefixes are in the last class.
        let class = region.classes.iter().rev().find(|c| c.start <= row).unwrap_or(&region.classes[0]);
        let host_units = self.finest - class.length;
        let unit = class.unit + (u64::from(row - class.start) << host_units);
        let bits = self.finest - blocks::length(family);
        let at = region.at + copy + (unit >> bits) as u32;
        let (bits, mask) = self.mask(family, at);
        let unit = ((unit & ((1 << bits) - 1)) ^ mask) >> host_units << host_units;
        let block = u64::from(blocks::bits(family, self.block_order.at(at)));
        Prefix::trusted(family, u128::from(block << bits | unit) << (width(family) - self.finest), class.length)
    }

    /// The prefix at `distance`.
    #[inline]
    pub fn at_distance(&self, family: Family, distance: u32) -> Prefix {
        let second = &self.regions[1];
        let Some(within) = distance.checked_sub(second.start) else { return self.at(family, distance) };
        let (copy, row) = self.rows.split(within);
        self.prefix(family, second, row, copy)
    }

    /// The distance of a place.
    #[inline]
    pub fn distance(&self, place: u32) -> u32 {
        let second = &self.regions[1];
        if place < second.start {
            return place;
        }
        let (_, row, copy) = self.row_of(place);
        second.start + self.rows.before(copy) + row
    }

    /// The place of `prefix`, which must be of this family. It may lie beyond the last place in use.
    pub fn place(&self, family: Family, prefix: &Prefix) -> Option<u32> {
        if prefix.length() > self.finest || prefix.length() < blocks::length(family) {
            return None;
        }
        let units = match prefix.address() {
            IpAddr::V4(address) => u64::from(address.to_bits() >> (32 - self.finest)),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64 >> (64 - self.finest),
        };
        let bits = self.finest - blocks::length(family);
        let at = self.block_order.place(blocks::index(family, (units >> bits) as u32)?);
        let second = at >= self.regions[1].at;
        let region = &self.regions[usize::from(second)];
        let copies = region.copies.get();
        let copy = if copies > 1 { at - region.at } else { 0 };
        if copy >= copies {
            return None;
        }
        let at_length = usize::from(region.by_length[usize::from(prefix.length())]);
        let (next, class) = (region.classes.get(at_length + 1), *region.classes.get(at_length)?);
        let (bits, mask) = self.mask(family, at);
        let host_units = self.finest - class.length;
        let unit = ((units ^ mask) & ((1 << bits) - 1)) >> host_units << host_units;
        let unit = unit | u64::from(at - region.at - copy) << bits;
        let row = u64::from(class.start) + (unit.checked_sub(class.unit)? >> host_units);
        if next.is_some_and(|next| row >= u64::from(next.start)) {
            return None;
        }
        let place = u32::try_from(u64::from(region.start) + row * u64::from(copies) + u64::from(copy)).ok()?;
        (second || place < self.regions[1].start).then_some(place)
    }
}

/// The layout of one block, which finds a prefix by its rank.
///
/// Within a block, the layout is a sequence of classes, and the mask of the block swaps the halves of aligned pieces.
/// So a prefix is found by bisection, from the whole block down: a piece has two halves, the mask determines which of
/// them is lower, and the layout gives the number of prefixes that begin in each. The search ends at a piece that lies
/// within one class.
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

    /// Host bits of the prefixes, if all prefixes in the piece belong to one class and fill it.
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
    /// The block with this index, in order of addresses.
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
