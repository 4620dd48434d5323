//! Which row of a packed batch each token is in.

/// The order in which an LSTM processes a batch: first the first steps of all sequences, the longest sequence first, then the
/// second steps of those that have one, and so on. On the way back a sequence's first step is its last token.
#[derive(Debug)]
pub(super) struct Packing {
    /// The first row of each step, followed by the number of rows.
    starts: Vec<usize>,
    /// For each direction the row of each token.
    rows: [Vec<usize>; 2],
    sequences: usize,
}

impl Packing {
    pub(super) fn new(lengths: &[usize]) -> Self {
        let mut order: Vec<usize> = (0..lengths.len()).filter(|at| lengths[*at] > 0).collect();
        // Stable, so that sequences of one length stay in their order.
        order.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
        let longest = order.first().map_or(0, |at| lengths[*at]);
        let mut starts = Vec::with_capacity(longest + 1);
        let mut start = 0;
        let mut running = order.len();
        for step in 0..longest {
            while running > 0 && lengths[order[running - 1]] <= step {
                running -= 1;
            }
            starts.push(start);
            start += running;
        }
        starts.push(start);
        let mut rank = vec![0; lengths.len()];
        order.iter().enumerate().for_each(|(at, sequence)| rank[*sequence] = at);
        let rows = [false, true].map(|reverse| {
            let mut rows = Vec::with_capacity(start);
            for (sequence, length) in lengths.iter().enumerate() {
                let step = |at: usize| if reverse { length - 1 - at } else { at };
                rows.extend((0..*length).map(|at| starts[step(at)] + rank[sequence]));
            }
            rows
        });
        Self { starts, rows, sequences: order.len() }
    }

    /// The number of steps.
    pub(super) fn steps(&self) -> usize {
        self.starts.len() - 1
    }

    /// The first row of step `at`, and how many sequences have it.
    pub(super) fn step(&self, at: usize) -> (usize, usize) {
        (self.starts[at], self.starts[at + 1] - self.starts[at])
    }

    /// The row of a token in a direction.
    pub(super) fn row(&self, direction: usize, token: usize) -> usize {
        self.rows[direction][token]
    }

    pub(super) fn tokens(&self) -> usize {
        self.rows[0].len()
    }

    /// Sequences that are not empty.
    pub(super) fn sequences(&self) -> usize {
        self.sequences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_sequences_that_are_long_enough_the_longest_first() {
        let packing = Packing::new(&[2, 0, 3, 1]);
        let steps: Vec<_> = (0..packing.steps()).map(|at| packing.step(at)).collect();
        assert_eq!(steps, [(0, 3), (3, 2), (5, 1)]);
        // The sequence of three is first, then that of two, then that of one.
        assert_eq!(packing.rows[0], [1, 4, 0, 3, 5, 2]);
        assert_eq!(packing.rows[1], [4, 1, 5, 3, 0, 2]);
        assert_eq!(Packing::new(&[0, 0]).steps(), 0);
    }
}
