//! Rows written, and gradients added, by index.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Indices less than `below`, distinct in each row.
fn places(shape: [usize; 4], below: usize) -> Array {
    assert!(shape[0] <= below);
    // Odd steps through a power of two, skipping those out of range.
    let around = below.next_power_of_two();
    let row = |start: usize| (0..around).map(move |i| (start + i * 5) % around).filter(|&p| p < below);
    Array::of(shape, |[i, i1, i2, _]| row(3 + i1 + 7 * i2).nth(i).unwrap() as f64)
}

/// Values rounded roughly as a target of this type does.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 0.0,
        DType::F16 => 1e-3,
        DType::BF16 | DType::Q8_0 => 1e-2,
        _ => 0.2,
    }
}

#[test]
fn set_rows_equals_plain_rust() {
    let shapes = [
        (ne([32, 9]), 4, ne([4])),
        (ne([64, 5, 4, 6]), 5, ne([5, 2, 3])),
        (ne([32, 3, 2, 2]), 1, ne([1, 2, 1])),
        (ne([32, 1]), 1, ne([1])),
        (ne([96, 16]), 16, ne([16])),
    ];
    for (of_b, dtype) in [
        (DType::F32, DType::F32),
        (DType::F32, DType::F16),
        (DType::F32, DType::BF16),
        (DType::F32, DType::Q8_0),
        (DType::F32, DType::Q4_0),
        (DType::F16, DType::F16),
    ] {
        for (table, n, picks) in shapes {
            for (layout, of_picks, numbers, threads) in [
                (Layout::Plain, Layout::Plain, DType::I32, 1),
                (Layout::Gaps, Layout::Transposed, DType::I64, 2),
                (Layout::Swapped, Layout::Swapped, DType::I32, 5),
            ] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (a, before) = lab.operand(&Array::sample(table, 4, -1.0, 1.0), dtype, Layout::Plain);
                let rows = [table[0], n, table[2], table[3]];
                let (b, values) = lab.operand(&Array::sample(rows, 5, -1.0, 1.0), of_b, layout);
                let (c, which) = lab.operand(&places(picks, table[1]), numbers, of_picks);
                let a = ctx.dup(a).unwrap();
                let y = ctx.set_rows(a, b, c).unwrap();
                let mut want = before.clone();
                for i3 in 0..table[3] {
                    for i2 in 0..table[2] {
                        for i1 in 0..n {
                            let to = which.at([i1, i2 % picks[1], i3 % picks[2], 0]) as usize;
                            for i0 in 0..table[0] {
                                let position = want.position([i0, to, i2, i3]);
                                want.data[position] = values.at([i0, i1, i2, i3]);
                            }
                        }
                    }
                }
                let context = format!("{of_b} to {dtype} {table:?} {layout:?} {of_picks:?} {threads}");
                assert_close(&lab.run(y).unwrap(), &want, tolerance(dtype), &context);
            }
        }
    }
}

/// A KV cache: written rows stay, and a view of it may be the target.
#[test]
fn set_rows_writes_a_state() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("cache", DType::F32, [4, 6, 2]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let ctx = Context::new();
    let cache = state.tensor("cache").unwrap();
    // Rows 1 to 5 of both planes.
    let part = ctx.view(cache, [4, 5, 2], [16, 96, 192], 16).unwrap();
    let b = ctx.input("b", DType::F32, [4, 2, 2]).unwrap();
    let rows = ctx.input("rows", DType::I64, [2]).unwrap();
    let graph = ctx.graph([ctx.set_rows(part, b, rows).unwrap()]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    for (step, places) in [[0_i64, 3], [4, 1]].into_iter().enumerate() {
        run.set(b, &[step as f32 + 1.0; 16]).unwrap();
        run.set(rows, &places).unwrap();
        run.compute().unwrap();
    }
    drop(run);
    let plane = [0.0, 1.0, 2.0, 0.0, 1.0, 2.0];
    let want: Vec<f32> = plane.iter().chain(&plane).flat_map(|&row| [row; 4]).collect();
    assert_eq!(cache.read::<f32>().unwrap(), want);
}

#[test]
fn set_rows_checks_indices_when_set() {
    let ctx = Context::new();
    let a = ctx.dup(ctx.input("a", DType::F32, [4, 9, 2]).unwrap()).unwrap();
    let b = ctx.input("b", DType::F32, [4, 3, 2]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    for dtype in [DType::I32, DType::I64] {
        let rows = ctx.input("rows", dtype, [3, 2]).unwrap();
        let graph = ctx.graph([ctx.set_rows(a, b, rows).unwrap()]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        let mut set = |data: [i64; 6]| match dtype {
            DType::I64 => run.set(rows, &data),
            _ => run.set(rows, &data.map(|n| n as i32)),
        };
        refused!(Index, set([0, 1, 2, 3, 4, 9]));
        refused!(Index, set([-1, 1, 2, 3, 4, 5]));
        for repeated in [[0, 1, 1, 3, 4, 5], [0, 1, 2, 5, 4, 5], [7, 7, 7, 3, 4, 5], [8, 2, 8, 0, 1, 2]] {
            refused!(Repeated, set(repeated), "{repeated:?}");
        }
        // Planes are independent.
        set([0, 8, 2, 2, 0, 8]).unwrap();
        // Other values of the input are unknown, so a part can't be checked.
        if dtype == DType::I32 {
            refused!(Param, run.set_at(rows, 1, &[2]));
            refused!(Param, run.set_at(rows, 0, &[0, 1, 2]));
            refused!(Param, run.set_at(rows, 0, &[1, 1]), "what is wrong with a part is that it is one");
            run.set_at(rows, 0, &[0, 1, 2, 3, 4, 5]).unwrap();
            let bytes: Vec<u8> = [0_i32, 1, 1, 3, 4, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
            refused!(Repeated, run.set_bytes(rows, &bytes));
        }
    }
}

/// Indices must be distinct in rows of the operand, not of the input behind it.
#[test]
fn set_rows_checks_indices_through_views() {
    let ctx = Context::new();
    let a = ctx.dup(ctx.input("a", DType::F32, [4, 9, 2]).unwrap()).unwrap();
    let b = ctx.input("b", DType::F32, [4, 2, 2]).unwrap();
    let rows = ctx.input("rows", DType::I32, [2, 3]).unwrap();
    let last = ctx.view(rows, [2, 2], [8, 16, 16], 8).unwrap();
    let turned = ctx.permute(ctx.view(rows, [2, 2], [8, 16, 16], 0).unwrap(), [1, 0, 2, 3]).unwrap();
    // Which of the six indices are in one row of the operand.
    for (operand, together) in [(last, [(2, 3), (4, 5)]), (turned, [(0, 2), (1, 3)])] {
        let graph = ctx.graph([ctx.set_rows(a, b, operand).unwrap()]).unwrap();
        let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        for i in 0..6 {
            for j in 0..i {
                let mut data = [0, 1, 2, 3, 4, 5];
                data[i] = data[j];
                let done = run.set(rows, &data);
                if together.contains(&(j, i)) {
                    refused!(Repeated, done, "{i} {j} of {operand:?}");
                } else {
                    done.unwrap();
                }
            }
        }
    }
}

#[test]
fn set_rows_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let made = |dtype, shape| ctx.dup(of(dtype, shape)).unwrap();
    let a = made(DType::F32, [8, 5, 4, 6]);
    let (b, rows) = (of(DType::F32, [8, 3, 4, 6]), of(DType::I32, [3, 2, 3, 1]));
    assert!(ctx.set_rows(a, b, rows).is_ok());
    for dtype in [DType::BF16, DType::F64, DType::I32] {
        refused!(DType, ctx.set_rows(a, of(dtype, [8, 3, 4, 6]), rows), "{dtype}");
    }
    refused!(DType, ctx.set_rows(a, b, of(DType::F32, [3, 2, 3, 1])));
    refused!(DType, ctx.set_rows(a, b, of(DType::I16, [3, 2, 3, 1])));
    for shape in [[7, 3, 4, 6], [8, 3, 2, 6], [8, 3, 4, 3], [8, 4, 4, 6]] {
        refused!(Shape, ctx.set_rows(a, of(DType::F32, shape), rows), "{shape:?}");
    }
    for shape in [[2, 2, 3, 1], [3, 3, 3, 1], [3, 2, 4, 1], [3, 2, 3, 2], [3, 8, 3, 1]] {
        refused!(Shape, ctx.set_rows(a, b, of(DType::I32, shape)), "{shape:?}");
    }
    refused!(Shape, ctx.set_rows(a, b, ctx.dup(rows).unwrap()), "unchecked indices");
    refused!(Shape, ctx.set_rows(a, ctx.transpose(of(DType::F32, [3, 8, 4, 6])).unwrap(), rows));
    refused!(Shape, ctx.set_rows(ctx.transpose(made(DType::F32, [5, 8, 4, 6])).unwrap(), b, rows));
    // The rows to write.
    refused!(Shape, ctx.set_rows(of(DType::F32, [8, 5, 4, 6]), b, rows), "an input");
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [8, 5, 4, 6]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    refused!(Frozen, ctx.set_rows(weights.tensor("w").unwrap(), b, rows));
    let [_, nb1, nb2, nb3] = a.nb();
    let part = ctx.view(a, [8, 3, 4, 6], [nb1, nb2, nb3], 0).unwrap();
    refused!(Shape, ctx.set_rows(a, part, rows), "rows of the target itself");
    let whole = made(DType::F32, [8, 3, 4, 6]);
    refused!(Shape, ctx.set_rows(whole, whole, rows), "the target itself, whose rows change places");
}

#[test]
fn set_rows_refuses_types_without_a_kernel() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let made = |dtype, shape| ctx.dup(of(dtype, shape)).unwrap();
    let lab = Lab::new(&ctx);
    let flat = of(DType::I32, [3, 1, 1, 1]);
    let write =
        |from, to| lab.accepted(ctx.set_rows(made(to, [256, 5, 1, 1]), of(from, [256, 3, 1, 1]), flat).unwrap());
    for dtype in [DType::I64, DType::I8, DType::F64, DType::Q8_1, DType::Q8_K, DType::IQ2_XXS, DType::IQ1_S] {
        refused!(Unsupported, write(DType::F32, dtype), "{dtype}");
    }
    // Before 0.28, the kernel's buffer for such rows had room for one thread only.
    for dtype in [DType::F32, DType::BF16, DType::Q8_0, DType::Q4_0] {
        assert_eq!(write(DType::F16, dtype).is_ok(), cfg!(ggml_0_28), "f16 to {dtype}");
    }
    assert!(write(DType::F16, DType::F16).is_ok());
    let column = ctx.permute(made(DType::F32, [3, 1, 1, 1]), [1, 0, 2, 3]).unwrap();
    let odd = ctx.permute(of(DType::F32, [3, 1, 2, 1]), [1, 2, 0, 3]).unwrap();
    for (a, b) in [(column, of(DType::F32, [1, 3, 1, 1])), (made(DType::F32, [1, 2, 3, 1]), odd)] {
        let Ok(y) = ctx.set_rows(a, b, of(DType::I32, [b.ne()[1], 1, 1, 1])) else { continue };
        match lab.accepted(y) {
            Ok(()) => assert_eq!((a.nb()[0], b.nb()[0]), (4, 4)),
            refusal => refused!(Unsupported, refusal),
        }
    }
}

#[test]
fn get_rows_back_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16] {
        for layout in Layout::ROWS {
            for (n, rows, like) in [(8, 5, 3), (1, 1, 1), (33, 20, 40)] {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (a, values) = lab.operand(&Array::sample(ne([n, rows]), 4, -1.0, 1.0), dtype, layout);
                let numbers = Array::sample(ne([rows]), 9, 0.0, like as f64).map(f64::floor);
                let (which, to) = lab.operand(&numbers, DType::I32, Layout::Plain);
                // Only its shape matters.
                let shape = ctx.input("like", DType::F16, [n as i64, like as i64]).unwrap();
                // Rows without an index are not added.
                for (first, picked) in [(0, rows), (0, 1), (rows / 2, rows - rows / 2)] {
                    let part = ctx.view_1d(which, picked as i64, 4 * first).unwrap();
                    let y = ctx.get_rows_back(a, part, shape).unwrap();
                    let want = Array::of(ne([n, like]), |[i0, row, ..]| {
                        let of_row = (0..picked).filter(|&r| to.data[first + r] as usize == row);
                        of_row.map(|r| values.at([i0, r, 0, 0])).sum()
                    });
                    assert_close(
                        &lab.run(y).unwrap(),
                        &want,
                        1e-5,
                        &format!("{dtype} {layout:?} {n} {first} {picked}"),
                    );
                }
            }
        }
    }
}

#[test]
fn h12_get_rows_back_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (a, like) = (of(DType::F32, [8, 5, 1, 1]), of(DType::F32, [8, 3, 1, 1]));
    let rows = of(DType::I32, [5, 1, 1, 1]);
    assert!(ctx.get_rows_back(a, rows, like).is_ok());
    refused!(DType, ctx.get_rows_back(of(DType::BF16, [8, 5, 1, 1]), rows, like));
    refused!(DType, ctx.get_rows_back(a, of(DType::I64, [5, 1, 1, 1]), like));
    for shape in [[8, 5, 2, 1], [8, 5, 1, 2], [7, 5, 1, 1], [8, 4, 1, 1]] {
        refused!(Shape, ctx.get_rows_back(of(DType::F32, shape), rows, like), "{shape:?}");
    }
    for shape in [[8, 3, 2, 1], [8, 3, 1, 2], [9, 3, 1, 1]] {
        refused!(Shape, ctx.get_rows_back(a, rows, of(DType::F32, shape)), "{shape:?}");
    }
    for shape in [[6, 1, 1, 1], [5, 2, 1, 1], [1, 5, 1, 1], [1, 1, 5, 1]] {
        refused!(Shape, ctx.get_rows_back(a, of(DType::I32, shape), like), "{shape:?}");
    }
    refused!(Shape, ctx.get_rows_back(a, ctx.dup(rows).unwrap(), like), "unchecked indices");
    let lab = Lab::new(&ctx);
    let spread = ctx.reshape(of(DType::I32, [10, 1, 1, 1]), [2, 5]).unwrap();
    let spread = ctx.permute(ctx.view(spread, [1, 5], [8, 40, 40], 0).unwrap(), [1, 0, 2, 3]).unwrap();
    assert_eq!((spread.ne(), spread.nb()[0]), ([5, 1, 1, 1], 8));
    refused!(Unsupported, lab.accepted(ctx.get_rows_back(a, spread, like).unwrap()));
    let turned = ctx.transpose(of(DType::F32, [5, 8, 1, 1])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.get_rows_back(turned, rows, like).unwrap()));
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let graph = ctx.graph([ctx.get_rows_back(a, rows, like).unwrap()]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    refused!(Index, run.set(rows, &[0, 1, 2, 3, 0]));
    run.set(rows, &[2, 2, 2, 1, 0]).unwrap();
}

/// Unchecked indices, which the caller guarantees.
#[test]
fn unchecked_rows_equal_the_checked_ones() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (table, _) = lab.plain(&Array::sample(ne([4, 6]), 3, -1.0, 1.0));
    let (b, _) = lab.plain(&Array::sample(ne([4, 3]), 4, -1.0, 1.0));
    let (which, _) = lab.operand(&places(ne([3]), 6), DType::I32, Layout::Plain);
    let copy = ctx.dup(which).unwrap();
    let y = ctx.get_rows(table, which).unwrap();
    // SAFETY: the indices are a copy of numbers from 0 to 5, and there are 6 rows.
    let z = unsafe { ctx.get_rows_unchecked(table, copy) }.unwrap();
    let y1 = ctx.set_rows(ctx.dup(table).unwrap(), b, which).unwrap();
    // SAFETY: the indices are a copy of distinct numbers from 0 to 5, and there are 6 rows.
    let z1 = unsafe { ctx.set_rows_unchecked(ctx.dup(table).unwrap(), b, copy) }.unwrap();
    let got = lab.run_all(&[y, z, y1, z1]).unwrap();
    assert_eq!((&got[0], &got[2]), (&got[1], &got[3]));
}
