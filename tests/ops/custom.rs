//! Custom operations: arguments of their closures, and refused operands.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ggml::ops::{CustomOptions, Operands, Rows, RowsMut};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

pub(crate) fn tasks(n: usize) -> CustomOptions {
    CustomOptions::new().with_n_tasks(n)
}

pub(crate) fn sched(threads: usize) -> Sched {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(threads).unwrap();
    Sched::builder().backend(backend).build().unwrap()
}

#[test]
fn map_custom_equals_plain_rust() {
    let shape = ne([5, 3, 2, 2]);
    for layout in Layout::ALL {
        for (threads, how) in [(1, CustomOptions::new()), (3, CustomOptions::new()), (3, tasks(2)), (2, tasks(7))] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (a, x) = lab.operand(&Array::sample(shape, 3, -2.0, 2.0), DType::F32, layout);
            let (b, y) = lab.operand(&Array::sample(ne([5]), 4, -2.0, 2.0), DType::F16, Layout::Plain);
            let (c, z) = lab.operand(&Array::sample(shape, 5, -9.0, 9.0).map(f64::floor), DType::I32, layout);
            let one = ctx.map_custom1::<f32>(a, how, |out, x| {
                assert_eq!((x.shape(), out.shape()), ([5, 3, 2, 2], [5, 3, 2, 2]));
                for ([i1, i2, i3], row) in out {
                    row.iter_mut().enumerate().for_each(|(i0, to)| *to = 2.0 * x.at([i0, i1, i2, i3]));
                }
            });
            let two = ctx.map_custom2(a, b, how, |out: RowsMut<'_, f32>, x: Rows<'_, f32>, y: Rows<'_, half::f16>| {
                for ([i1, i2, i3], row) in out {
                    let bias = y.row([0, 0, 0]);
                    row.iter_mut()
                        .zip(bias)
                        .enumerate()
                        .for_each(|(i0, (to, b))| *to = x.at([i0, i1, i2, i3]) + b.to_f32());
                }
            });
            let three = ctx.map_custom3(
                a,
                b,
                c,
                how,
                |out: RowsMut<'_, f32>, x: Rows<'_, f32>, y: Rows<'_, half::f16>, z: Rows<'_, i32>| {
                    for ([i1, i2, i3], row) in out {
                        for (i0, to) in row.iter_mut().enumerate() {
                            let i = [i0, i1, i2, i3];
                            *to = x.at(i) * y.at([i0, 0, 0, 0]).to_f32() - z.at(i) as f32;
                        }
                    }
                },
            );
            let got = lab.run_all(&[one.unwrap(), two.unwrap(), three.unwrap()]).unwrap();
            let bias = |i: [usize; 4]| y.at([i[0], 0, 0, 0]);
            let context = format!("{layout:?} {threads} {how:?}");
            assert_close(&got[0], &x.map(|x| 2.0 * x), 1e-6, &context);
            assert_close(&got[1], &Array::of(shape, |i| x.at(i) + bias(i)), 1e-6, &context);
            assert_close(&got[2], &Array::of(shape, |i| x.at(i) * bias(i) - z.at(i)), 1e-5, &context);
        }
    }
}

#[test]
fn custom_accepts_any_shape_type_and_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (a, x) = lab.operand(&Array::sample(ne([64, 4]), 3, -2.0, 2.0), DType::Q8_0, Layout::Plain);
    let (b, y) = lab.operand(&Array::sample(ne([3, 4]), 4, -2.0, 2.0), DType::F32, Layout::Gaps);
    // The scales of the blocks of `a`, times the sum of the row of `b`.
    let made = ctx.custom::<f64>(&[a, b], [2, 4], tasks(3), |out, operands| {
        assert_eq!((operands.len(), operands.is_empty()), (2, false));
        let b = operands.rows::<f32>(1);
        for (i, row) in out {
            let sum: f32 = b.row(i).iter().sum();
            for (to, block) in row.iter_mut().zip(operands.bytes(0, i).chunks(34)) {
                *to = half::f16::from_le_bytes([block[0], block[1]]).to_f64() * f64::from(sum);
            }
        }
    });
    let want = Array::of(ne([2, 4]), |[block, row, ..]| {
        let most = (0..32).map(|i| x.at([32 * block + i, row, 0, 0]).abs()).fold(0.0, f64::max);
        most / 127.0 * (0..3).map(|i| y.at([i, row, 0, 0])).sum::<f64>()
    });
    assert_close(&lab.run(made.unwrap()).unwrap(), &want, 1e-5, "scales");
    let count = ctx.custom::<i32>(&[], [7], CustomOptions::new(), |out, operands| {
        assert!(operands.is_empty());
        out.for_each(|(_, row)| row.iter_mut().zip(0..).for_each(|(to, n)| *to = n));
    });
    let want = Array::of(ne([7]), |[i, ..]| i as f64);
    assert_close(&lab.run(count.unwrap()).unwrap(), &want, 0.0, "no operands");
    let nine = ctx.custom::<f32>(&[b; 9], [1], CustomOptions::new(), |out, operands| {
        let sum = (0..9).map(|n| operands.rows::<f32>(n).at([2, 3, 0, 0])).sum();
        out.for_each(|(_, row)| row[0] = sum);
    });
    let want = Array { ne: ne([1]), data: vec![9.0 * y.at([2, 3, 0, 0])] };
    assert_close(&lab.run(nine.unwrap()).unwrap(), &want, 1e-5, "nine");
}

#[test]
fn map_custom_inplace_writes_only_its_operand() {
    for layout in Layout::ROWS {
        let shape = ne([4, 3, 2]);
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, 3);
        let (a, x) = lab.plain(&Array::sample(ne([6, 3, 2]), 3, -2.0, 2.0));
        let (b, y) = lab.plain(&Array::sample(shape, 4, -2.0, 2.0));
        // Elements 1 to 4 of each row, with the layout's strides.
        let part = |t| {
            let [_, nb1, nb2, nb3] = Tensor::nb(t);
            ctx.view(t, [4, 3, 2], [nb1, nb2, nb3], 4).unwrap()
        };
        let target = || {
            let whole = ctx.dup(a).unwrap();
            let t = if layout == Layout::Plain { ctx.cont(part(a)).unwrap() } else { part(whole) };
            if layout == Layout::Swapped { ctx.permute(t, [0, 2, 1, 3]).unwrap() } else { t }
        };
        let at =
            |[i0, i1, i2, i3]: [usize; 4]| if layout == Layout::Swapped { [i0, i2, i1, i3] } else { [i0, i1, i2, i3] };
        let b = if layout == Layout::Swapped { ctx.permute(b, [0, 2, 1, 3]).unwrap() } else { b };
        let add = |row: &mut [f32], b: &[f32]| row.iter_mut().zip(b).for_each(|(to, b)| *to += b);
        let one = ctx.map_custom1_inplace::<f32>(target(), CustomOptions::new(), |out| {
            out.for_each(|(_, row)| row.iter_mut().for_each(|x| *x = -*x));
        });
        let two = ctx.map_custom2_inplace(target(), b, CustomOptions::new(), move |out, b: Rows<'_, f32>| {
            out.for_each(|(i, row)| add(row, b.row(i)));
        });
        let three =
            ctx.map_custom3_inplace(target(), b, b, tasks(2), move |out, b: Rows<'_, f32>, d: Rows<'_, f32>| {
                for (i, row) in out {
                    add(row, b.row(i));
                    add(row, d.row(i));
                }
            });
        let many = ctx.custom_inplace::<f32>(target(), &[b; 8], CustomOptions::new(), move |out, operands| {
            assert_eq!(operands.len(), 8);
            out.for_each(|(i, row)| (0..8).for_each(|n| add(row, operands.rows(n).row(i))));
        });
        // With gaps between them, rows don't lie together.
        let runs = ctx.map_custom2_inplace(target(), b, CustomOptions::new(), move |mut out, b: Rows<'_, f32>| {
            let [n, rows, ..] = out.shape();
            for (run, ([i1, i2, i3], length)) in out.runs().into_iter().enumerate() {
                assert!(length == n || layout == Layout::Plain && length <= n * rows, "{layout:?}");
                (i1..i1 + length / n).for_each(|i1| out.append(run, b.row([i1, i2, i3])));
            }
        });
        let outputs = [one, two, three, many, runs].map(|y| ctx.cont(y.unwrap()).unwrap());
        let got = lab.run_all(&outputs).unwrap();
        let shape = at(shape);
        for (got, (of_x, of_y)) in got.iter().zip([(-1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (1.0, 8.0), (0.0, 1.0)]) {
            let want = Array::of(shape, |i| {
                let [i0, i1, i2, i3] = at(i);
                of_x * x.at([i0 + 1, i1, i2, i3]) + of_y * y.at([i0, i1, i2, i3])
            });
            assert_close(got, &want, 1e-5, &format!("{layout:?} {of_x} {of_y}"));
        }
    }
}

#[test]
fn map_custom_inplace_writes_states() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("count", DType::I64, [2, 2]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let count = state.tensor("count").unwrap();
    let y = ctx.map_custom1_inplace::<i64>(count, CustomOptions::new(), |out| {
        out.for_each(|([i, ..], row)| row.iter_mut().for_each(|n| *n += i as i64 + 1));
    });
    let graph = ctx.graph([y.unwrap()]).unwrap();
    let mut sched = sched(2);
    let mut run = sched.alloc(&graph).unwrap();
    (0..3).for_each(|_| run.compute().unwrap());
    drop(run);
    assert_eq!(count.read::<i64>().unwrap(), [3, 3, 6, 6]);
}

/// Older results in the same memory are not visible.
#[test]
fn custom_rows_start_as_zeros() {
    let ctx = Context::new();
    let lab = Lab::with_threads(&ctx, 2);
    let (x, _) = lab.plain(&Array::sample(ne([64, 64]), 3, 1.0, 2.0));
    let before = ctx.sum(ctx.sqr(ctx.sqr(x).unwrap()).unwrap()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let y = ctx.custom::<f32>(&[before], [64, 64], CustomOptions::new(), move |out, _| {
        out.for_each(|(_, row)| keep.lock().unwrap().extend_from_slice(row));
    });
    let got = lab.run(y.unwrap()).unwrap();
    assert_eq!(got.data, vec![0.0; 64 * 64]);
    assert_eq!(*seen.lock().unwrap(), vec![0.0; 64 * 64]);
}

/// Later closures read no older results, whatever a closure did with its rows. After a panic, the closure is not called
/// for tasks that begin later.
#[test]
fn custom_rows_that_a_closure_left_are_zeros() {
    const FILL: usize = 0;
    const LEAVE: usize = 1;
    const NOTHING: usize = 2;
    const PANIC: usize = 3;
    const APPEND: usize = 4;
    const APPEND_TOO_MANY: usize = 5;
    const LEAVE_RUNS: usize = 6;
    let ctx = Context::new();
    let mode = Arc::new(AtomicUsize::new(FILL));
    let what = Arc::clone(&mode);
    let y =
        ctx.custom::<f32>(&[], [3, 64], CustomOptions::new(), move |mut out, _| match what.load(Ordering::Relaxed) {
            FILL => out.for_each(|(_, row)| row.fill(7.0)),
            LEAVE => out.next().unwrap().1.fill(7.0),
            NOTHING => {}
            APPEND => (0..out.runs().len()).for_each(|run| out.append(run, &[7.0; 4])),
            APPEND_TOO_MANY => {
                out.runs();
                out.append(0, &[7.0; 8 * 3 - 1]);
                out.append(0, &[7.0; 2]);
            }
            LEAVE_RUNS => {
                out.next().unwrap().1.fill(7.0);
                assert_eq!(out.runs().iter().map(|(_, n)| n).sum::<usize>(), 7 * 3);
                assert!(out.runs().is_empty() && out.next().is_none());
            }
            _ => panic!("before a row was taken"),
        });
    let sum = Arc::new(Mutex::new(0.0));
    let keep = Arc::clone(&sum);
    let z = ctx.map_custom1::<f32>(y.unwrap(), tasks(1), move |_, y| {
        *keep.lock().unwrap() = (0..64).flat_map(|i| y.row([i, 0, 0])).sum::<f32>();
    });
    let graph = ctx.graph([z.unwrap()]).unwrap();
    let mut sched = sched(8);
    let mut run = sched.alloc(&graph).unwrap();
    for (left, expected) in [
        (LEAVE, 8.0 * 3.0 * 7.0),
        (NOTHING, 0.0),
        (PANIC, 0.0),
        (APPEND, 8.0 * 4.0 * 7.0),
        (APPEND_TOO_MANY, 23.0 * 7.0),
        (LEAVE_RUNS, 8.0 * 3.0 * 7.0),
    ] {
        for _ in 0..20 {
            mode.store(FILL, Ordering::Relaxed);
            run.compute().unwrap();
            assert_eq!(*sum.lock().unwrap(), 64.0 * 3.0 * 7.0);
            mode.store(left, Ordering::Relaxed);
            let computed = catch_unwind(AssertUnwindSafe(|| run.compute().unwrap()));
            assert_eq!(computed.is_err(), left == PANIC || left == APPEND_TOO_MANY);
            let found = *sum.lock().unwrap();
            // Where tasks fill rows and panic then, those that had begun have done the same.
            let tasks = if left == APPEND_TOO_MANY { (found / expected).round().max(1.0) } else { 1.0 };
            assert_eq!(found, tasks * expected, "{left}");
        }
    }
}

#[test]
fn custom_gives_each_row_to_one_task() {
    for (shape, threads, how, most) in [
        ([3, 100, 2, 2], 4, CustomOptions::new(), 4),
        ([3, 100, 2, 2], 4, tasks(3), 3),
        ([3, 100, 2, 2], 2, tasks(100), 2),
        ([3, 100, 2, 2], 4, tasks(1), 1),
        ([3, 2, 1, 1], 7, CustomOptions::new(), 2),
        ([3, 1, 1, 1], 7, CustomOptions::new(), 1),
        ([3, 10, 3, 5], 4, CustomOptions::new().with_split(1), 4),
        ([3, 10, 3, 5], 4, CustomOptions::new().with_split(2), 3),
        ([3, 10, 3, 5], 4, CustomOptions::new().with_split(3), 4),
        ([3, 10, 3, 5], 4, tasks(2).with_split(1), 2),
    ] {
        let ctx = Context::new();
        let (calls, rows) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (calls_in, rows_in) = (Arc::clone(&calls), Arc::clone(&rows));
        let y = ctx.custom::<i8>(&[], shape, how, move |out, _| {
            calls_in.fetch_add(1, Ordering::Relaxed);
            assert!(out.len() > 0, "an empty part");
            let n = out.len();
            let part: Vec<_> = out.inspect(|(_, row)| assert!(row.iter().all(|x| *x == 0))).map(|(i, _)| i).collect();
            assert_eq!(part.len(), n);
            if let Some(d) = how.split {
                // All rows with the part's indices.
                let indices: HashSet<_> = part.iter().map(|i| i[d - 1]).collect();
                let others = shape[1] * shape[2] * shape[3] / shape[d];
                assert_eq!(n as i64, indices.len() as i64 * others, "{how:?}");
            }
            rows_in.lock().unwrap().extend(part);
        });
        let (runs, runs_in) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let keep = (Arc::clone(&runs), Arc::clone(&runs_in));
        let z = ctx.custom::<i8>(&[], shape, how, move |mut out, _| {
            let runs = out.runs();
            for (run, &([i1, i2, i3], n)) in runs.iter().enumerate() {
                keep.0.lock().unwrap().extend((0..n / 3).map(|row| [i1 + row, i2, i3]));
                vec![1; n].chunks(2).for_each(|ones| out.append(run, ones));
            }
            keep.1.lock().unwrap().push(runs.len());
        });
        // Another operation for all threads: C chooses their number per graph.
        let x = ctx.input("x", DType::F32, [8]).unwrap();
        let z = z.unwrap();
        let graph = ctx.graph([y.unwrap(), z, ctx.add(x, x).unwrap()]).unwrap();
        let mut sched = sched(threads);
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[0.0_f32; 8]).unwrap();
        run.compute().unwrap();
        assert!(run.get::<i8>(z).unwrap().iter().all(|x| *x == 1), "{shape:?} {threads} {how:?}");
        assert_eq!(calls.load(Ordering::Relaxed), most, "{shape:?} {threads} {how:?}");
        let rows = rows.lock().unwrap();
        assert_eq!(rows.len() as i64, shape[1] * shape[2] * shape[3]);
        assert_eq!(rows.iter().collect::<HashSet<_>>().len(), rows.len(), "each once");
        let (runs, planes) = (runs.lock().unwrap(), usize::try_from(shape[2] * shape[3]).unwrap());
        assert_eq!((runs.len(), runs.iter().collect::<HashSet<_>>()), (rows.len(), rows.iter().collect()), "{how:?}");
        let one_of_each_plane = runs_in.lock().unwrap().iter().all(|n| *n == planes);
        assert!(one_of_each_plane || how.split != Some(1), "{runs_in:?} of {planes}: {how:?}");
    }
}

#[test]
fn custom_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [4, 3]);
    let none = |_: RowsMut<'_, f32>, _: Operands<'_>| {};
    for n in [0, 1 << 31, usize::MAX] {
        refused!(Param, ctx.custom(&[x], [1], tasks(n), none), "{n}");
    }
    for split in [0, 4, usize::MAX] {
        refused!(Param, ctx.custom(&[x], [1], CustomOptions::new().with_split(split), none), "{split}");
    }
    for shape in [[0, 1], [-1, 1], [1_i64 << 40, 1 << 40]] {
        refused!(Shape, ctx.custom(&[x], shape, CustomOptions::new(), none), "{shape:?}");
    }
    refused!(Shape, ctx.custom(&[x; 10], [1], CustomOptions::new(), none));
    let how = CustomOptions::new();
    let (d, h) = (ctx.dup(x).unwrap(), of(DType::F16, [4, 3]));
    refused!(ElementType, ctx.map_custom1::<f64>(x, how, |_, _| {}));
    refused!(ElementType, ctx.map_custom2::<f32, f32>(h, x, how, |_, _, _| {}));
    refused!(ElementType, ctx.map_custom2::<f32, f32>(x, h, how, |_, _, _| {}));
    refused!(ElementType, ctx.map_custom3::<f32, f32, f32>(h, x, x, how, |_, _, _, _| {}));
    refused!(ElementType, ctx.map_custom3::<f32, f32, f32>(x, h, x, how, |_, _, _, _| {}));
    refused!(ElementType, ctx.map_custom3::<f32, f32, f32>(x, x, h, how, |_, _, _, _| {}));
    refused!(ElementType, ctx.map_custom1_inplace::<f64>(d, how, |_| {}));
    refused!(ElementType, ctx.map_custom2_inplace::<f32, f32>(d, h, how, |_, _| {}));
    refused!(ElementType, ctx.map_custom3_inplace::<f32, f32, f32>(d, h, x, how, |_, _, _| {}));
    refused!(ElementType, ctx.map_custom3_inplace::<f32, f32, f32>(d, x, h, how, |_, _, _| {}));
    refused!(ElementType, ctx.map_custom1::<f32>(of(DType::Q8_0, [32, 1]), how, |_, _| {}));
}

#[test]
fn map_custom_inplace_refuses_weights_inputs_and_indices() {
    let ctx = Context::new();
    let how = CustomOptions::new();
    let x = ctx.input("x", DType::F32, [4, 3]).unwrap();
    let d = ctx.dup(x).unwrap();
    let none = |_: RowsMut<'_, f32>, _: Operands<'_>| {};
    assert!(ctx.custom_inplace(d, &[x; 8], how, none).is_ok());
    refused!(Shape, ctx.custom_inplace(d, &[x; 9], how, none));
    refused!(Shape, ctx.custom_inplace(x, &[], how, none), "an input");
    refused!(Shape, ctx.custom_inplace(ctx.view(x, [2], [8, 8, 8], 4).unwrap(), &[], how, none), "a view of one");
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4, 3]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let w = weights.tensor("w").unwrap();
    refused!(Frozen, ctx.map_custom1_inplace::<f32>(w, how, |_| {}));
    // No other call may read the rows that a call changes, not even as an identical operand.
    refused!(Shape, ctx.custom_inplace(d, &[x, d], how, none));
    refused!(Shape, ctx.map_custom2_inplace::<f32, f32>(d, d, how, |_, _| {}));
    refused!(Shape, ctx.map_custom3_inplace::<f32, f32, f32>(d, x, ctx.transpose(d).unwrap(), how, |_, _, _| {}));
    let row = |n: usize| ctx.view(d, [4], [16, 16, 16], 16 * n).unwrap();
    refused!(Shape, ctx.map_custom2_inplace::<f32, f32>(row(1), row(1), how, |_, _| {}));
    assert!(ctx.map_custom2_inplace::<f32, f32>(row(1), row(0), how, |_, _| {}).is_ok(), "two rows");
    refused!(Shape, ctx.map_custom1_inplace::<f32>(ctx.transpose(d).unwrap(), how, |_| {}), "spread");
    // The results of closures are no checked indices.
    let made = ctx.custom::<i32>(&[], [2], how, |_, _| {}).unwrap();
    refused!(Shape, ctx.get_rows(x, made));
}

/// Errors inside the closure.
#[test]
fn custom_operands_are_checked_on_access() {
    type Use = fn(Operands<'_>);
    let wrong: [(&str, Use); 8] = [
        ("operand 2 of 2", |o| drop(o.rows::<f32>(2).row([0, 0, 0]).to_vec())),
        ("operand 0 is f32, not `i32`", |o| drop(o.rows::<i32>(0).row([0, 0, 0]).to_vec())),
        ("row [3, 0, 0] of", |o| drop(o.rows::<f32>(0).row([3, 0, 0]).to_vec())),
        ("row [0, 1, 0] of", |o| drop(o.bytes(0, [0, 1, 0]).to_vec())),
        ("row [0, 0, 1] of", |o| drop(o.bytes(0, [0, 0, 1]).to_vec())),
        ("rows are not contiguous", |o| drop(o.rows::<f32>(1).row([0, 0, 0]).to_vec())),
        ("element [4, 0, 0, 0] of", |o| drop(o.rows::<f32>(0).at([4, 0, 0, 0]).to_string())),
        ("element [0, 0, 0, 1] of", |o| drop(o.rows::<f32>(1).at([0, 0, 0, 1]).to_string())),
    ];
    for (text, f) in wrong {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, _) = lab.plain(&Array::sample(ne([4, 3]), 3, -1.0, 1.0));
        let turned = ctx.transpose(x).unwrap();
        let y = ctx.custom::<f32>(&[x, turned], [1], CustomOptions::new(), move |_, operands| f(operands)).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| lab.run(y).unwrap())).unwrap_err();
        let said = panic
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string());
        assert!(said.contains(text), "{said}");
    }
}
