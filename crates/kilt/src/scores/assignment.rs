//! Minimum-cost matching of rows and columns.
//!
//! Shortest augmenting paths after Crouse, "On implementing 2D rectangular assignment algorithms" (2016).
//! Matchings of equal cost are common with edit distances and have different scores. So ties are broken as in
//! SciPy's `linear_sum_assignment`: columns are tried from last to first, a column that ends the path wins
//! among equals, and a tall table is transposed.

/// Pairs of row and column with least total cost, as many as the shorter side. `cost` has the table row by
/// row.
pub(super) fn assign(cost: &[i64], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    debug_assert_eq!(cost.len(), rows * columns);
    if rows > columns {
        let turned: Vec<i64> =
            (0..columns).flat_map(|column| (0..rows).map(move |row| cost[row * columns + column])).collect();
        return solve(&turned, columns, rows).into_iter().map(|(column, row)| (row, column)).collect();
    }
    solve(cost, rows, columns)
}

/// For `rows <= columns`.
fn solve(cost: &[i64], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let mut row_price = vec![0i64; rows];
    let mut column_price = vec![0i64; columns];
    let mut column_of: Vec<Option<usize>> = vec![None; rows];
    let mut row_of: Vec<Option<usize>> = vec![None; columns];
    let mut from = vec![0usize; columns];
    for start in 0..rows {
        let mut shortest: Vec<Option<i64>> = vec![None; columns];
        let mut open: Vec<usize> = (0..columns).rev().collect();
        let mut reached_rows = vec![];
        let mut reached_columns = vec![];
        let (mut row, mut length) = (start, 0i64);
        // There are at least as many columns as rows, so a free column is reached before `open` runs out.
        let mut column = loop {
            reached_rows.push(row);
            let mut best: Option<(i64, usize)> = None;
            for (at, &column) in open.iter().enumerate() {
                let through = length + cost[row * columns + column] - row_price[row] - column_price[column];
                if shortest[column].is_none_or(|known| through < known) {
                    from[column] = row;
                    shortest[column] = Some(through);
                }
                let reach = shortest[column].unwrap_or(through);
                if best.is_none_or(|(least, _)| reach < least || (reach == least && row_of[column].is_none()))
                {
                    best = Some((reach, at));
                }
            }
            let Some((least, at)) = best else { return Vec::new() };
            length = least;
            let column = open.swap_remove(at);
            reached_columns.push(column);
            match row_of[column] {
                None => break column,
                Some(next) => row = next,
            }
        };
        let reach = |column: usize| shortest[column].unwrap_or(length);
        row_price[start] += length;
        for &row in &reached_rows[1..] {
            if let Some(column) = column_of[row] {
                row_price[row] += length - reach(column);
            }
        }
        for &column in &reached_columns {
            column_price[column] -= length - reach(column);
        }
        loop {
            let row = from[column];
            row_of[column] = Some(row);
            match column_of[row].replace(column) {
                Some(next) if row != start => column = next,
                _ => break,
            }
        }
    }
    column_of.into_iter().enumerate().filter_map(|(row, column)| Some((row, column?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_least_of_all_matchings() {
        use rand::{Rng, SeedableRng};
        fn least(cost: &[i64], rows: usize, columns: usize, row: usize, used: u32) -> i64 {
            if row == rows {
                return 0;
            }
            let free = (0..columns).filter(|column| used >> column & 1 == 0);
            free.map(|column| {
                cost[row * columns + column] + least(cost, rows, columns, row + 1, used | 1 << column)
            })
            .min()
            .unwrap()
        }
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for _ in 0..300 {
            let (rows, columns) = (random.random_range(1..6), random.random_range(6..8));
            let cost: Vec<i64> = (0..rows * columns).map(|_| random.random_range(0..6)).collect();
            let pairs = assign(&cost, rows, columns);
            assert_eq!(pairs.len(), rows);
            let total: i64 = pairs.iter().map(|(row, column)| cost[row * columns + column]).sum();
            assert_eq!(total, least(&cost, rows, columns, 0, 0));
            let turned: Vec<i64> = (0..columns)
                .flat_map(|column| (0..rows).map(move |row| (row, column)))
                .map(|(row, column)| cost[row * columns + column])
                .collect();
            let total: i64 =
                assign(&turned, columns, rows).iter().map(|(row, column)| turned[row * rows + column]).sum();
            assert_eq!(total, least(&cost, rows, columns, 0, 0));
        }
    }

    #[test]
    fn a_constant_table_gives_the_diagonal() {
        assert_eq!(assign(&[1; 9], 3, 3), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(assign(&[], 0, 0), []);
    }
}
