//! Lists of numbers, one a row, in two arrays: a vector for each of WordNet's synsets would take several times the memory.

/// A list of numbers for each row.
#[derive(Debug, Default)]
pub(super) struct Lists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Lists of (row, item) pairs; a row's items are in order and no two are the same.
    pub(super) fn new(rows: usize, mut pairs: Vec<(u32, u32)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut ends = vec![0; rows];
        for &(row, _) in &pairs {
            ends[row as usize] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        Self { ends, items: pairs.into_iter().map(|(_, item)| item).collect() }
    }

    pub(super) fn row(&self, row: u32) -> &[u32] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.items[start as usize..self.ends[row] as usize]
    }

    pub(super) fn rows(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Each pair the other way round, `rows` being above every item.
    pub(super) fn reversed(&self, rows: usize) -> Self {
        let pairs = (0..self.rows()).flat_map(|row| self.row(row).iter().map(move |&item| (item, row)));
        Self::new(rows, pairs.collect())
    }
}
