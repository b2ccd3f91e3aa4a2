//! Loads of a search. The grid is logarithmic, so neighbours always have the same ratio, and a repeated load is
//! identical to the last bit.

/// Loads `min * exp(i / last * ln(max / min))` for `i` in `0..=last`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadGrid {
    min: f64,
    max: f64,
    last: u32,
}

/// Tolerance for rounding when a load is converted to an index.
const SLACK: f64 = 1e-9;

impl LoadGrid {
    /// A grid from `min` to `max` (fps) whose neighbours are at most `relative_width` apart. `None` unless `0 < min <=
    /// max` and the width is between 0 and 1.
    pub fn new(min: f64, max: f64, relative_width: f64) -> Option<Self> {
        let sane = min > 0.0 && min <= max && max.is_finite() && relative_width > 0.0 && relative_width < 1.0;
        let steps = ((max / min).ln() / -(-relative_width).ln_1p() - SLACK).ceil();
        (sane && steps < f64::from(u32::MAX)).then_some(LoadGrid { min, max, last: steps.max(0.0) as u32 })
    }

    /// Index of the largest load; the smallest load has index 0.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Load of `index` in fps.
    pub fn load(&self, index: u32) -> f64 {
        match index {
            0 => self.min,
            i if i >= self.last => self.max,
            i => self.min * (f64::from(i) / f64::from(self.last) * (self.max / self.min).ln()).exp(),
        }
    }

    /// Index of the largest load that does not exceed `load`; 0 if all exceed it.
    pub fn floor(&self, load: f64) -> u32 {
        if self.last == 0 || load <= self.min {
            return 0;
        }
        let steps = (load / self.min).ln() / (self.max / self.min).ln() * f64::from(self.last);
        ((steps + SLACK).floor().max(0.0) as u32).min(self.last)
    }

    /// Number of grid steps that fit into `relative_width`, at least 1.
    pub fn width_of(&self, relative_width: f64) -> u32 {
        if self.last == 0 {
            return 1;
        }
        let step = (self.max / self.min).ln() / f64::from(self.last);
        ((-(-relative_width).ln_1p() / step + SLACK).floor() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_loads_agree() {
        let grid = LoadGrid::new(9_001.0, 14_880_952.0, 0.005).unwrap();
        assert_eq!(grid.last(), 1479);
        for i in 0..=grid.last() {
            assert_eq!(grid.floor(grid.load(i)), i);
            if i > 0 {
                assert!((grid.load(i) - grid.load(i - 1)) / grid.load(i) <= 0.005);
                assert_eq!(grid.floor(grid.load(i) * 0.9999), i - 1);
            }
        }
        assert_eq!((grid.load(0), grid.load(1479)), (9_001.0, 14_880_952.0));
        assert_eq!(grid.width_of(0.01), 2);
    }

    #[test]
    fn a_grid_of_one_load_is_a_grid() {
        let grid = LoadGrid::new(100.0, 100.0, 0.01).unwrap();
        assert_eq!((grid.last(), grid.load(0), grid.floor(1e9), grid.width_of(0.01)), (0, 100.0, 0, 1));
        assert!(LoadGrid::new(0.0, 1.0, 0.01).is_none());
        assert!(LoadGrid::new(2.0, 1.0, 0.01).is_none());
        assert!(LoadGrid::new(1.0, f64::NAN, 0.01).is_none());
    }
}
