use super::{TrainingPrecision::F32, *};

fn wave(count: usize, pace: f32) -> Vec<f32> {
    (0..count).map(|at| (at as f32 * pace).sin()).collect()
}

fn value(values: &[f32], view: View, row: usize, column: usize) -> f64 {
    f64::from(values[view.offset + row * view.row_stride + column * view.column_stride])
}

#[test]
fn products_are_the_sums_of_their_terms_on_every_instruction_set() {
    for (rows, depth, columns) in
        [(1, 1, 1), (5, 7, 3), (13, 40, 33), (9, PIECE + 30, 35), (70, 512, 64), (100, 16, 97)]
    {
        for flags in 0..8u32 {
            let flag = |at: u32| flags & (1 << at) != 0;
            let view = |rows: usize, columns: usize, is_transposed: bool| {
                if is_transposed {
                    View::rows(2, columns, rows, rows + 3).transposed()
                } else {
                    View::rows(1, rows, columns, columns + 2)
                }
            };
            let (va, vb) = (view(rows, depth, flag(0)), view(depth, columns, flag(1)));
            let o = View::rows(3, rows, columns, columns + 1);
            let (a, b) = (wave(va.end(), 0.7), wave(vb.end(), 0.3));
            let before = wave(o.end(), 0.1);
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let mut out = before.clone();
                    let scaled = Scaled { scale: 0.5, adds: flag(2) };
                    multiply(isa, threads, F32, (&mut out, o), (&a, va), (&b, vb), scaled);
                    assert_eq!(out[..3], before[..3]);
                    for row in 0..rows {
                        for column in 0..columns {
                            let terms =
                                (0..depth).map(|at| value(&a, va, row, at) * value(&b, vb, at, column));
                            let old = if flag(2) { value(&before, o, row, column) } else { 0.0 };
                            let expected = old + 0.5 * terms.sum::<f64>();
                            let found = value(&out, o, row, column);
                            assert!(
                                (found - expected).abs() < 1e-4,
                                "{isa:?} {rows} {depth} {columns} {flags}"
                            );
                        }
                        // The gaps between rows are unchanged.
                        if row + 1 < rows {
                            let gap = o.offset + row * o.row_stride + columns;
                            assert_eq!(out[gap], before[gap]);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn operands_are_brought_into_order_however_they_lie() {
    // With 100 rows each part reorders its panels; with 900 all parts share them. Several blocks, and
    // incomplete squares.
    for (rows, depth, columns) in [(100, 43, 75), (900, PIECE + 43, 35)] {
        let views = |rows: usize, columns: usize| {
            [
                View::rows(1, rows, columns, columns.next_multiple_of(512)),
                View::rows(1, columns, rows, rows + 3).transposed(),
                View { offset: 1, rows, columns, row_stride: 2, column_stride: 2 * rows + 5 },
            ]
        };
        let pairs = views(rows, depth).into_iter().zip(views(depth, columns));
        for (kind, (va, vb)) in pairs.enumerate() {
            let (a, b) = (wave(va.end(), 0.7), wave(vb.end(), 0.3));
            let sum = |row: usize, column: usize| -> f64 {
                (0..depth).map(|at| value(&a, va, row, at) * value(&b, vb, at, column)).sum()
            };
            let expected: Vec<f64> = (0..rows * columns).map(|at| sum(at / columns, at % columns)).collect();
            for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                let mut out = vec![0.0; rows * columns];
                let (o, scaled) = (View::packed(rows, columns), Scaled { scale: 1.0, adds: false });
                multiply(isa, threads, F32, (&mut out, o), (&a, va), (&b, vb), scaled);
                for (at, (found, expected)) in out.iter().zip(&expected).enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    assert!((f64::from(*found) - expected).abs() < 1e-3, "{isa:?} {kind} {row} {column}");
                }
            }
        }
    }
}

#[test]
fn panels_that_are_ordered_in_parts_give_the_same_sums() {
    // More than are reordered at once: too deep, and too many.
    for (rows, depth, columns) in [(900, ORDERED / 1000, 1000), (900, PIECE + 70, ORDERED / PIECE + 40)] {
        let (va, vb) = (View::packed(depth, rows).transposed(), View::packed(depth, columns));
        let (a, b) = (wave(va.end(), 0.7), wave(vb.end(), 0.3));
        let mut out = vec![0.0; rows * columns];
        let scaled = Scaled { scale: 1.0, adds: false };
        multiply(
            Isa::detected(),
            2,
            F32,
            (&mut out, View::packed(rows, columns)),
            (&a, va),
            (&b, vb),
            scaled,
        );
        for row in (0..rows).step_by(29).chain([rows - 1]) {
            for column in (0..columns).step_by(113).chain([columns - 1]) {
                let terms = (0..depth).map(|at| value(&a, va, row, at) * value(&b, vb, at, column));
                let (found, expected) = (f64::from(out[row * columns + column]), terms.sum::<f64>());
                // A sum of that many terms in 32 bits.
                let bound = 1e-4 * expected.abs() + 0.01;
                assert!((found - expected).abs() < bound, "{row} {column}: {found} {expected}");
            }
        }
    }
}

#[test]
fn operands_that_lie_as_tiles_read_them_are_left_where_they_are() {
    let (rows, depth) = (32, 75);
    let (va, vb) = (View::rows(5, depth, rows, rows).transposed(), View::rows(7, depth, LANES, LANES));
    let (a, b) = (wave(va.end(), 0.7), wave(vb.end(), 0.3));
    for isa in Isa::available() {
        let mut out = vec![0.0; rows * LANES];
        let o = View::packed(rows, LANES);
        multiply(isa, 1, F32, (&mut out, o), (&a, va), (&b, vb), Scaled { scale: 1.0, adds: false });
        for row in 0..rows {
            for column in 0..LANES {
                let terms = (0..depth).map(|at| value(&a, va, row, at) * value(&b, vb, at, column));
                let error = f64::from(out[row * LANES + column]) - terms.sum::<f64>();
                assert!(error.abs() < 1e-4, "{isa:?} {row} {column}");
            }
        }
    }
}

#[test]
fn a_product_of_nothing_is_zero_or_leaves_what_is_there() {
    let o = View::rows(0, 2, 2, 2);
    let empty = [View::rows(0, 2, 0, 5), View::rows(0, 0, 2, 2)];
    for (adds, expected) in [(false, [0.0; 4]), (true, [1.0; 4])] {
        let mut out = [1.0; 4];
        multiply(
            Isa::detected(),
            1,
            F32,
            (&mut out, o),
            (&[], empty[0]),
            (&[], empty[1]),
            Scaled { scale: 1.0, adds },
        );
        assert_eq!(out, expected);
    }
}

#[test]
#[should_panic(expected = "overlapping result")]
fn elements_that_share_a_place_are_refused() {
    let view = View::rows(0, 2, 2, 2);
    let o = View::rows(0, 2, 2, 1);
    multiply(
        Isa::detected(),
        1,
        F32,
        (&mut [0.0; 4], o),
        (&[0.0; 4], view),
        (&[0.0; 4], view),
        Scaled { scale: 1.0, adds: false },
    );
}

#[test]
fn tiles_round_operands_where_they_may() {
    if !Isa::available().contains(&Isa::Amx) {
        return;
    }
    let rounded = |value: f64| half::bf16::from_f32(value as f32).to_f64();
    for (rows, depth, columns) in [(48, 40, 33), (70, 129, 64), (100, 401, 97)] {
        for [of_a, of_b] in [[false, false], [true, false], [false, true]] {
            let view = |rows: usize, columns: usize, is_transposed: bool| {
                if is_transposed {
                    View::rows(2, columns, rows, rows + 3).transposed()
                } else {
                    View::rows(1, rows, columns, columns + 2)
                }
            };
            let (va, vb) = (view(rows, depth, of_a), view(depth, columns, of_b));
            let o = View::packed(rows, columns);
            // None of these values is halfway between two of bf16, which the unit and `half` round differently.
            let (a, b) = (wave(va.end(), 0.7), wave(vb.end(), 0.41));
            let before = wave(o.end(), 0.1);
            for threads in [1, 3] {
                let mut out = before.clone();
                let scaled = Scaled { scale: 0.5, adds: true };
                let precision = TrainingPrecision::Bf16;
                multiply(Isa::Amx, threads, precision, (&mut out, o), (&a, va), (&b, vb), scaled);
                for row in 0..rows {
                    for column in 0..columns {
                        let terms = (0..depth)
                            .map(|at| rounded(value(&a, va, row, at)) * rounded(value(&b, vb, at, column)));
                        let expected = value(&before, o, row, column) + 0.5 * terms.sum::<f64>();
                        let found = value(&out, o, row, column);
                        assert!(
                            (found - expected).abs() < 1e-4,
                            "{rows} {depth} {columns} {row} {column}: {found} {expected}"
                        );
                    }
                }
            }
        }
    }
}
