//! The keys and values of the steps of sequences.

use sporran_checkpoint::{Error, Result};
use sporran_kernels::Rows;

/// The keys and values of sequences that grow by a token a step.
///
/// Each step adds a block of rows to every layer, which stays where it is. The path of a sequence names the block and the
/// row of each of its steps: re-ordered beams change paths only, and sequences of different lengths are in one batch.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// For each layer, its blocks.
    layers: Vec<Vec<Rows>>,
    /// The number of blocks of each layer.
    blocks: usize,
    /// For each sequence, where its steps are, oldest first.
    paths: Vec<Vec<Place>>,
}

/// A row of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    block: u32,
    row: u32,
}

impl Steps {
    /// No steps of this many sequences in a model of `layers` layers.
    pub(super) fn new(layers: usize, sequences: usize) -> Self {
        Self { layers: vec![Vec::new(); layers], blocks: 0, paths: vec![Vec::new(); sequences] }
    }

    /// The number of sequences.
    pub(super) fn sequences(&self) -> usize {
        self.paths.len()
    }

    /// The number of steps of a sequence; 0 for one that has not begun.
    pub(super) fn length(&self, sequence: usize) -> usize {
        self.paths.get(sequence).map_or(0, Vec::len)
    }

    /// The number of steps of the longest sequence.
    pub(super) fn longest(&self) -> usize {
        self.paths.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Begins a step, whose row `i` continues sequence `i`. The first step decides how many sequences there are.
    pub(super) fn push(&mut self, rows: usize) {
        self.paths.resize(rows, Vec::new());
        let block = self.blocks as u32;
        for (row, path) in self.paths.iter_mut().enumerate() {
            path.push(Place { block, row: row as u32 });
        }
        self.blocks += 1;
    }

    /// Stores the keys and values of this step for `layer`.
    pub(super) fn extend(&mut self, layer: usize, block: Rows) {
        self.layers[layer].push(block);
    }

    /// The keys and values of a sequence in `layer`, oldest first.
    pub(super) fn of(&self, layer: usize, sequence: usize) -> impl Iterator<Item = &[f32]> {
        let blocks = &self.layers[layer];
        self.paths[sequence].iter().map(|place| blocks[place.block as usize].row(place.row as usize))
    }

    /// Makes sequence `i` the continuation of the previous sequence `sequences[i]`.
    ///
    /// # Errors
    /// [`Error::Batch`] where a sequence does not exist.
    pub(super) fn select(&mut self, sequences: &[u32]) -> Result<()> {
        self.paths = select(&self.paths, sequences, "rows")?;
        Ok(())
    }

    /// Appends the sequences of another batch of the same model.
    pub(super) fn join(&mut self, other: Self) {
        let before = self.blocks as u32;
        for (blocks, others) in self.layers.iter_mut().zip(other.layers) {
            blocks.extend(others);
        }
        self.blocks += other.blocks;
        self.paths.extend(other.paths.into_iter().map(|mut path| {
            path.iter_mut().for_each(|place| place.block += before);
            path
        }));
    }

    /// Frees the rows of sequences that are gone, if they are more than those of the others.
    pub(super) fn compact(&mut self) {
        let stored: usize = self.layers.first().map_or(0, |blocks| blocks.iter().map(Rows::count).sum());
        if stored <= 2 * self.paths.iter().map(Vec::len).sum::<usize>() {
            return;
        }
        let mut used: Vec<Vec<usize>> = vec![Vec::new(); self.blocks];
        for place in self.paths.iter().flatten() {
            used[place.block as usize].push(place.row as usize);
        }
        for rows in &mut used {
            rows.sort_unstable();
            rows.dedup();
        }
        let mut kept = 0;
        let numbers: Vec<u32> = used
            .iter()
            .map(|rows| {
                let number = kept;
                kept += u32::from(!rows.is_empty());
                number
            })
            .collect();
        for place in self.paths.iter_mut().flatten() {
            let rows = &used[place.block as usize];
            let row = rows.partition_point(|row| *row < place.row as usize) as u32;
            *place = Place { block: numbers[place.block as usize], row };
        }
        for blocks in &mut self.layers {
            let all = std::mem::take(blocks).into_iter().zip(&used).filter(|(_, rows)| !rows.is_empty());
            let keep = |(block, rows): (Rows, &Vec<usize>)| {
                if rows.len() == block.count() { block } else { block.pick(rows, block.width()) }
            };
            *blocks = all.map(keep).collect();
        }
        self.blocks = kept as usize;
    }
}

/// The values of `all` at `places`.
///
/// # Errors
/// [`Error::Batch`] where there is none; `what` names the values.
pub(super) fn select<T: Clone>(all: &[T], places: &[u32], what: &str) -> Result<Vec<T>> {
    let one = |place: &u32| {
        all.get(*place as usize).cloned().ok_or_else(|| Error::Batch {
            expected: format!("{what} below {}", all.len()),
            found: place.to_string(),
        })
    };
    places.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of two layers, whose rows are these numbers and their negatives.
    fn step(steps: &mut Steps, values: &[f32]) {
        steps.push(values.len());
        for (layer, sign) in [1.0, -1.0].into_iter().enumerate() {
            let mut block = Rows::new(values.len(), 1);
            for (row, value) in values.iter().enumerate() {
                block.row_mut(row)[0] = sign * value;
            }
            steps.extend(layer, block);
        }
    }

    /// The numbers of each sequence.
    fn read(steps: &Steps) -> Vec<Vec<f32>> {
        let one = |layer, sequence| steps.of(layer, sequence).map(|row| row[0]).collect::<Vec<f32>>();
        let all: Vec<Vec<f32>> = (0..steps.sequences()).map(|sequence| one(0, sequence)).collect();
        for (sequence, values) in all.iter().enumerate() {
            let negative: Vec<f32> = one(1, sequence).into_iter().map(|value| -value).collect();
            assert_eq!(*values, negative);
            assert_eq!(values.len(), steps.length(sequence));
        }
        all
    }

    #[test]
    fn sequences_of_other_lengths_join_and_go_on_with_the_rest() {
        let mut steps = Steps::new(2, 2);
        step(&mut steps, &[1.0, 2.0]);
        step(&mut steps, &[3.0, 4.0]);
        let mut other = Steps::new(2, 1);
        step(&mut other, &[5.0]);
        steps.join(other);
        steps.join(Steps::new(2, 1));
        step(&mut steps, &[6.0, 7.0, 8.0, 9.0]);
        assert_eq!(read(&steps), [vec![1.0, 3.0, 6.0], vec![2.0, 4.0, 7.0], vec![5.0, 8.0], vec![9.0]]);
        assert_eq!(steps.longest(), 3);
        // Beams: sequences share their steps.
        steps.select(&[2, 1, 1]).unwrap();
        step(&mut steps, &[1.0, 2.0, 3.0]);
        assert_eq!(read(&steps), [vec![5.0, 8.0, 1.0], vec![2.0, 4.0, 7.0, 2.0], vec![2.0, 4.0, 7.0, 3.0]]);
        assert!(matches!(steps.select(&[3]), Err(Error::Batch { .. })));
    }

    #[test]
    fn the_rows_of_those_that_left_are_freed_without_changing_the_others() {
        let mut steps = Steps::new(2, 3);
        step(&mut steps, &[1.0, 2.0, 3.0]);
        steps.select(&[0, 2]).unwrap();
        step(&mut steps, &[4.0, 5.0]);
        let rows = |steps: &Steps| steps.layers[1].iter().map(Rows::count).collect::<Vec<_>>();
        // Five rows are stored, and four are read.
        steps.compact();
        assert_eq!(rows(&steps), [3, 2]);
        let mut other = Steps::new(2, 1);
        step(&mut other, &[6.0]);
        steps.join(other);
        // Six are stored, and the last two sequences read three: these are not yet more than half.
        steps.select(&[1, 2]).unwrap();
        steps.compact();
        assert_eq!(rows(&steps), [3, 2, 1]);
        step(&mut steps, &[7.0, 8.0]);
        // Eight are stored, three are read: the first block has one of them, the second one, the third none.
        steps.select(&[0]).unwrap();
        steps.compact();
        assert_eq!(rows(&steps), [1, 1, 1]);
        assert_eq!(read(&steps), [[3.0, 5.0, 7.0]]);
        step(&mut steps, &[9.0]);
        assert_eq!(read(&steps), [[3.0, 5.0, 7.0, 9.0]]);
        steps.select(&[]).unwrap();
        steps.compact();
        assert_eq!((steps.sequences(), steps.blocks, rows(&steps).len()), (0, 0, 0));
    }
}
