//! Tables of an [`Outcome`]. Columns are declared once, and rows are structs.

#[doc(hidden)]
pub use drophammer_model::outcome::{Cell, Column};
use drophammer_model::outcome::{Outcome, Row, Table};
use drophammer_model::registry::TableShape;
use drophammer_model::size::PacketSize;
use drophammer_model::trial::Family;
use std::marker::PhantomData;

/// Type of the cells of a column. With `Option`, cells can be empty.
pub trait CellValue: Sized {
    /// True for a number, false for text.
    const NUMERIC: bool;

    /// Converts the value into a stored cell.
    fn into_cell(self) -> Cell;

    /// Reads the value of a stored cell; `None` if the cell has a different type.
    fn of_cell(cell: &Cell) -> Option<Self>;
}

impl CellValue for u64 {
    const NUMERIC: bool = true;

    fn into_cell(self) -> Cell {
        self.into()
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        if let Cell::Count(n) = cell { Some(*n) } else { None }
    }
}

impl CellValue for f64 {
    const NUMERIC: bool = true;

    fn into_cell(self) -> Cell {
        self.into()
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        if let Cell::Number(x) = cell { Some(*x) } else { None }
    }
}

impl CellValue for String {
    const NUMERIC: bool = false;

    fn into_cell(self) -> Cell {
        self.into()
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        if let Cell::Text(text) = cell { Some(text.clone()) } else { None }
    }
}

impl CellValue for PacketSize {
    const NUMERIC: bool = false;

    fn into_cell(self) -> Cell {
        self.to_string().into()
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        if let Cell::Text(text) = cell { text.parse().ok() } else { None }
    }
}

impl CellValue for Family {
    const NUMERIC: bool = false;

    fn into_cell(self) -> Cell {
        self.to_string().into()
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        [Family::Ipv4, Family::Ipv6].into_iter().find(|family| *cell == family.into_cell())
    }
}

impl<T: CellValue> CellValue for Option<T> {
    const NUMERIC: bool = T::NUMERIC;

    fn into_cell(self) -> Cell {
        self.map_or(Cell::None, T::into_cell)
    }
    fn of_cell(cell: &Cell) -> Option<Self> {
        if *cell == Cell::None { Some(None) } else { T::of_cell(cell).map(Some) }
    }
}

/// A row as a struct, declared by [`columns!`](crate::columns).
pub trait Columns: Sized {
    /// Key of each column, in order.
    const KEYS: &'static [&'static str];

    /// True for each column that contains numbers.
    const NUMERIC: &'static [bool];

    /// The columns, in order.
    fn columns() -> Vec<Column>;

    /// The cells, in the order of the columns.
    fn into_cells(self) -> Vec<Cell>;

    /// Reads a row from these cells; `None` if a cell does not have the type of its column.
    fn of_cells(cells: &[Cell]) -> Option<Self>;
}

/// Declares the columns of a table as a struct that is also a row: `key: type = "heading" ["unit"]`. The unit can be
/// omitted, and so can the heading. It is then the key in words, without a unit at its end: "Loss" for `loss_percent`.
///
/// ```
/// use drophammer_methods::table::{Columns, TableSpec};
/// drophammer_methods::columns! {
///     /// One load.
///     pub struct LoadRow {
///         load_percent: f64 ["%"],
///         lost: u64 = "Lost in the router" ["frames"],
///         remark: Option<String>,
///     }
/// }
/// const TABLE: TableSpec<LoadRow> = TableSpec::new("loss", "Loss by load");
///
/// let mut outcome = Default::default();
/// TABLE.begin(&mut outcome);
/// TABLE.add(&mut outcome, LoadRow { load_percent: 50.0, lost: 3, remark: None }, [], []);
/// assert_eq!(outcome.tables[0].columns[0].title, "Load");
/// assert_eq!(outcome.tables[0].columns[1].unit, "frames");
/// assert_eq!(TABLE.rows(&outcome.tables)[0].lost, 3);
/// ```
#[macro_export]
macro_rules! columns {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($field:ident: $type:ty $(= $title:literal)? $([$unit:literal])?),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(
                #[doc = concat!("Column `", stringify!($field), "`" $(, ": ", $title)? $(, ", in ", $unit)?, ".")]
                pub $field: $type,
            )+
        }

        impl $crate::table::Columns for $name {
            const KEYS: &'static [&'static str] = &[$(stringify!($field)),+];
            const NUMERIC: &'static [bool] = &[$(<$type as $crate::table::CellValue>::NUMERIC),+];

            fn columns() -> Vec<$crate::table::Column> {
                vec![$($crate::table::column(stringify!($field), concat!($($title)?), concat!($($unit)?))),+]
            }

            fn into_cells(self) -> Vec<$crate::table::Cell> {
                vec![$($crate::table::CellValue::into_cell(self.$field)),+]
            }

            fn of_cells(cells: &[$crate::table::Cell]) -> Option<Self> {
                let mut cells = cells.iter();
                Some($name { $($field: $crate::table::CellValue::of_cell(cells.next()?)?),+ })
            }
        }
    };
}

/// A column. If its heading is empty, the key provides it.
#[doc(hidden)]
pub fn column(key: &str, heading: &str, unit: &str) -> Column {
    if heading.is_empty() { Column::new(key, &heading_of(key), unit) } else { Column::new(key, heading, unit) }
}

/// The key in words, without the unit at its end.
fn heading_of(key: &str) -> String {
    const UNITS: [&str; 8] = ["pps", "rps", "bps", "percent", "s", "ms", "us", "ns"];
    let words = key.rsplit_once('_').filter(|(_, last)| UNITS.contains(last)).map_or(key, |(words, _)| words);
    let mut heading = words.replace('_', " ");
    if let Some(first) = heading.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    heading
}

/// A table with rows of type `R`.
#[derive(Debug)]
pub struct TableSpec<R> {
    key: &'static str,
    title: &'static str,
    of: PhantomData<fn(R)>,
}

impl<R: Columns> TableSpec<R> {
    /// Creates a table with this heading, and a key that is the same on every DUT.
    pub const fn new(key: &'static str, title: &'static str) -> Self {
        TableSpec { key, title, of: PhantomData }
    }

    /// The key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// Shape of the table, available before the test has run.
    pub const fn shape(&self) -> TableShape {
        TableShape { key: self.key, columns: R::KEYS, numeric: R::NUMERIC }
    }

    /// Adds the empty table.
    pub fn begin(&self, outcome: &mut Outcome) {
        let (key, title) = (self.key.into(), self.title.into());
        outcome.tables.push(Table { key, title, columns: R::columns(), rows: Vec::new() });
    }

    /// Adds a row with its trials and marks; begins the table if necessary.
    pub fn add(
        &self,
        outcome: &mut Outcome,
        row: R,
        trials: impl IntoIterator<Item = u64>,
        marks: impl IntoIterator<Item = String>,
    ) {
        if outcome.tables.iter().all(|table| table.key != self.key) {
            self.begin(outcome);
        }
        if let Some(table) = outcome.tables.iter_mut().find(|table| table.key == self.key) {
            let row = Row {
                cells: row.into_cells(),
                trials: trials.into_iter().collect(),
                marks: marks.into_iter().collect(),
            };
            table.rows.push(row);
        }
    }

    /// The rows of this table among `tables`.
    pub fn rows(&self, tables: &[Table]) -> Vec<R> {
        let rows = tables.iter().filter(|table| table.key == self.key).flat_map(|table| &table.rows);
        rows.filter_map(|row| R::of_cells(&row.cells)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    columns! {
        /// One column of each type.
        struct AllRow {
            size: PacketSize,
            family: Family,
            rate_pps: f64 ["fps"],
            frames: Option<u64> = "Frames" ["frames"],
            remark: Option<String> = "Why",
        }
    }
    const TABLE: TableSpec<AllRow> = TableSpec::new("all", "All");

    #[test]
    fn rows_come_back_as_they_were_added() {
        let mut outcome = Outcome::default();
        let row = |frames, remark: Option<&str>| AllRow {
            size: "imix".parse().unwrap(),
            family: Family::Ipv6,
            rate_pps: 1.5,
            frames,
            remark: remark.map(Into::into),
        };
        TABLE.add(&mut outcome, row(Some(7), None), [1, 2], ["mark".to_owned()]);
        TABLE.add(&mut outcome, row(None, Some("late")), [], []);
        assert_eq!(TABLE.rows(&outcome.tables), [row(Some(7), None), row(None, Some("late"))]);
        let table = &outcome.tables[0];
        let shown: Vec<String> = table.columns.iter().map(|c| format!("{}|{}|{}", c.key, c.title, c.unit)).collect();
        assert_eq!(shown, ["size|Size|", "family|Family|", "rate_pps|Rate|fps", "frames|Frames|frames", "remark|Why|"]);
        assert_eq!(
            (table.rows[0].trials.as_slice(), table.rows[0].marks.as_slice()),
            (&[1, 2][..], &["mark".to_owned()][..])
        );
        assert_eq!(table.rows[1].cells[3], Cell::None);
    }

    #[test]
    fn a_heading_is_the_key_without_its_unit() {
        let keys = ["lost", "frame_size", "lost_frames", "loss_percent", "offered_load_pps", "worst_delay_us", "ms"];
        let headings = ["Lost", "Frame size", "Lost frames", "Loss", "Offered load", "Worst delay", "Ms"];
        assert_eq!(keys.map(heading_of), headings);
    }

    #[test]
    fn the_shape_tells_columns_with_numbers_from_those_with_words() {
        let shape = TABLE.shape();
        assert_eq!((shape.key, shape.columns.len()), ("all", 5));
        assert_eq!(shape.numbers().collect::<Vec<_>>(), ["rate_pps", "frames"]);
    }

    #[test]
    fn a_number_that_is_none_is_an_empty_cell() {
        assert_eq!(f64::NAN.into_cell(), Cell::None);
    }
}
