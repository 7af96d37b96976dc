//! Matrices and biases picked by index.

use ggml::driver::{OpParams, Operation};
use ggml::ops::{MulMatOptions, Prec};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// The largest error that blocks cause in a product of length `k`.
fn tolerance(dtype: DType, k: usize) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 | DType::BF16 => 2e-2,
        // The second operand is rounded to blocks of 8 bits.
        _ => 2e-2 * k as f64,
    }
}

/// Indices of which each token has different ones.
fn ids(shape: [usize; 4], below: usize) -> Array {
    let first = Array::sample(shape, 9, 0.0, below as f64).map(f64::floor);
    Array::of(shape, |[e, t, i2, i3]| (first.at([0, t, i2, i3]) + e as f64) % below as f64)
}

#[test]
fn h07_mul_mat_id_equals_plain_rust() {
    for (dtype, of_b) in [
        (DType::F32, DType::F32),
        (DType::F16, DType::F16),
        (DType::F16, DType::F32),
        (DType::BF16, DType::BF16),
        (DType::Q8_0, DType::F32),
        (DType::Q4_0, DType::F32),
    ] {
        for (k, m, n, used, repeated, tokens) in
            [(32, 5, 3, 2, 2, 4), (64, 33, 4, 3, 1, 20), (32, 1, 1, 1, 1, 1), (96, 2, 8, 4, 2, 9)]
        {
            for layout in Layout::ROWS {
                for (ids_layout, threads) in [(Layout::Plain, 1), (Layout::Transposed, 2), (Layout::Plain, 5)] {
                    let ctx = Context::new();
                    let lab = Lab::with_threads(&ctx, threads);
                    let (experts, w) = lab.operand(&Array::sample(ne([k, m, n]), 3, -1.0, 1.0), dtype, Layout::Plain);
                    let (b, x) = lab.operand(&Array::sample(ne([k, repeated, tokens]), 4, -1.0, 1.0), of_b, layout);
                    let (which, i) = lab.operand(&ids(ne([used, tokens]), n), DType::I32, ids_layout);
                    let y = ctx.mul_mat_id(experts, b, which).unwrap();
                    let want = Array::of(ne([m, used, tokens]), |[row, e, t, _]| {
                        let expert = i.at([e, t, 0, 0]) as usize;
                        (0..k).map(|j| w.at([j, row, expert, 0]) * x.at([j, e % repeated, t, 0])).sum()
                    });
                    let context = format!("{dtype} {of_b} {k} {layout:?} {ids_layout:?} {threads}");
                    assert_close(&lab.run(y).unwrap(), &want, tolerance(dtype, k), &context);
                }
            }
        }
    }
}

/// The CPU ignores precisions; devices in Rust see them.
#[test]
fn mul_mat_id_ext_has_precisions() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (experts, _) = lab.plain(&Array::sample(ne([8, 3, 4]), 3, -1.0, 1.0));
    let (b, _) = lab.plain(&Array::sample(ne([8, 1, 5]), 4, -1.0, 1.0));
    let (which, _) = lab.operand(&ids(ne([2, 5]), 4), DType::I32, Layout::Plain);
    let want = lab.run(ctx.mul_mat_id(experts, b, which).unwrap()).unwrap();
    for (acc, src) in [(None, None), (Some(Prec::F32), None), (Some(Prec::F16), Some(Prec::Q8)), (None, Some(Prec::Q4))]
    {
        let y = ctx.mul_mat_id_ext(experts, b, which, MulMatOptions::new().with_acc(acc).with_src(src)).unwrap();
        assert_eq!(lab.run(y).unwrap(), want);
        let operation = OpParams::from(y).operation().unwrap();
        let again = operation.build(&ctx, &[Some(experts), Some(b), Some(which)], y.dtype(), y.ne()).unwrap();
        for t in [y, again] {
            match OpParams::from(t).operation() {
                Ok(Operation::MulMatId(how)) => assert_eq!((how.acc, how.src, how.hadamard), (acc, src, false)),
                other => panic!("{other:?}"),
            }
        }
    }
    for how in [
        MulMatOptions::new().with_acc(Prec::Q8),
        MulMatOptions::new().with_acc(Prec::Q4),
        MulMatOptions::new().with_hadamard(true),
    ] {
        refused!(Param, ctx.mul_mat_id_ext(experts, b, which, how), "{how:?}");
    }
}

#[test]
fn mul_mat_id_accepts_strided_experts() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (experts, w) = lab.operand(&Array::sample(ne([8, 3, 4]), 3, -1.0, 1.0), DType::F32, Layout::Swapped);
    let (b, x) = lab.plain(&Array::sample(ne([8, 1, 5]), 4, -1.0, 1.0));
    let (which, i) = lab.operand(&ids(ne([2, 5]), 4), DType::I32, Layout::Plain);
    let y = ctx.mul_mat_id(experts, b, which).unwrap();
    let want = Array::of(ne([3, 2, 5]), |[row, e, t, _]| {
        (0..8).map(|j| w.at([j, row, i.at([e, t, 0, 0]) as usize, 0]) * x.at([j, 0, t, 0])).sum()
    });
    assert_close(&lab.run(y).unwrap(), &want, 1e-5, "swapped");
}

#[test]
fn add_id_equals_plain_rust() {
    for (n, used, tokens, rows) in [(5, 3, 4, 7), (1, 1, 1, 1), (33, 2, 9, 2), (4, 6, 1, 6)] {
        for layout in Layout::ROWS {
            for (of_b, threads) in [(Layout::Plain, 1), (Layout::Gaps, 3)] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (a, x) = lab.operand(&Array::sample(ne([n, used, tokens]), 3, -9.0, 9.0), DType::F32, layout);
                let (b, bias) = lab.operand(&Array::sample(ne([n, rows]), 4, -9.0, 9.0), DType::F32, of_b);
                let (which, i) = lab.operand(&ids(ne([used, tokens]), rows), DType::I32, Layout::Transposed);
                let y = ctx.add_id(a, b, which).unwrap();
                let want = Array::of(x.ne, |[i0, e, t, _]| {
                    x.at([i0, e, t, 0]) + bias.at([i0, i.at([e, t, 0, 0]) as usize, 0, 0])
                });
                assert_close(&lab.run(y).unwrap(), &want, 1e-6, &format!("{n} {layout:?} {of_b:?} {threads}"));
            }
        }
    }
}

/// A bias with the layout of the rows and no later use: the allocator would give its memory to the result.
#[test]
fn add_id_result_does_not_overwrite_its_bias() {
    let ctx = Context::new();
    let lab = Lab::with_threads(&ctx, 1);
    let (a, x) = lab.plain(&Array::sample(ne([4, 3]), 3, -9.0, 9.0));
    let (b, bias) = lab.plain(&Array::sample(ne([4, 3]), 4, -9.0, 9.0));
    let order = Array { ne: ne([3]), data: vec![2.0, 0.0, 1.0] };
    let (which, i) = lab.operand(&order, DType::I32, Layout::Plain);
    let y = ctx.add_id(a, ctx.neg(b).unwrap(), which).unwrap();
    let want = Array::of(x.ne, |[i0, e, ..]| x.at([i0, e, 0, 0]) - bias.at([i0, i.data[e] as usize, 0, 0]));
    assert_close(&lab.run(y).unwrap(), &want, 1e-6, "a bias that is made on the way");
}

#[test]
fn h07_mul_mat_id_checks_indices_when_set() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let which = ctx.input("ids", DType::I32, [2, 3]).unwrap();
    let y = ctx.mul_mat_id(of(DType::F32, [4, 5, 6]), of(DType::F32, [4, 1, 3]), which).unwrap();
    let z = ctx.add_id(y, of(DType::F32, [5, 4, 1]), ctx.reshape(which, [2, 3]).unwrap()).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    for (outputs, below) in [(y, 6), (z, 4)] {
        let graph = ctx.graph([outputs]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        for bad in [-1, below, i32::MIN, i32::MAX] {
            refused!(Index, run.set(which, &[0, 1, bad, 0, 1, 0]), "{bad} of {below}");
        }
        refused!(Repeated, run.set(which, &[0, 1, 2, 2, 1, 0]), "one expert twice for a token");
        run.set(which, &[0, below - 1, 0, 1, 1, 0]).unwrap();
    }
}

#[test]
fn mul_mat_id_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (w, x) = (of(DType::F32, [8, 5, 4, 1]), of(DType::F32, [8, 2, 3, 1]));
    let which = of(DType::I32, [4, 3, 1, 1]);
    assert!(ctx.mul_mat_id(w, x, which).is_ok());
    refused!(DType, ctx.mul_mat_id(w, x, of(DType::I64, [4, 3, 1, 1])));
    refused!(Shape, ctx.mul_mat_id(of(DType::F32, [7, 5, 4, 1]), x, which));
    refused!(Shape, ctx.mul_mat_id(of(DType::F32, [8, 5, 4, 2]), x, which));
    refused!(Shape, ctx.mul_mat_id(ctx.transpose(of(DType::F32, [5, 8, 4, 1])).unwrap(), x, which));
    for shape in [[8, 2, 4, 1], [8, 2, 3, 2], [8, 3, 3, 1]] {
        refused!(Shape, ctx.mul_mat_id(w, of(DType::F32, shape), which), "{shape:?}");
    }
    for shape in [[4, 4, 1, 1], [3, 3, 1, 1], [4, 3, 2, 1], [4, 3, 1, 2]] {
        refused!(Shape, ctx.mul_mat_id(w, x, of(DType::I32, shape)), "{shape:?}");
    }
    refused!(Shape, ctx.mul_mat_id(w, x, ctx.dup(which).unwrap()), "unchecked indices");
    // The product of valid operands may be too large.
    let tall = of(DType::I8, [1, 1 << 30, 1, 1]);
    refused!(Shape, ctx.mul_mat_id(tall, of(DType::F32, [1, 1, 1, 1]), of(DType::I32, [1 << 32, 1, 1, 1])));
}

#[test]
fn h14_mul_mat_id_refuses_types_without_a_dot_product() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let which = of(DType::I32, [1, 1, 1]);
    let product = |w, x| lab.accepted(ctx.mul_mat_id(of(w, [256, 2, 2]), of(x, [256, 1, 1]), which).unwrap());
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::Q8_1, DType::Q8_K] {
        refused!(Unsupported, product(dtype, DType::F32), "{dtype}");
    }
    for (w, x) in
        [(DType::F32, DType::F16), (DType::F32, DType::BF16), (DType::Q8_0, DType::Q8_0), (DType::F16, DType::BF16)]
    {
        refused!(Unsupported, product(w, x), "{w} {x}");
    }
    let odd = ctx.permute(of(DType::F32, [1, 2, 256]), [2, 1, 0, 3]).unwrap();
    let y = ctx.mul_mat_id(of(DType::F32, [256, 2, 2]), odd, ctx.reshape(of(DType::I32, [2, 1, 1]), [2, 1]).unwrap());
    refused!(Unsupported, lab.accepted(y.unwrap()), "rows that are spread");
    // The kernel's table would have 2^61 entries of 8 bytes.
    let many = of(DType::F32, [1, 1, (1 << 30) + 1]);
    let y = ctx.mul_mat_id(many, of(DType::F32, [1, 1, 1]), of(DType::I32, [1 << 30, 1, 1])).unwrap();
    refused!(Unsupported, lab.accepted(y));
}

#[test]
fn add_id_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (a, b) = (of(DType::F32, [8, 2, 3, 1]), of(DType::F32, [8, 5, 1, 1]));
    let which = of(DType::I32, [2, 3, 1, 1]);
    assert!(ctx.add_id(a, b, which).is_ok());
    refused!(DType, ctx.add_id(of(DType::F16, [8, 2, 3, 1]), b, which));
    refused!(DType, ctx.add_id(a, of(DType::F16, [8, 5, 1, 1]), which));
    refused!(DType, ctx.add_id(a, b, of(DType::I64, [2, 3, 1, 1])));
    refused!(Shape, ctx.add_id(of(DType::F32, [8, 2, 3, 2]), b, which));
    for shape in [[7, 5, 1, 1], [8, 5, 2, 1], [8, 5, 1, 2]] {
        refused!(Shape, ctx.add_id(a, of(DType::F32, shape), which), "{shape:?}");
    }
    for shape in [[1, 3, 1, 1], [2, 1, 1, 1], [2, 3, 2, 1], [2, 3, 1, 2]] {
        refused!(Shape, ctx.add_id(a, b, of(DType::I32, shape)), "{shape:?}");
    }
    refused!(Shape, ctx.add_id(a, b, ctx.dup(which).unwrap()), "unchecked indices");
    let lab = Lab::new(&ctx);
    let spread = ctx.transpose(of(DType::F32, [5, 8, 1, 1])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.add_id(a, spread, which).unwrap()));
}

/// The scheduler reads the indices once, even if a later operation has more experts (H78).
#[test]
fn mul_mat_id_requires_equal_expert_counts_on_several_devices() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let which = ctx.input("ids", DType::I32, [2, 3]).unwrap();
    let x = of(DType::F32, [4, 1, 3]);
    let few = ctx.mul_mat_id(of(DType::F32, [4, 4, 3]), x, which).unwrap();
    let many = of(DType::F32, [4, 4, 300]);
    let unlike = ctx.graph([few, ctx.mul_mat_id(many, x, which).unwrap()]).unwrap();
    let apart = ctx.reshape(which, [2, 3]).unwrap();
    let apart = ctx.graph([few, ctx.mul_mat_id(many, x, apart).unwrap()]).unwrap();
    let cpu = || Backend::cpu().unwrap();
    let mut sched = Sched::builder().backend(cpu()).build().unwrap();
    assert!(sched.alloc(&unlike).is_ok(), "one device copies nothing");
    let mut sched = Sched::builder().backend(cpu()).backend(cpu()).build().unwrap();
    refused!(Unsupported, sched.alloc(&unlike));
    assert!(sched.alloc(&apart).is_ok());
}

/// Unchecked indices, which the caller guarantees.
#[test]
fn unchecked_mul_mat_id_equals_the_checked_one() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (w, _) = lab.plain(&Array::sample(ne([8, 5, 4]), 3, -1.0, 1.0));
    let (x, _) = lab.plain(&Array::sample(ne([8, 1, 3]), 4, -1.0, 1.0));
    let (bias, _) = lab.plain(&Array::sample(ne([5, 4]), 5, -1.0, 1.0));
    let (which, _) = lab.operand(&ids(ne([2, 3]), 4), DType::I32, Layout::Plain);
    let copy = ctx.dup(which).unwrap();
    let y = ctx.mul_mat_id(w, x, which).unwrap();
    // SAFETY: the indices are a copy of numbers from 0 to 3, and there are 4 experts.
    let z = unsafe { ctx.mul_mat_id_unchecked(w, x, copy) }.unwrap();
    let y1 = ctx.add_id(y, bias, which).unwrap();
    // SAFETY: as above.
    let z1 = unsafe { ctx.add_id_unchecked(z, bias, copy) }.unwrap();
    let got = lab.run_all(&[y, z, y1, z1]).unwrap();
    assert_eq!((&got[0], &got[2]), (&got[1], &got[3]));
}
